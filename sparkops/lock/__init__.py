"""Lock files: what a build takes, resolved on one node."""
