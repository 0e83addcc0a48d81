"""Planners to hold the exact one against: PipeDream's, 2BW's, and the one that tries all plans."""
