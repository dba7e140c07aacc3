"""Methods of proof by name (PRF-002): each decides whether a proof is good, outside of the event loop.

Read in this order: attested · traps · recompute · registry · sandbox.
"""
