"""Merkle trees as RFC 6962 §2.1 defines them, so that any verifier of that RFC checks our proofs.

Leaves are bytes, hashes are SHA-256, and a proof is the list of sibling hashes from the leaf upwards. Verification
follows RFC 9162 §2.1.3.2 and §2.1.4.2. A proof binds the leaf to the root; the size of the tree is bound by the
signature of the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from holdfast.core.base.values import Digest

EMPTY_ROOT: Final = Digest(sha256(b"").digest())
HASH_BYTES: Final = 32


def leaf_hash(leaf: bytes) -> Digest:
    """The hash of one leaf; the prefix 0 separates leaves from inner nodes."""
    return sha256(b"\x00" + leaf).digest()  # type: ignore[return-value]  # a call of `Digest` takes time


def node_hash(left: bytes, right: bytes) -> Digest:
    return Digest(sha256(b"\x01" + left + right).digest())


# ------------------------------------------------------------------------------------------------ trees


def root(leaves: Iterable[bytes]) -> Digest:
    """MTH of RFC 6962 §2.1: the root over these leaves."""
    tree = Frontier()
    tree.extend(map(leaf_hash, leaves))
    return tree.root()


def inclusion_ranges(size: int, index: int) -> list[range]:
    """PATH of RFC 6962 §2.1.1: the ranges of leaves whose roots, besides the leaf at `index`, give the tree's root."""
    if not 0 <= index < size:
        raise IndexError(f"leaf {index} of {size}")
    start, stop, path = 0, size, list[range]()
    while stop - start > 1:
        middle = start + largest_power_of_two_below(stop - start)
        path.append(range(middle, stop) if index < middle else range(start, middle))
        start, stop = (start, middle) if index < middle else (middle, stop)
    return path[::-1]


def consistency_ranges(size: int, first_size: int) -> list[range]:
    """PROOF of RFC 6962 §2.1.2: the ranges of leaves whose roots prove that the first `first_size` are a prefix.

    The RFC starts at size 1; the empty tree is a prefix of every tree, so its proof is empty.
    """
    if not 0 <= first_size <= size:
        raise IndexError(f"the first {first_size} of {size} leaves")
    start, stop, path = 0, size, list[range]()
    while 0 < first_size < stop:
        middle = start + largest_power_of_two_below(stop - start)
        path.append(range(middle, stop) if first_size <= middle else range(start, middle))
        start, stop = (start, middle) if first_size <= middle else (middle, stop)
    if start:  # a verifier that knows the first root needs no hash for it
        path.append(range(start, stop))
    return path[::-1]


def largest_power_of_two_below(size: int) -> int:
    """Where a tree of `size` leaves is split."""
    return 1 << ((size - 1).bit_length() - 1)


# ------------------------------------------------------------------------------------------------ verification


def verify_inclusion(root: bytes, leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bool:
    """RFC 9162 §2.1.3.2: whether `leaf` is at `index` in the tree of that size and root."""
    return root_from_inclusion(leaf, index, size, path) == root


def root_from_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> Digest | None:
    """The root of the tree of that size in which this path leads up from `leaf` at `index`; None where none has it."""
    if not 0 <= index < size or not _are_hashes(path):
        return None
    fn, sn, r = index, size - 1, leaf_hash(leaf)
    for p in path:
        if sn == 0:
            return None
        if fn & 1 or fn == sn:
            r = node_hash(p, r)
            fn, sn = _climb(fn, sn)
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    return r if sn == 0 else None


def verify_consistency(
    first_size: int, first_root: bytes, second_size: int, second_root: bytes, path: Sequence[bytes]
) -> bool:
    """RFC 9162 §2.1.4.2: whether the first tree is a prefix of the second."""
    if not 0 <= first_size <= second_size or not _are_hashes(path):
        return False
    if first_size == second_size:
        return not path and first_root == second_root and (first_size > 0 or first_root == EMPTY_ROOT)
    if first_size == 0:
        return not path and first_root == EMPTY_ROOT
    if not path:
        return False
    fn, sn = first_size - 1, second_size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    # After the shift fn is 0 exactly where first_size is a power of two: then the path starts at the first root itself.
    full_path = list(path) if fn else [first_root, *path]
    fr = sr = full_path[0]
    for c in full_path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node_hash(c, fr), node_hash(c, sr)
            fn, sn = _climb(fn, sn)
        else:
            sr = node_hash(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == first_root and sr == second_root


def _climb(fn: int, sn: int) -> tuple[int, int]:
    """Skip the levels on which a last, odd node is carried up without a sibling."""
    while fn and not fn & 1:
        fn, sn = fn >> 1, sn >> 1
    return fn, sn


def _are_hashes(path: Sequence[bytes]) -> bool:
    return all(len(step) == HASH_BYTES for step in path)


# ------------------------------------------------------------------------------------------------ a growing log


class Frontier(msgspec.Struct, gc=False):
    """The right edge of a tree that only grows: one hash per set bit of `size`, largest subtree first.

    This is enough to append and to compute the root, whatever the number of leaves: at most 40 hashes below 2⁴⁰ leaves.
    """

    size: int = 0
    peaks: list[Digest] = []

    def append(self, leaf_hash: Digest) -> None:
        self.extend((leaf_hash,))

    def extend(self, leaf_hashes: Iterable[Digest]) -> None:
        """Add the hashes of the next leaves: each merges with every full subtree it completes."""
        size, peaks = self.size, self.peaks
        for leaf_hash in leaf_hashes:
            carried, above = leaf_hash, size
            while above & 1:
                carried = sha256(b"\x01" + peaks.pop() + carried).digest()  # type: ignore[assignment]  # `node_hash`
                above >>= 1
            peaks.append(carried)
            size += 1
        self.size = size

    def root(self) -> Digest:
        """The root over all leaves so far."""
        if not self.peaks:
            return EMPTY_ROOT
        right = self.peaks[-1]
        for left in reversed(self.peaks[:-1]):
            right = node_hash(left, right)
        return right
