"""A result as the state keeps it: its record (RES-003), its consumption, and its leaf in the log (RES-008)."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from holdfast.core.base.canonical import packed_int
from holdfast.core.base.values import AccountId, Digest, EventNo, Height, Kind, ProviderId, TaskId
from holdfast.core.chain.model import HasChain
from holdfast.core.lease.model import HasLeases


class ResultStatus(StrEnum):
    """The status of a result (RES-003). A record is UNLINKED or RESOLVED; the others are shown to clients only."""

    UNLINKED = "UNLINKED"
    """Its block was rolled back; the proof waits to be included again."""
    RESOLVED = "RESOLVED"
    CONSUMED = "CONSUMED"
    """It has a consumption, which is a separate record."""
    PENDING = "PENDING"
    EXPIRED = "EXPIRED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    """Like PENDING, views of a job without a result: each says how the job ended."""


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
    """Until the chain has reached it, retention keeps this record (RES-003)."""
    leaf_index: int
    provider_id: ProviderId
    payee: AccountId
    charged: int
    method: str
    reasons: str
    caller: AccountId = AccountId("")
    """Of its job, whose row may be purged before the result's."""
    kind: str = ""
    earliest: Height = Height(0)
    """The height from which the receipt allows reading (RES-002)."""
    is_public: int = 0
    """As its job (JOB-010)."""


class Consumption(msgspec.Struct, array_like=True, gc=False):
    """The one use of a result (RES-005); a row of the table `consumption` under the key of the result's row."""

    result: EventNo
    event: EventNo
    task_id: TaskId
    caller: AccountId
    kind: Kind
    tx_hash: Digest
    earliest: Height
    """The receipt's earliest height: a reorg may bring the head below it."""
    height: Height
    """Of the block it is in; 0 after a reorg has rolled it back."""


class LogLeaf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A leaf of the log of all results; a row of the table `leaf` under its position in the log."""

    place: int
    height: Height
    raw: bytes


class HasResults(HasChain, HasLeases, Protocol):
    """The parts of the state that results read and change."""

    results: dict[TaskId, Result]
    consumptions: dict[TaskId, Consumption]
    result_counts: dict[tuple[str, str], int]


def leaf_of(result: Result) -> bytes:
    """RES-008: all that a light client needs to know of a result, as canonical bytes.

    The array and its digests of 32 bytes are written out, because every result needs it, again at every reorg.
    """
    commitment = _NULL if result.da_commitment is None else _BYTES_32 + result.da_commitment
    digests = (_ARRAY_6, result.task_id, _BYTES_32, result.proof_nullifier, _BYTES_32, result.result_digest)
    return b"".join((*digests, packed_int(result.result_size), commitment, packed_int(result.height_resolved)))


_BYTES_32, _NULL = b"\x58\x20", b"\xf6"
_ARRAY_6 = b"\x86" + _BYTES_32
