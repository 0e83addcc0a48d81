"""What timelines show: the critical path, the bubbles, and where a run differs from its plan."""
