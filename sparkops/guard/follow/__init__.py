"""What a node does as it is told: starts and stops engines."""
