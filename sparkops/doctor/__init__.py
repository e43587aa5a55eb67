"""What `sparkops doctor` examines and reports."""
