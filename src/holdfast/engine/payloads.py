"""Whether the large payloads that events speak of lie beside their batch, whole (ENG-007)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.core import law
from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG, Attachment, Batch, Event, Payload
from holdfast.core.proof.acts import ProofAccepted
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.ports import Journal


class Spoken(NamedTuple):
    """A payload that an event names by digest only."""

    event: int
    payload: Payload
    is_hot: bool
    """A result's output: the disk has, or had, the same bytes, and retention may have let this row go (RET-002)."""


def spoken_of(first: int, events: Iterable[Event]) -> Iterator[Spoken]:
    """The payloads that must lie beside the batch whose events these are."""
    for number, event in enumerate(events, start=first):
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Payload) and value.inline is None:
                yield Spoken(number, value, isinstance(event, ProofAccepted))


class HotRow(msgspec.Struct, frozen=True, gc=False):
    """The hot bytes of a result, in a row beside the batch that accepted it (TIER-001)."""

    event: EventNo
    batch: BatchNo
    payload: Digest
    digest: Digest
    """Under which the disk has the same bytes."""
    size: int
    with_: frozenset[EventNo]
    """Other results of the batch whose hot bytes are the same row: it goes with the last of them."""
    is_free: bool
    """Nothing but results speaks of the row."""


async def hot_rows(journal: Journal, after: EventNo, until: EventNo) -> AsyncIterator[HotRow]:
    """The hot bytes that the store has of results accepted after one event, up to another, in their order."""
    there: dict[BatchNo, set[Digest]] = {}
    for number, digest, _ in await journal.attached(after, until):
        there.setdefault(number, set()).add(digest)
    if not there:
        return
    async for batch in journal.read(BatchNo(min(there) - 1), max(there)):
        if batch.number in there:
            for row in sorted(_hot_rows_of(batch, there[batch.number]), key=lambda row: row.event):
                if after < row.event <= until:
                    yield row


def _hot_rows_of(batch: Batch, there: set[Digest]) -> Iterator[HotRow]:
    events = law.unpack(batch)
    speaking: dict[Digest, dict[EventNo, bool]] = {}
    for number, payload, is_hot in spoken_of(batch.first, events):
        speaking.setdefault(payload.digest, {})[EventNo(number)] = is_hot
    for payload_digest, them in speaking.items():
        for number, is_hot in them.items():
            event = events[number - batch.first]
            if is_hot and payload_digest in there and isinstance(event, ProofAccepted):
                others = frozenset(them) - {number}
                yield HotRow(number, batch.number, payload_digest, event.digest, event.size, others, all(them.values()))


def without_hot(spoken: Iterable[Spoken], attached: Iterable[Attachment]) -> tuple[list[Spoken], list[int]]:
    """What must be there in any case, and the events whose hot bytes are not there, which may be as it should."""
    there = {each.digest for each in attached}
    needed, missing = list[Spoken](), list[int]()
    for each in spoken:
        if each.is_hot and each.payload.digest not in there:
            missing.append(each.event)
        else:
            needed.append(each)
    return needed, missing


def not_there(spoken: Iterable[Spoken], attached: Iterable[Attachment]) -> Iterator[str]:
    """Which of them are missing or are not the bytes that were meant, each in a few words."""
    raw_of = {each.digest: each.raw for each in attached}
    for number, payload, _ in spoken:
        raw = raw_of.get(payload.digest)
        if raw is None:
            yield f"the payload of event {number} is missing"
        elif len(raw) != payload.size or H(PAYLOAD_TAG, raw) != payload.digest:
            yield f"the payload of event {number} is damaged"
