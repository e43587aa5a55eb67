"""The smoke suite: requests, checks, and the run over a server."""
