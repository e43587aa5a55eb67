"""Docker: commands as values, and what inspect says of containers."""
