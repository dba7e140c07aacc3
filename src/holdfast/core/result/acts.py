"""What can be asked of a result and what then happened: consuming it, once (RES-005)."""

from __future__ import annotations

import msgspec

from holdfast.core.event import Event
from holdfast.core.values import ZERO_DIGEST, AccountId, Digest, EventNo, Height, Kind, TaskId


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What the rows of a result and of its job say, once both are history: none of it changes any more."""

    event: EventNo
    """That accepted the proof."""
    caller: AccountId
    kind: Kind
    earliest: Height
    """Where the receipt allows reading (RES-002)."""
    height: Height = Height(0)
    """Of the block that resolved it, which may still have been open."""


class Consume(msgspec.Struct, frozen=True, gc=False):
    """Mark a result as used. The same transaction again is the same consumption."""

    task_id: TaskId
    caller: AccountId
    tx_hash: Digest
    kept: Kept | None = None
    """Read from rows by whoever asks; it counts only where memory has let the result go."""


class ResultConsumed(Event, frozen=True, tag=120):
    """A result was used by its job's caller, in the open block: a transaction of the chain (CHN-001)."""

    task_id: TaskId
    caller: AccountId
    tx_hash: Digest
    kind: Kind = Kind.AI
    result: EventNo = EventNo(0)
    """The event that accepted its proof."""
    earliest: Height = Height(0)
    height: Height = Height(0)


class ConsumptionDropped(Event, frozen=True, tag=121):
    """A reorg brought the result into the block of its own consumption: that one counts no longer (RES-002, RES-005).

    Whoever consumed it may do so again, once the result is readable again.
    """

    task_id: TaskId
    caller: AccountId
    event: EventNo
    """The consumption."""


def consumption_key(task_id: TaskId) -> bytes:
    """ENG-005: what stays of a consumption for ever."""
    return b"c" + task_id


def claimed(asked: Consume | ResultConsumed) -> ResultConsumed:
    """What the claim holds of a consumption: who and in which transaction, whatever the height."""
    return ResultConsumed(asked.task_id, asked.caller, asked.tx_hash or ZERO_DIGEST)
