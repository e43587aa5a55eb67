"""Docker: commands as values, and its reports of containers and images."""
