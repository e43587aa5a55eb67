"""The verb `demo`: a swap under load on this machine, its first and last lines, and the refusals before it."""
