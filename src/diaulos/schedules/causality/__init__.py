"""What must happen before what, on ranks that wait for each other."""
