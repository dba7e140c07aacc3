"""The embedded store: a journal file that is synced at every commit, and a tables file that can be rebuilt."""
