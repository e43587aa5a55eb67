"""The network between nodes: links, the environment of ranks, firewall, preflight."""
