"""Plans, their evaluation, and the planners."""
