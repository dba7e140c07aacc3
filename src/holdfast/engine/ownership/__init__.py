"""Who owns the journal, and whether it still does: heartbeats, pauses, clocks, and replacing an owner that hangs."""
