"""The verbs `prune` and `uninstall`: contents of a disk, reasons to keep them, and removals."""
