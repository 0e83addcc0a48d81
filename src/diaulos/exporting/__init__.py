"""A configuration in the words of other trainers."""
