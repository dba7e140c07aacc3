"""The proofs of RFC 6962 over leaves that are all in memory; the engine makes them a slice at a time."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.base.merkle import consistency_ranges, inclusion_ranges, root
from holdfast.core.base.values import Digest


def prove_inclusion(leaves: Sequence[bytes], index: int) -> list[Digest]:
    """The hashes that are needed, besides the leaf at `index`, to compute the root."""
    return [root(leaves[each.start : each.stop]) for each in inclusion_ranges(len(leaves), index)]


def prove_consistency(leaves: Sequence[bytes], first_size: int) -> list[Digest]:
    """The tree of the first `first_size` leaves is a prefix of this one."""
    return [root(leaves[each.start : each.stop]) for each in consistency_ranges(len(leaves), first_size)]
