"""The page of `sparkops ui`: its server on this machine, and the files that a browser gets."""
