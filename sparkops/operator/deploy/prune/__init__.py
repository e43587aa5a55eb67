"""The verbs `prune` and `node uninstall`: contents of a disk, reasons to keep them, and removals."""
