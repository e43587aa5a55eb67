"""Conversion of recipes of other tools to recipes of sparkops."""
