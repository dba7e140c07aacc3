"""What nodes tell each other about blocks and archives: a follower's side, and the owner's (SYN-001, NTC-004)."""
