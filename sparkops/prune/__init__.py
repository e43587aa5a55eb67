"""The verb `prune`: contents of a disk, reasons to keep them, and removals."""
