"""What can be removed from the nodes' disks, and its removal."""
