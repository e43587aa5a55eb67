"""From a recipe to an image on each node, and its weights."""
