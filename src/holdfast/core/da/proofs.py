"""Proofs about a namespaced Merkle tree: of a range of its leaves, of all leaves of a namespace, of there being none.

The nodes of a proof are the siblings of the opened leaves' branches, from left to right. Like those of RFC 6962 a proof
binds leaves to the root; how many leaves the tree has is bound by whoever vouches for the root (`commit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.core.da import nmt
from holdfast.core.da.nmt import NAMESPACE_BYTES, NODE_BYTES, Node, Tree, half


class RangeProof(msgspec.Struct, frozen=True, gc=False):
    """That some leaves stand at start ≤ i < end."""

    start: int
    end: int
    nodes: tuple[bytes, ...] = ()


class NamespaceProof(msgspec.Struct, frozen=True, gc=False):
    """That the leaves at start ≤ i < end are all of a namespace; or, with a leaf's node instead, that there are none.

    A proof without anything says that the namespace is outside of the root's range.
    """

    start: int = 0
    end: int = 0
    nodes: tuple[bytes, ...] = ()
    leaf: bytes | None = None


# ------------------------------------------------------------------------------------------------ proving


def prove_range(tree: Tree, start: int, end: int) -> RangeProof:
    """What it takes, besides these leaves, to compute the root."""
    if not 0 <= start < end <= tree.total:
        raise IndexError(f"leaves {start} to {end} of {tree.total}")
    return RangeProof(start, end, tuple(_siblings(tree, start, end, 0, tree.total)))


def prove_namespace(tree: Tree, namespace: bytes) -> NamespaceProof:
    """All leaves of a namespace, or that there are none."""
    if not tree.total or not nmt.lowest(tree.root) <= namespace <= nmt.highest(tree.root):
        return NamespaceProof()
    start = _first(tree, namespace, at_least=True)
    end = _first(tree, namespace, at_least=False)
    if start < end:
        return NamespaceProof(start, end, prove_range(tree, start, end).nodes)
    return NamespaceProof(start, start + 1, prove_range(tree, start, start + 1).nodes, tree.node(start, start + 1))


def _siblings(tree: Tree, start: int, end: int, low: int, high: int) -> Iterator[bytes]:
    if high <= start or end <= low:
        yield tree.node(low, high)
    elif not start <= low < high <= end:
        middle = half(low, high)
        yield from _siblings(tree, start, end, low, middle)
        yield from _siblings(tree, start, end, middle, high)


def _first(tree: Tree, namespace: bytes, *, at_least: bool) -> int:
    """The first leaf whose namespace is at least this one, or above it."""
    low, high = 0, tree.total
    while low < high:
        middle = (low + high) // 2
        found = nmt.lowest(tree.levels[0][middle])
        low, high = (low, middle) if found > namespace or (at_least and found == namespace) else (middle + 1, high)
    return low


# ------------------------------------------------------------------------------------------------ verifying


def verify_range(root: bytes, total: int, namespace: bytes, shares: Sequence[bytes], proof: RangeProof) -> bool:
    """Whether these shares, all of one namespace, stand where the proof says in the tree of that size and root."""
    if len(namespace) != NAMESPACE_BYTES or proof.end - proof.start != len(shares):
        return False
    leaves = [nmt.leaf(namespace, share) for share in shares]
    return _Opened(proof.start, leaves, proof.nodes).gives(root, total)


def verify_namespace(root: bytes, total: int, namespace: bytes, shares: Sequence[bytes], proof: NamespaceProof) -> bool:
    """Whether these shares are all there are of a namespace; no shares: whether there are none."""
    if len(namespace) != NAMESPACE_BYTES or len(root) != NODE_BYTES:
        return False
    if not total or not nmt.lowest(root) <= namespace <= nmt.highest(root):
        return not shares and proof == NamespaceProof() and (total > 0) == (root != nmt.EMPTY_ROOT)
    if proof.leaf is None:
        leaves = [nmt.leaf(namespace, share) for share in shares]
    elif shares or len(proof.leaf) != NODE_BYTES or not namespace < nmt.lowest(proof.leaf) == nmt.highest(proof.leaf):
        return False
    else:
        leaves = [Node(proof.leaf)]
    if not leaves or proof.end - proof.start != len(leaves):
        return False
    opened = _Opened(proof.start, leaves, proof.nodes)
    return opened.gives(root, total) and opened.is_all_of(namespace)


class _Opened:
    """A tree of which some neighbouring leaves are known, and of the rest only the nodes beside their branches."""

    def __init__(self, start: int, leaves: Sequence[Node], nodes: Sequence[bytes]) -> None:
        self._start, self._end, self._leaves = start, start + len(leaves), leaves
        self._nodes, self._used = nodes, 0
        self._before: list[bytes] = []
        self._after: list[bytes] = []

    def gives(self, root: bytes, total: int) -> bool:
        if not 0 <= self._start < self._end <= total or not all(map(_is_node, self._nodes)):
            return False
        return self._over(0, total) == root and self._used == len(self._nodes)

    def is_all_of(self, namespace: bytes) -> bool:
        """Completeness: what is to the left is all below, what is to the right all above."""
        return all(nmt.highest(node) < namespace for node in self._before) and all(
            nmt.lowest(node) > namespace for node in self._after
        )

    def _over(self, low: int, high: int) -> Node | None:
        if high <= self._start or self._end <= low:
            return self._beside(self._before if high <= self._start else self._after)
        if high - low == 1:
            return self._leaves[low - self._start]
        middle = half(low, high)
        left = self._over(low, middle)
        right = self._over(middle, high) if left is not None else None
        return nmt.parent(left, right) if left is not None and right is not None else None

    def _beside(self, side: list[bytes]) -> Node | None:
        if self._used == len(self._nodes):
            return None
        side.append(self._nodes[self._used])
        self._used += 1
        return Node(side[-1])


def _is_node(node: bytes) -> bool:
    return len(node) == NODE_BYTES and nmt.lowest(node) <= nmt.highest(node)
