"""A result as it is kept: the record of the source (RES-003), and the leaf that stays for ever (RES-008)."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.core.canon import packed_int
from holdfast.core.chain.blocks import Linked
from holdfast.core.lease.record import Leasing
from holdfast.core.values import AccountId, Digest, EventNo, Height, Kind, ProviderId, TaskId


class ResultStatus(StrEnum):
    """Where a result is (RES-003). A record is UNLINKED or RESOLVED; the others are what is shown of it."""

    UNLINKED = "UNLINKED"
    """Its block was taken back; the proof waits for the next one."""
    RESOLVED = "RESOLVED"
    CONSUMED = "CONSUMED"
    """There is a consumption of it, which is a record of its own."""
    PENDING = "PENDING"
    EXPIRED = "EXPIRED"
    """Both are views of a job without a result."""


class Result(msgspec.Struct, array_like=True, gc=False):
    """One result; a row of the table `result`, whose key is the event that accepted its proof."""

    event: EventNo
    task_id: TaskId
    status: ResultStatus
    height_resolved: Height
    proof_nullifier: Digest
    result_digest: Digest
    result_size: int
    mime_type: str
    da_commitment: Digest | None
    expires_at: Height
    leaf_index: int
    provider_id: ProviderId
    payee: AccountId
    charged: int
    method: str
    reasons: str
    caller: AccountId = AccountId("")
    """Of its job, which may have left its row before the result does; empty in results of the first version."""
    kind: str = ""
    earliest: Height = Height(0)
    """Where the receipt allows reading (RES-002)."""


class Consumption(msgspec.Struct, array_like=True, gc=False):
    """That a result was used (RES-005); a row of the table `consumption`, whose key is that of the result's row."""

    result: EventNo
    event: EventNo
    task_id: TaskId
    caller: AccountId
    kind: Kind
    tx_hash: Digest
    earliest: Height
    """The receipt's earliest height: a reorg may bring the head below it."""
    height: Height
    """Of the block it is in; 0 where a reorg has taken it back."""


class Leaf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A leaf of the log of all results; a row of the table `leaf`, whose key is its place in the log."""

    place: int
    height: Height
    raw: bytes


class Resolving(Linked, Leasing, Protocol):
    """What this station needs of the state."""

    results: dict[TaskId, Result]
    consumptions: dict[TaskId, Consumption]
    """Those that a reorg could still take back."""
    counts: dict[tuple[str, str], int]
    """How often what happened, by kind: for whoever watches."""


def leaf_of(result: Result) -> bytes:
    """RES-008: all that a light client needs to know of a result, as canonical bytes.

    Every result passes here, again at every reorg: the array and its digests of 32 bytes are put together by hand.
    """
    commitment = _NULL if result.da_commitment is None else _BYTES_32 + result.da_commitment
    digests = (_ARRAY_6, result.task_id, _BYTES_32, result.proof_nullifier, _BYTES_32, result.result_digest)
    return b"".join((*digests, packed_int(result.result_size), commitment, packed_int(result.height_resolved)))


_BYTES_32, _NULL = b"\x58\x20", b"\xf6"
_ARRAY_6 = b"\x86" + _BYTES_32
