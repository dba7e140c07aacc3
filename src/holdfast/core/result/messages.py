"""Commands and events of results: a result is consumed once (RES-005)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import ZERO_DIGEST, AccountId, Digest, EventNo, Height, Kind, TaskId
from holdfast.core.result.model import Consumption


class StoredFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts from the rows of a result and its job that have left memory: none of them changes any more."""

    event: EventNo
    """The event that accepted the proof."""
    caller: AccountId
    kind: Kind
    earliest: Height
    """The height from which the receipt allows reading (RES-002)."""
    height: Height = Height(0)
    """Of the block that resolved it, which may still be open."""


class Consume(Command, frozen=True):
    """Consume a result, once. The same transaction again is a repeat."""

    task_id: TaskId
    caller: AccountId
    tx_hash: Digest
    stored: StoredFacts | None = None
    """Read from rows by the caller; used only where the result has left memory."""


class ResultConsumed(Event, frozen=True, tag=120):
    """A result was consumed by its job's caller, in the open block: a transaction of the chain (CHN-001)."""

    public_name: ClassVar = "cap.resultConsumed"

    task_id: TaskId
    caller: AccountId
    tx_hash: Digest
    kind: Kind = Kind.AI
    result: EventNo = EventNo(0)
    """The event that accepted its proof."""
    earliest: Height = Height(0)
    height: Height = Height(0)


class ConsumptionDropped(Event, frozen=True, tag=121):
    """After a reorg the result is not readable where its consumption is included: the consumption is void (RES-005).

    Its caller may consume the result again, once it is readable (RES-002).
    """

    public_name: ClassVar = "cap.consumptionDropped"

    task_id: TaskId
    caller: AccountId
    event: EventNo
    """The consumption."""


def consumption_key(task_id: TaskId) -> bytes:
    """ENG-005: a result is consumed once; the claim stays for ever."""
    return b"c" + task_id


def consumption_claim(consumption: Consume | Consumption) -> ResultConsumed:
    """The content of a consumption's claim: caller and transaction, without the height."""
    return ResultConsumed(consumption.task_id, consumption.caller, consumption.tx_hash or ZERO_DIGEST)
