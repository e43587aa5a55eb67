"""Downloads of models from their hub, in an image of their own."""
