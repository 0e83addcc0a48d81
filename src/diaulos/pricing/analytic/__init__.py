"""Seconds and bytes of layers on known devices, from what the layers compute."""
