"""Evidence end to end against a receiver that does the least."""
