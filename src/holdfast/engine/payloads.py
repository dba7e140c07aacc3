"""Whether the large payloads that events refer to are stored beside their batch, undamaged (ENG-007)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple, get_args

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.canonical import H
from holdfast.core.base.event import PAYLOAD_TAG, Attachment, Batch, Event, PayloadRef
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.core.proof.messages import ProofAccepted
from holdfast.ports import Journal

EVENTS_PER_TURN: Final = 1_024
"""How many events of a batch are searched for payloads before others get a turn of the event loop."""


class ReferencedPayload(NamedTuple):
    """A payload that an event names by digest only."""

    event: int
    payload: PayloadRef
    is_hot: bool
    """A result's output: the warm tier has, or had, the same bytes; retention may have deleted this row (RET-002)."""


def referenced_payloads(first: int, events: Iterable[Event]) -> Iterator[ReferencedPayload]:
    """The payloads that must be stored beside the batch of these events."""
    for number, event in enumerate(events, start=first):
        for name in _payload_fields(type(event)):
            value: PayloadRef | None = getattr(event, name)
            if value is not None and value.inline is None:
                yield ReferencedPayload(number, value, isinstance(event, ProofAccepted))


@cache
def _payload_fields(kind: type[Event]) -> tuple[str, ...]:
    fields = msgspec.structs.fields(kind)
    return tuple(field.name for field in fields if PayloadRef in (field.type, *get_args(field.type)))


class HotRow(msgspec.Struct, frozen=True, gc=False):
    """The hot bytes of a result, in a row beside the batch that accepted it (TIER-001)."""

    event: EventNo
    batch: BatchNo
    payload: Digest
    digest: Digest
    """The warm tier has the same bytes under this digest."""
    size: int
    shared_with: frozenset[EventNo]
    """Other results of the batch that use the same row: it is deleted with the last of them."""
    is_output_only: bool
    """Only results refer to the row."""


async def hot_rows(journal: Journal, after: EventNo, until: EventNo) -> AsyncIterator[HotRow]:
    """The hot bytes that the store has of results accepted after one event, up to another, in their order."""
    stored: dict[BatchNo, set[Digest]] = {}
    for number, digest, _ in await journal.stored_payloads(after, until):
        stored.setdefault(number, set()).add(digest)
    if not stored:
        return
    async for batch in journal.read(BatchNo(min(stored) - 1), max(stored)):
        if batch.number in stored:
            for row in await _hot_rows_of(batch, stored[batch.number], range(after + 1, until + 1)):
                yield row


async def _hot_rows_of(batch: Batch, stored: set[Digest], wanted: range) -> list[HotRow]:
    """Those of one batch that are wanted; all its events are searched, since several may refer to one row."""
    events = journal_codec.unpack(batch)
    references: dict[Digest, dict[EventNo, bool]] = {}
    for start in range(0, len(events), EVENTS_PER_TURN):
        for number, payload, is_hot in referenced_payloads(
            batch.first + start, events[start : start + EVENTS_PER_TURN]
        ):
            if payload.digest in stored:
                references.setdefault(payload.digest, {})[EventNo(number)] = is_hot
        await asyncio.sleep(0)
    rows = [
        _hot_row(batch, number, events[number - batch.first], payload_digest, by_event)
        for payload_digest, by_event in references.items()
        for number, is_hot in by_event.items()
        if is_hot and number in wanted
    ]
    return sorted(rows, key=lambda row: row.event)


def _hot_row(
    batch: Batch, number: EventNo, event: Event, payload_digest: Digest, by_event: dict[EventNo, bool]
) -> HotRow:
    assert isinstance(event, ProofAccepted)
    return HotRow(
        event=number,
        batch=batch.number,
        payload=payload_digest,
        digest=event.digest,
        size=event.size,
        shared_with=frozenset(by_event) - {number},
        is_output_only=all(by_event.values()),
    )


def split_missing_hot(
    references: Iterable[ReferencedPayload], attached: Iterable[Attachment]
) -> tuple[list[ReferencedPayload], list[int]]:
    """The payloads that must be stored, and the events whose hot output is missing, which retention may explain."""
    stored = {each.digest for each in attached}
    needed, missing = list[ReferencedPayload](), list[int]()
    for each in references:
        if each.is_hot and each.payload.digest not in stored:
            missing.append(each.event)
        else:
            needed.append(each)
    return needed, missing


def missing_payloads(references: Iterable[ReferencedPayload], attached: Iterable[Attachment]) -> Iterator[str]:
    """One sentence for each payload that is missing or damaged."""
    raw_of = {each.digest: each.raw for each in attached}
    for number, payload, _ in references:
        raw = raw_of.get(payload.digest)
        if raw is None:
            yield f"the payload of event {number} is missing"
        elif len(raw) != payload.size or H(PAYLOAD_TAG, raw) != payload.digest:
            yield f"the payload of event {number} is damaged"
