"""The search for the best order of a batch: a job shop, its bounds, and a proof."""
