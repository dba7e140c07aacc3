"""How an agent communicates with its node: calls, the work stream, and its evidence."""
