"""Gateway and guards as containers: differences, replacement, rebuild."""
