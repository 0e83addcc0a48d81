"""The exact search: what it searches, how it judges stages, and how it picks a plan."""
