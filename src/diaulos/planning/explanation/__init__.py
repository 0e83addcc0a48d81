"""Why a plan is as good as it is, and what else there would be."""
