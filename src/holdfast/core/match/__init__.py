"""Matching (MAT-001 … MAT-007): which provider gets which job. A tick decides from the state alone, so that anyone can
replay it.

Read: messages, seed_shuffle, requester_window, eligibility, provider_index, selection, merge, tick, decide.
"""

from holdfast.core.match.seed_shuffle import draws, epoch_id, seed, shuffle

__all__ = ["draws", "epoch_id", "seed", "shuffle"]
