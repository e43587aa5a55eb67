"""The verb `status`: reading and output."""
