"""What is measured while releases serve."""
