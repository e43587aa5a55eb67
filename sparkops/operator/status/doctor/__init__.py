"""The verb `doctor`: examination, findings and fixes."""
