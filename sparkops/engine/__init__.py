"""The inference server: its command line, its ranks, its figures."""
