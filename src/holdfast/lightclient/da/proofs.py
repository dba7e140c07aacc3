"""Proofs about a namespaced Merkle tree: of a range of leaves, of all leaves of a namespace, or that there are none.

The nodes of a proof are the siblings of the proved leaves' branches, from left to right. As in RFC 6962 a proof binds
leaves to the root; the number of leaves is bound by the commitment to the root (`commitment`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.lightclient.da import nmt
from holdfast.lightclient.da.nmt import NAMESPACE_BYTES, NODE_BYTES, Node, Tree, split_point


class RangeProof(msgspec.Struct, frozen=True, gc=False):
    """That some leaves are at start ≤ i < end."""

    start: int
    end: int
    nodes: tuple[bytes, ...] = ()


class NamespaceProof(msgspec.Struct, frozen=True, gc=False):
    """That the leaves at start ≤ i < end are all of a namespace; or, with a leaf's node instead, that there are none.

    An empty proof shows that the namespace is outside of the root's range.
    """

    start: int = 0
    end: int = 0
    nodes: tuple[bytes, ...] = ()
    leaf: bytes | None = None


# ------------------------------------------------------------------------------------------------ proving


def prove_range(tree: Tree, start: int, end: int) -> RangeProof:
    """The nodes that are needed, besides these leaves, to compute the root."""
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
        middle = split_point(low, high)
        yield from _siblings(tree, start, end, low, middle)
        yield from _siblings(tree, start, end, middle, high)


def _first(tree: Tree, namespace: bytes, *, at_least: bool) -> int:
    """The first leaf whose namespace is at least this one, or above it."""
    low, high = 0, tree.total
    while low < high:
        middle = (low + high) // 2
        at_middle = nmt.lowest(tree.levels[0][middle])
        is_past = at_middle > namespace or (at_least and at_middle == namespace)
        low, high = (low, middle) if is_past else (middle + 1, high)
    return low


# ------------------------------------------------------------------------------------------------ verifying


def verify_range(root: bytes, total: int, namespace: bytes, shares: Sequence[bytes], proof: RangeProof) -> bool:
    """Whether these shares, all of one namespace, are at the proof's position in the tree of that size and root."""
    if len(namespace) != NAMESPACE_BYTES or proof.end - proof.start != len(shares):
        return False
    leaves = [nmt.leaf(namespace, share) for share in shares]
    return _PartialTree(proof.start, leaves, proof.nodes).has_root(root, total)


def verify_namespace(root: bytes, total: int, namespace: bytes, shares: Sequence[bytes], proof: NamespaceProof) -> bool:
    """Whether these are all the shares of a namespace; without shares, whether it has none."""
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
    opened = _PartialTree(proof.start, leaves, proof.nodes)
    return opened.has_root(root, total) and opened.is_complete_for(namespace)


class _PartialTree:
    """A tree with some known neighbouring leaves; of the rest only the nodes beside their branches are known."""

    def __init__(self, start: int, leaves: Sequence[Node], nodes: Sequence[bytes]) -> None:
        self._start, self._end, self._leaves = start, start + len(leaves), leaves
        self._nodes, self._used = nodes, 0
        self._before: list[bytes] = []
        self._after: list[bytes] = []

    def has_root(self, root: bytes, total: int) -> bool:
        if not 0 <= self._start < self._end <= total or not all(map(_is_node, self._nodes)):
            return False
        return self._over(0, total) == root and self._used == len(self._nodes)

    def is_complete_for(self, namespace: bytes) -> bool:
        """Whether all nodes to the left are below the namespace and all to the right above it."""
        return all(nmt.highest(node) < namespace for node in self._before) and all(
            nmt.lowest(node) > namespace for node in self._after
        )

    def _over(self, low: int, high: int) -> Node | None:
        if high <= self._start or self._end <= low:
            return self._beside(self._before if high <= self._start else self._after)
        if high - low == 1:
            return self._leaves[low - self._start]
        middle = split_point(low, high)
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
