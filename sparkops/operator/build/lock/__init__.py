"""Lock files: the inputs of a build, resolved on one node."""
