"""What spans several domains, read top to bottom: cancel, complete, roll back, revoke, finalize."""
