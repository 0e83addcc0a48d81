"""Plans varied step by step, for goals that only a simulation knows."""
