"""Requests of many clients at once to an OpenAI-compatible server, and the outcome of each of them."""
