"""A device described by measuring it."""
