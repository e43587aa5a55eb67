"""Recipes to answering LLM servers on NVIDIA DGX Sparks."""

__version__ = "0.2.0"
