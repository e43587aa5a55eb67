"""What the leader of a service decides and remembers."""
