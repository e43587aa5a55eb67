"""What `sparkops status` reads and shows."""
