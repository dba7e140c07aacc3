"""Sessions of other programs: how they are followed, and how one becomes ours (SP-OWN-001)."""
