"""Graphs made smaller before they are searched, by merging layers."""
