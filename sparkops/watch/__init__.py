"""The watch over promoted releases: rules that warn, and never act on an engine."""
