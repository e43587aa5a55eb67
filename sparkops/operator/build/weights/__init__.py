"""Model weights on the nodes: list, copy, verify, and steps that make a checkpoint."""
