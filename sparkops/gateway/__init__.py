"""The gateway: its image, configuration, commands and reports."""
