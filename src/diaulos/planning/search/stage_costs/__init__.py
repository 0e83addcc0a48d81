"""What every possible stage costs, before its options are chosen."""
