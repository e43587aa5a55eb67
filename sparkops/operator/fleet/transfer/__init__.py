"""Files from node to node, over connections between the nodes."""
