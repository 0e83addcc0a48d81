"""Covers of all layers with stages that keep to a threshold and have the best options."""
