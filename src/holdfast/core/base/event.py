"""What happened: events, the answer a decision gives, and the batch that makes events durable in a hash chain."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import ZERO_DIGEST, BatchNo, Digest, EventNo, Term

BATCH_TAG: Final = "holdfast.batch.v1"
PAYLOAD_TAG: Final = "holdfast.payload.v1"


class Command(msgspec.Struct, frozen=True, gc=False):
    """A request to the state machine, in the imperative; it is decided, never stored."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A fact in the past tense, packed as an array that begins with its tag.

    CAN-005: fields are only ever added at the end, with a default. An older reader skips what it does not know, and
    since batches are kept and copied as the bytes they were sealed with, nothing unknown is ever lost.
    Tags are never used again: 1–15 engine, 16–31 escrow, 32–39 keys, 40–49 chain, 50–69 jobs, 70–79 providers,
    80–89 leases, 90–99 results and evidence; 100 and above in the order of their introduction. The tag is the event's
    stored name. `public_name` is what clients see: it follows from the class name, and a test pins it.
    """

    public_name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.public_name = cls.__dict__.get("public_name") or cls.__name__[0].lower() + cls.__name__[1:]


class OwnershipTaken(Event, frozen=True, tag=1):
    """The first event of every term: from here on only this owner's batches count."""

    term: Term
    owner: str
    api_address: str = ""
    """Where followers forward what only the owner may decide."""
    outage_ms: int = 0
    """How long the journal had no owner before: the time since its last recorded clock reading."""
    at_ms: int = 0


class PayloadRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes that belong to an event: inside it when small, else a row of the same transaction (ENG-007)."""

    digest: Digest
    size: int
    inline: bytes | None = None


def payload_digest(raw: bytes) -> Digest:
    return H(PAYLOAD_TAG, raw)


def make_payload(
    raw: bytes, inline_bytes_max: int, digest: Digest | None = None
) -> tuple[PayloadRef, tuple[Attachment, ...]]:
    """The payload as the event names it, and the row to store beside the batch where it is too large (ENG-007)."""
    digest = digest or payload_digest(raw)
    if len(raw) <= inline_bytes_max:
        return PayloadRef(digest, len(raw), raw), ()
    return PayloadRef(digest, len(raw)), (Attachment(digest, raw),)


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """A large payload on its way into its own row."""

    digest: Digest
    raw: bytes


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A decision that is not a refusal: the events to record, none where the request is a repeat."""

    events: tuple[Event, ...]
    attachments: tuple[Attachment, ...] = ()
    repeat_of: EventNo | None = None
    """Set where the same thing was decided before: the number of the event that did it."""
    answer_index: int = 0
    """How many events come before the one that answers the command."""


class NeedsClaims(msgspec.Struct, frozen=True, gc=False):
    """No decision yet: these ids may have been claimed long ago, and only the tables know (ENG-005)."""

    keys: tuple[bytes, ...]


Answer = Decided | Refused | NeedsClaims


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The unit of durability (ENG-001): a numbered, dated, hash-chained pack of events of one owner's term."""

    number: BatchNo
    term: Term
    first: EventNo
    last: EventNo
    time_ms: int
    parent: Digest
    body: bytes
    hash: Digest


class JournalHead(msgspec.Struct, frozen=True, gc=False):
    """The end of a journal: what the next batch must follow."""

    number: BatchNo = BatchNo(0)
    term: Term = Term(0)
    last: EventNo = EventNo(0)
    time_ms: int = 0
    hash: Digest = ZERO_DIGEST


def head_of(batch: Batch) -> JournalHead:
    """The journal's end once `batch` is its last one."""
    return JournalHead(batch.number, batch.term, batch.last, batch.time_ms, batch.hash)


def seal_batch(head: JournalHead, term: Term, count: int, time_ms: int, body: bytes) -> Batch:
    """The batch of `count` packed events that follows `head`."""
    number, first, last = BatchNo(head.number + 1), EventNo(head.last + 1), EventNo(head.last + count)
    return Batch(
        number=number,
        term=term,
        first=first,
        last=last,
        time_ms=time_ms,
        parent=head.hash,
        body=body,
        hash=_hash(number, term, first, last, time_ms, head.hash, body),
    )


def check_follows(head: JournalHead, batch: Batch) -> None:
    """Raise Corrupt unless `batch` is intact and follows `head` (ENG-001)."""
    if batch.hash != _hash(batch.number, batch.term, batch.first, batch.last, batch.time_ms, batch.parent, batch.body):
        raise Corrupt("ENG-001", f"batch {batch.number} does not match its stored hash", _DAMAGE)
    expected = (head.number + 1, head.last + 1, head.hash)
    if (batch.number, batch.first, batch.parent) != expected:
        raise Corrupt("ENG-001", f"batch {batch.number} does not follow batch {head.number}", _DAMAGE)
    if batch.term < head.term or batch.time_ms < head.time_ms or batch.last < batch.first - 1:
        raise Corrupt("ENG-001", f"batch {batch.number} runs backwards in term, time or events", _DAMAGE)


_DAMAGE: Final = "the journal was damaged or edited: restore it from a backup"


def _hash(number: int, term: int, first: int, last: int, time_ms: int, parent: bytes, body: bytes) -> Digest:
    return H(BATCH_TAG, number, term, first, last, time_ms, parent, body)
