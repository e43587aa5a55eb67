"""Recipes of other tools as recipes of sparkops."""
