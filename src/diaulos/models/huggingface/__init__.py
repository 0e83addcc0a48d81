"""Hugging Face models as layers that can be trained in stages, and their files."""
