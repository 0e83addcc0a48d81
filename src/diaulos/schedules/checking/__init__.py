"""What the checker knows of a schedule, and each rule that it proves."""
