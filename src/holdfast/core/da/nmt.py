"""The namespaced Merkle tree of DA-001, as the Celestia NMT specification has it, with 8-byte namespace ids.

A node is 48 bytes: the lowest and the highest namespace below it, and a SHA-256. Leaves are in the order of their
namespaces; a tree over n leaves is split at the largest power of two below n, as RFC 6962 does. Celestia's own network
lets the highest namespace of all, its parity shares', not count for a node's range; here there are no such shares and
every namespace counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Final, NewType

NAMESPACE_BYTES: Final = 8
NODE_BYTES: Final = 2 * NAMESPACE_BYTES + 32
_LOW, _HIGH, _HASH = slice(0, 8), slice(8, 16), slice(16, 48)

Namespace = NewType("Namespace", bytes)
Node = NewType("Node", bytes)

EMPTY_ROOT: Final = Node(bytes(2 * NAMESPACE_BYTES) + sha256(b"").digest())


def leaf(namespace: bytes, share: bytes) -> Node:
    """The node of one share; its prefix keeps it from passing for an inner one."""
    return Node(namespace + namespace + sha256(b"\x00" + namespace + share).digest())


def parent(left: bytes, right: bytes) -> Node | None:
    """The node above two neighbours; None where they are out of order, which no honest tree is."""
    if not left[_LOW] <= left[_HIGH] <= right[_LOW] <= right[_HIGH]:
        return None
    return Node(left[_LOW] + right[_HIGH] + sha256(b"\x01" + left + right).digest())


def lowest(node: bytes) -> bytes:
    return node[_LOW]


def highest(node: bytes) -> bytes:
    return node[_HIGH]


class Tree:
    """All nodes over some leaves, level by level: what it takes to answer any question about them.

    Pairing level by level and carrying the odd one up gives the tree of the split at powers of two.
    """

    __slots__ = ("levels",)

    def __init__(self, leaves: Iterable[tuple[bytes, bytes]]) -> None:
        """Of namespaces and shares, in the order of the namespaces."""
        level = [leaf(namespace, share) for namespace, share in leaves]
        if any(one[_LOW] > two[_LOW] for one, two in pairwise(level)):
            raise ValueError("the leaves are not in the order of their namespaces")
        self.levels = _levels(level)

    @classmethod
    def of_one(cls, namespace: bytes, shares: Iterable[bytes]) -> Tree:
        """The tree over the shares of one namespace, a little faster."""
        range_, begun, hashed = namespace + namespace, b"\x00" + namespace, sha256
        tree = cls(())
        tree.levels = _levels([Node(range_ + hashed(begun + share).digest()) for share in shares])
        return tree

    @property
    def total(self) -> int:
        return len(self.levels[0])

    @property
    def root(self) -> Node:
        return self.levels[-1][0] if self.levels[0] else EMPTY_ROOT

    def node(self, low: int, high: int) -> Node:
        """The node over the leaves low ≤ i < high, where the splits make one."""
        level = (high - low - 1).bit_length()
        return self.levels[level][low >> level]


def _levels(level: list[Node]) -> list[list[Node]]:
    found = [level]
    while len(level) > 1:
        level = _above(level)
        found.append(level)
    return found


def _above(level: Sequence[Node]) -> list[Node]:
    hashed = sha256
    pairs = [
        Node(level[i][:8] + level[i + 1][8:16] + hashed(b"\x01" + level[i] + level[i + 1]).digest())
        for i in range(0, len(level) - 1, 2)
    ]
    return pairs + list(level[len(level) & ~1 :])


def half(low: int, high: int) -> int:
    """Where the leaves low ≤ i < high are split: after the largest power of two below their number."""
    return low + (1 << ((high - low - 1).bit_length() - 1))
