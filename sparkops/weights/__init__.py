"""Model weights on the nodes: listing, copying, verification, steps that make a checkpoint."""
