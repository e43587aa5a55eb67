"""A release that runs: its start, its memory, its smoke checks and its watch."""
