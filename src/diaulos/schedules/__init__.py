"""Action lists per rank: generated, checked, simulated."""
