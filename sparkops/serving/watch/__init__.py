"""The watch over promoted releases: rules that find what is wrong, and never act on an engine."""
