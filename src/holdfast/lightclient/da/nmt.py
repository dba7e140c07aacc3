"""The namespaced Merkle tree of DA-001, as the Celestia NMT specification defines it, with 8-byte namespace ids.

A node is 48 bytes: the lowest and the highest namespace below it, and a SHA-256. Leaves are in the order of their
namespaces. A tree over n leaves is split at the largest power of two below n, as in RFC 6962. Celestia's own network
ignores the highest namespace, that of its parity shares, in a node's range. Here are no parity shares, so every
namespace counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Final, NewType

from holdfast.core.base.merkle import largest_power_of_two_below

NAMESPACE_BYTES: Final = 8
NODE_BYTES: Final = 2 * NAMESPACE_BYTES + 32
_LOW, _HIGH, _HASH = slice(0, 8), slice(8, 16), slice(16, 48)

Namespace = NewType("Namespace", bytes)
Node = NewType("Node", bytes)

EMPTY_ROOT: Final = Node(bytes(2 * NAMESPACE_BYTES) + sha256(b"").digest())


def leaf(namespace: bytes, share: bytes) -> Node:
    """The node of one share; the prefix 0 separates leaves from inner nodes."""
    return Node(namespace + namespace + sha256(b"\x00" + namespace + share).digest())


def parent(left: bytes, right: bytes) -> Node | None:
    """The node above two neighbours; None where their namespaces are out of order."""
    if not left[_LOW] <= left[_HIGH] <= right[_LOW] <= right[_HIGH]:
        return None
    return Node(left[_LOW] + right[_HIGH] + sha256(b"\x01" + left + right).digest())


def lowest(node: bytes) -> bytes:
    return node[_LOW]


def highest(node: bytes) -> bytes:
    return node[_HIGH]


class Tree:
    """All nodes over some leaves, level by level: enough to make any proof about them.

    Pairing level by level and carrying the odd node up gives the same tree as splitting at powers of two.
    """

    __slots__ = ("levels",)

    def __init__(self, leaves: Iterable[tuple[bytes, bytes]]) -> None:
        """Of namespaces and shares, in the order of the namespaces."""
        level = [leaf(namespace, share) for namespace, share in leaves]
        if any(one[_LOW] > two[_LOW] for one, two in pairwise(level)):
            raise ValueError("the leaves are not in the order of their namespaces")
        self.levels = _levels(level)

    @classmethod
    def of_namespace(cls, namespace: bytes, shares: Iterable[bytes]) -> Tree:
        """The tree over the shares of one namespace, a little faster than the constructor."""
        range_, prefix, hashed = namespace + namespace, b"\x00" + namespace, sha256
        tree = cls(())
        tree.levels = _levels([Node(range_ + hashed(prefix + share).digest()) for share in shares])
        return tree

    @property
    def total(self) -> int:
        return len(self.levels[0])

    @property
    def root(self) -> Node:
        return self.levels[-1][0] if self.levels[0] else EMPTY_ROOT

    def node(self, low: int, high: int) -> Node:
        """The node over the leaves low ≤ i < high, for a range that the splits produce."""
        level = (high - low - 1).bit_length()
        return self.levels[level][low >> level]


def _levels(level: list[Node]) -> list[list[Node]]:
    levels = [level]
    while len(level) > 1:
        level = _parents(level)
        levels.append(level)
    return levels


def _parents(level: Sequence[Node]) -> list[Node]:
    hashed = sha256
    pairs = [
        Node(level[i][:8] + level[i + 1][8:16] + hashed(b"\x01" + level[i] + level[i + 1]).digest())
        for i in range(0, len(level) - 1, 2)
    ]
    return pairs + list(level[len(level) & ~1 :])


def split_point(low: int, high: int) -> int:
    """Where the leaves low ≤ i < high are split: after the largest power of two below their number."""
    return low + largest_power_of_two_below(high - low)
