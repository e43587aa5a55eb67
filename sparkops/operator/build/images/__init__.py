"""Images on the nodes: build, check before the tag, copy."""
