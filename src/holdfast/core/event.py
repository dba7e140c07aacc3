"""What happened: events, the answer a decision gives, and the batch that makes events durable in a hash chain."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.refusal import Corrupt
from holdfast.core.values import ZERO_DIGEST, BatchNo, Digest, Epoch, EventNo

BATCH_TAG: Final = "holdfast.batch.v1"
PAYLOAD_TAG: Final = "holdfast.payload.v1"


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A fact in the past tense, packed as an array that begins with its tag.

    CAN-005: fields are only ever added at the end, with a default. An older reader skips what it does not know, and
    since batches are kept and copied as the bytes they were sealed with, nothing unknown is ever lost.
    Tags are never used again: 1–15 engine, 16–31 escrow, 32–39 keys, 40–49 chain, 50–69 jobs, 70–79 providers,
    80–89 leases, 90–99 results and evidence.
    """


class OwnershipTaken(Event, frozen=True, tag=1):
    """The first event of every epoch: from here on only this owner's batches count."""

    epoch: Epoch
    owner: str
    door: str = ""
    """Where followers find it to hand on what they may not decide."""
    outage_ms: int = 0
    """How long nobody owned the journal before: from the last reading of the clock that is in it."""
    at_ms: int = 0


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes an event speaks of: inside it when small, else a row of the same transaction (ENG-007)."""

    digest: Digest
    size: int
    inline: bytes | None = None


def digest_of(raw: bytes) -> Digest:
    """What a payload is known by."""
    return H(PAYLOAD_TAG, raw)


def enclose(raw: bytes, inline_bytes_max: int, digest: Digest | None = None) -> tuple[Payload, tuple[Attachment, ...]]:
    """The payload as the event names it, and the row to store beside the batch where it is too large (ENG-007)."""
    digest = digest or digest_of(raw)
    if len(raw) <= inline_bytes_max:
        return Payload(digest, len(raw), raw), ()
    return Payload(digest, len(raw)), (Attachment(digest, raw),)


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """A large payload on its way into its own row."""

    digest: Digest
    raw: bytes


class Decided(msgspec.Struct, frozen=True, gc=False):
    """What a station answers when it does not refuse: the events to record, none where it is already so."""

    events: tuple[Event, ...]
    attachments: tuple[Attachment, ...] = ()
    since: EventNo | None = None
    """Set where the same thing was decided before: the number of the event that did it."""
    preface: int = 0
    """How many events come before the one that answers the command."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The unit of durability (ENG-001): a numbered, dated, hash-chained pack of events under one owner's epoch."""

    number: BatchNo
    epoch: Epoch
    first: EventNo
    last: EventNo
    time_ms: int
    parent: Digest
    body: bytes
    hash: Digest


class Tip(msgspec.Struct, frozen=True, gc=False):
    """The end of a journal: what the next batch must follow."""

    number: BatchNo = BatchNo(0)
    epoch: Epoch = Epoch(0)
    last: EventNo = EventNo(0)
    time_ms: int = 0
    hash: Digest = ZERO_DIGEST


def tip_of(batch: Batch) -> Tip:
    """The journal's end once `batch` is its last one."""
    return Tip(batch.number, batch.epoch, batch.last, batch.time_ms, batch.hash)


def seal(tip: Tip, epoch: Epoch, count: int, time_ms: int, body: bytes) -> Batch:
    """The batch of `count` packed events that follows `tip`."""
    number, first, last = BatchNo(tip.number + 1), EventNo(tip.last + 1), EventNo(tip.last + count)
    return Batch(
        number, epoch, first, last, time_ms, tip.hash, body, _hash(number, epoch, first, last, time_ms, tip.hash, body)
    )


def check_follows(tip: Tip, batch: Batch) -> None:
    """Raise Corrupt unless `batch` is whole and the one that follows `tip` (ENG-001)."""
    if batch.hash != _hash(batch.number, batch.epoch, batch.first, batch.last, batch.time_ms, batch.parent, batch.body):
        raise Corrupt("ENG-001", f"batch {batch.number} does not have the hash it is stored with", _DAMAGE)
    expected = (tip.number + 1, tip.last + 1, tip.hash)
    if (batch.number, batch.first, batch.parent) != expected:
        raise Corrupt("ENG-001", f"batch {batch.number} does not follow batch {tip.number}", _DAMAGE)
    if batch.epoch < tip.epoch or batch.time_ms < tip.time_ms or batch.last < batch.first - 1:
        raise Corrupt("ENG-001", f"batch {batch.number} runs backwards in epoch, time or events", _DAMAGE)


_DAMAGE: Final = "the journal was damaged or changed by hand: restore it from a backup"


def _hash(number: int, epoch: int, first: int, last: int, time_ms: int, parent: bytes, body: bytes) -> Digest:
    return H(BATCH_TAG, number, epoch, first, last, time_ms, parent, body)
