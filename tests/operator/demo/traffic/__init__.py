"""Requests of many clients to a real server, by hand and by OpenAI's own package."""
