"""Matching (MAT-001 … MAT-004): which provider gets which job. Read: chance, fit, decide."""

from holdfast.core.match.chance import draws, epoch_id, seed, shuffle

__all__ = ["draws", "epoch_id", "seed", "shuffle"]
