"""Reach the nodes and their guards."""
