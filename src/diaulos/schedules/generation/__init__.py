"""Schedules from a pipeline's shape: the order of each rank's computations, and all actions."""
