"""What a large result carries (DA-001): a commitment that binds the bytes, how many they are, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.da.nmt import NAMESPACE_BYTES, NODE_BYTES, Namespace, Node, Tree
from holdfast.core.da.proofs import NamespaceProof, RangeProof, prove_range, verify_namespace, verify_range
from holdfast.core.da.shares import SHARE_BYTES, count_of, split, why_not_shares
from holdfast.core.values import Digest

COMMITMENT_TAG: Final = "holdfast.da.v1"
NAMESPACE_TAG: Final = "holdfast.ns.v1"


def namespace_of(caller: bytes) -> Namespace:
    """Whose bytes these are: the first 8 bytes of a hash of the caller."""
    return Namespace(H(NAMESPACE_TAG, caller)[:NAMESPACE_BYTES])


class Pinned(msgspec.Struct, frozen=True, gc=False):
    """What the commitment is made of: enough to check any part of the bytes."""

    namespace: bytes
    root: bytes
    length: int

    @property
    def commitment(self) -> Digest:
        return H(COMMITMENT_TAG, self.namespace, self.root, SHARE_BYTES, self.length)

    @property
    def total(self) -> int:
        """How many shares there are: bound by the commitment through the length."""
        return count_of(self.length)


def tree_of(namespace: bytes, raw: bytes) -> Tree:
    return Tree.of_one(namespace, split(raw))


def pin(namespace: bytes, raw: bytes) -> Pinned:
    """Pinned bytes; there is at least one."""
    if not raw or len(namespace) != NAMESPACE_BYTES:
        raise ValueError("bytes that are pinned are not empty, and their namespace has 8 bytes")
    return Pinned(namespace, tree_of(namespace, raw).root, len(raw))


def commitment_of(caller: bytes, raw: bytes) -> Digest:
    """DA-001: what the record and the leaf of a pinned result hold. It takes about 5 ms a MiB: not in the loop."""
    return pin(namespace_of(caller), raw).commitment


class Sample(msgspec.Struct, frozen=True, gc=False):
    """Some shares of pinned bytes with the proof that they are where they are said to be."""

    pinned: Pinned
    start: int
    shares: tuple[bytes, ...]
    nodes: tuple[bytes, ...]


def take_sample(pinned: Pinned, tree: Tree, raw: bytes, start: int, count: int) -> Sample:
    """The shares start ≤ i < start + count, with their proof."""
    at = slice(start * SHARE_BYTES, (start + count) * SHARE_BYTES)
    proof = prove_range(tree, start, start + count)
    return Sample(pinned, start, tuple(split(raw[at])), proof.nodes)


def why_not_pinned(commitment: bytes, pinned: Pinned) -> str | None:
    """Whether this is what was committed to; the first thing that is wrong."""
    if len(pinned.namespace) != NAMESPACE_BYTES or len(pinned.root) != NODE_BYTES:
        return "a namespace has 8 bytes, a root 48"
    if pinned.length < 1:
        return "nothing is pinned"
    return None if pinned.commitment == commitment else "namespace, root and length do not give the commitment"


def why_not_sample(commitment: bytes, sample: Sample) -> str | None:
    """DA-001: whether these shares are part of what was committed to; the first thing that is wrong."""
    pinned = sample.pinned
    if no := why_not_pinned(commitment, pinned) or why_not_shares(sample.shares, sample.start, pinned.length):
        return no
    proof = RangeProof(sample.start, sample.start + len(sample.shares), sample.nodes)
    if not verify_range(Node(pinned.root), pinned.total, pinned.namespace, sample.shares, proof):
        return "the nodes do not lead from these shares to the root"
    return None


def why_not_all(commitment: bytes, pinned: Pinned, raw: bytes) -> str | None:
    """Whether these are all the bytes that were committed to."""
    if no := why_not_pinned(commitment, pinned):
        return no
    if len(raw) != pinned.length:
        return f"{len(raw)} bytes, not {pinned.length}"
    return None if tree_of(pinned.namespace, raw).root == pinned.root else "the bytes do not give the root"


def why_not_namespace(
    commitment: bytes, pinned: Pinned, namespace: bytes, shares: Sequence[bytes], proof: NamespaceProof
) -> str | None:
    """Whether these are all the shares of a namespace among what was committed to; none: that it has none."""
    if no := why_not_pinned(commitment, pinned):
        return no
    if not verify_namespace(pinned.root, pinned.total, namespace, shares, proof):
        return "the proof does not show that"
    return None
