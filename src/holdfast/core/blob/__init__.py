"""Blobs (BLB-001, BLB-002): result bytes, framed and packed, as a block commits to them with KZG.

Core knows what is in a blob, in which block it is, and what became of it; the bytes are on a disk and the KZG work is
done elsewhere. Read: framing, model, messages, decide, apply, invariants.
"""
