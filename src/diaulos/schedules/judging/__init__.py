"""Plans and schedules chosen by simulation."""
