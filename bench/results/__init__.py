"""Results: resolving, reading, retention, commitments and reorgs, each against its baseline."""
