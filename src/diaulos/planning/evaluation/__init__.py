"""What a plan costs and which rules it breaks, from the definition, apart from all searches."""
