"""`make gpu`: the whole way of sparkops on this machine's NVIDIA GPUs, and the report of it."""
