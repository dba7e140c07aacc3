"""Availability at the doors (DA-001): what large results are pinned by, and shares of them with their proofs."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.da.commit import namespace_of
from holdfast.core.da.shares import SHARE_BYTES
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.result.record import Result
from holdfast.core.values import Digest, TaskId
from holdfast.doors.desk import Desk, Method, Visitor
from holdfast.doors.methods import results
from holdfast.doors.methods.jobs import OneJob
from holdfast.doors.methods.results import ResultProof, pruned
from holdfast.doors.shelf import Shelved
from holdfast.engine import read
from holdfast.engine.reading import readable

SHARES_MAX: Final = 16
"""A few samples, not the bytes (RPC-002)."""


class SomeShares(msgspec.Struct, frozen=True):
    """Which shares of which result."""

    task_id: TaskId
    start: int
    count: int = 1


class PinnedResult(msgspec.Struct, frozen=True):
    """What a light client needs to draw and check samples of a result."""

    task_id: TaskId
    da_commitment: Digest
    namespace: bytes
    root: bytes
    length: int
    share_bytes: int
    shares: int


class Shares(msgspec.Struct, frozen=True):
    """Shares with the nodes that lead from them to the root."""

    namespace: bytes
    root: bytes
    length: int
    start: int
    shares: list[bytes]
    nodes: list[bytes]


class SharesProof(ResultProof, frozen=True):
    """RES-008, DA-001: the proof of the result, whose leaf has the commitment, and of some shares of its bytes."""

    da: Shares | None = None


async def _pinned(desk: Desk, _: Visitor, asked: OneJob) -> PinnedResult | Refused:
    shelved = await _shelved(desk, asked.task_id)
    if isinstance(shelved, Refused):
        return shelved
    pinned = shelved.pinned
    told = (pinned.commitment, pinned.namespace, pinned.root, pinned.length)
    return PinnedResult(asked.task_id, *told, SHARE_BYTES, pinned.total)


async def _prove(desk: Desk, visitor: Visitor, asked: SomeShares) -> SharesProof | Refused:
    shelved = await _shelved(desk, asked.task_id)
    if isinstance(shelved, Refused):
        return shelved
    total = shelved.pinned.total
    if not 1 <= asked.count <= SHARES_MAX:
        return Refused("RPC-002", f"params: count: 1 to {SHARES_MAX} shares at a time", name="InvalidParams")
    if not 0 <= asked.start < asked.start + asked.count <= total:
        return Refused("DA-001", f"params: start: there are {total} shares, from 0 on", name="InvalidParams")
    proof = await results.METHODS["cap.proveResult"].handle(desk, visitor, OneJob(asked.task_id))
    if not isinstance(proof, ResultProof):
        assert isinstance(proof, Refused)
        return proof
    sample = shelved.sample(asked.start, asked.count)
    pinned = (sample.pinned.namespace, sample.pinned.root, sample.pinned.length)
    return SharesProof(
        **msgspec.structs.asdict(proof), da=Shares(*pinned, sample.start, list(sample.shares), list(sample.nodes))
    )


async def _shelved(desk: Desk, id_: TaskId) -> Shelved | Refused:
    """The bytes of a pinned result, with the tree over them."""
    found = await readable(desk.source, id_)
    if isinstance(found, Refused):
        return found
    if found.da_commitment is None:
        says = f"this result of {found.result_size} bytes is not pinned"
        return Refused("DA-001", says, "only those above policy.result.max_inline_bytes are", "NotFound")
    if (known := desk.shelf.find(found.da_commitment)) is not None:
        return known
    raw = await output_of(desk, found)
    if raw is None:
        return pruned(found)
    made = await desk.shelf.put(namespace_of(found.caller.encode()), raw)
    if made.pinned.commitment != found.da_commitment:
        raise Corrupt("DA-001", f"the bytes of {id_.hex()} do not give the commitment of its record")
    return made


async def output_of(desk: Desk, found: Result) -> bytes | None:
    """A result's bytes, from the store or from the disk."""
    raw = await read.hot_output(desk.source, found)
    if raw is None and desk.blobs is not None:
        raw = await desk.blobs.read(found.result_digest)
    return raw


METHODS: Final[dict[str, Method]] = {
    "da.getPinned": Method("What a large result is pinned by.", OneJob, PinnedResult, _pinned),
    "da.proveShares": Method("Some shares of a large result, with their proof.", SomeShares, SharesProof, _prove),
}
