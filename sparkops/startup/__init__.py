"""The start of an engine: its log, its progress, its estimate, causes of failure."""
