"""Seconds and bytes of each layer option, and the memory account."""
