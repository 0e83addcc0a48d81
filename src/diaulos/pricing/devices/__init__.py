"""Seconds that single operations and collectives take on known devices and links."""
