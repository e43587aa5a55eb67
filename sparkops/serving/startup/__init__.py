"""The start of an engine: log, progress, estimate, causes of failure."""
