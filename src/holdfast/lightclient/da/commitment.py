"""The commitment of a large result (DA-001): it binds the bytes, their number, and the namespace of their caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.values import Digest
from holdfast.lightclient.da.nmt import NAMESPACE_BYTES, NODE_BYTES, Namespace, Node, Tree
from holdfast.lightclient.da.proofs import NamespaceProof, RangeProof, prove_range, verify_namespace, verify_range
from holdfast.lightclient.da.shares import SHARE_BYTES, share_count, split, why_not_shares

COMMITMENT_TAG: Final = "holdfast.da.v1"
NAMESPACE_TAG: Final = "holdfast.ns.v1"


def namespace_of(caller: bytes) -> Namespace:
    """The caller's namespace: the first 8 bytes of a hash of the caller."""
    return Namespace(H(NAMESPACE_TAG, caller)[:NAMESPACE_BYTES])


class DaCommitment(msgspec.Struct, frozen=True, gc=False):
    """What the commitment is made of: enough to check any part of the bytes."""

    namespace: bytes
    root: bytes
    length: int

    @property
    def digest(self) -> Digest:
        return H(COMMITMENT_TAG, self.namespace, self.root, SHARE_BYTES, self.length)

    @property
    def total(self) -> int:
        """How many shares there are: bound by the commitment through the length."""
        return share_count(self.length)


def tree_of(namespace: bytes, raw: bytes) -> Tree:
    return Tree.of_namespace(namespace, split(raw))


def commit(namespace: bytes, raw: bytes) -> DaCommitment:
    """The commitment to these bytes; there is at least one."""
    if not raw or len(namespace) != NAMESPACE_BYTES:
        raise ValueError("committed bytes are not empty, and their namespace has 8 bytes")
    return DaCommitment(namespace, tree_of(namespace, raw).root, len(raw))


def commitment_of(caller: bytes, raw: bytes) -> Digest:
    """DA-001: the digest in the record and the leaf of a large result. It takes 5 ms per MiB: not in the loop."""
    return commit(namespace_of(caller), raw).digest


class Sample(msgspec.Struct, frozen=True, gc=False):
    """Some shares of committed bytes with the proof of their position."""

    commitment: DaCommitment
    start: int
    shares: tuple[bytes, ...]
    nodes: tuple[bytes, ...]


def take_sample(commitment: DaCommitment, tree: Tree, raw: bytes, start: int, count: int) -> Sample:
    """The shares start ≤ i < start + count, with their proof."""
    at = slice(start * SHARE_BYTES, (start + count) * SHARE_BYTES)
    proof = prove_range(tree, start, start + count)
    return Sample(commitment, start, tuple(split(raw[at])), proof.nodes)


def why_not_commitment(digest: bytes, commitment: DaCommitment) -> str | None:
    """Why this commitment does not have this digest: the first fault; None where it has."""
    if len(commitment.namespace) != NAMESPACE_BYTES or len(commitment.root) != NODE_BYTES:
        return "a namespace has 8 bytes, a root 48"
    if commitment.length < 1:
        return "the commitment is to no bytes"
    return None if commitment.digest == digest else "namespace, root and length do not give the commitment"


def why_not_sample(digest: bytes, sample: Sample) -> str | None:
    """DA-001: why these shares are not part of the committed bytes: the first fault; None where they are."""
    commitment = sample.commitment
    fault = why_not_commitment(digest, commitment) or why_not_shares(sample.shares, sample.start, commitment.length)
    if fault is not None:
        return fault
    proof = RangeProof(sample.start, sample.start + len(sample.shares), sample.nodes)
    if not verify_range(Node(commitment.root), commitment.total, commitment.namespace, sample.shares, proof):
        return "the nodes do not lead from these shares to the root"
    return None


def why_not_bytes(digest: bytes, commitment: DaCommitment, raw: bytes) -> str | None:
    """Why these are not all the committed bytes; None where they are."""
    if (fault := why_not_commitment(digest, commitment)) is not None:
        return fault
    if len(raw) != commitment.length:
        return f"{len(raw)} bytes, not {commitment.length}"
    return None if tree_of(commitment.namespace, raw).root == commitment.root else "the bytes do not give the root"


def why_not_namespace(
    digest: bytes, commitment: DaCommitment, namespace: bytes, shares: Sequence[bytes], proof: NamespaceProof
) -> str | None:
    """Why these are not all the shares of a namespace; without shares, why it is not shown to have none."""
    if (fault := why_not_commitment(digest, commitment)) is not None:
        return fault
    if not verify_namespace(commitment.root, commitment.total, namespace, shares, proof):
        return "the proof does not show that"
    return None
