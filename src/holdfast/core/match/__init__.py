"""Matching (MAT-001 … MAT-007): which provider gets which job.

Read: chance, fairness, fit, supply, takers, merge, tick, decide; then offline and quote, which ask the same elsewhere.
"""

from holdfast.core.match.chance import draws, epoch_id, seed, shuffle

__all__ = ["draws", "epoch_id", "seed", "shuffle"]
