"""Who says whether a proof is good (PRF-002): methods by name, each outside of the event loop. Read: attested, traps,
recompute, registry, cell.
"""
