"""Events as the bytes of journal batches, and back (ENG-001, ENG-003): pack, unpack, fold."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Batch, Event, JournalHead, check_follows, head_of, seal_batch
from holdfast.core.base.values import Term
from holdfast.core.state import State
from holdfast.core.state_machine import EVENTS, apply

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[reduce(or_, EVENTS)]).decode  # type: ignore[misc]


def pack(head: JournalHead, term: Term, events: list[Event], time_ms: int) -> Batch:
    """The events as the batch that follows `head`."""
    return seal_batch(head, term, len(events), time_ms, _pack(events))


def unpack(batch: Batch) -> list[Event]:
    """The events of a batch; unknown fields at an event's end are skipped (CAN-005), an unknown event is Corrupt."""
    try:
        events: list[Event] = _unpack(batch.body)
    except msgspec.DecodeError as fault:
        raise Corrupt(
            "ENG-001", f"batch {batch.number} cannot be read: {fault}", "it may come from a newer version of Holdfast"
        ) from fault
    if len(events) != batch.last - batch.first + 1:
        raise Corrupt("ENG-001", f"batch {batch.number} holds {len(events)} events, not {batch.first}–{batch.last}")
    return events


def fold(state: State, head: JournalHead, batches: Iterable[Batch]) -> JournalHead:
    """ENG-003: check and apply the batches that follow `head`; returns the new head."""
    for batch in batches:
        check_follows(head, batch)
        for event in unpack(batch):
            apply_stored(state, event)
        head = head_of(batch)
    return head


def apply_stored(state: State, event: Event) -> None:
    """Apply an event of the journal; Corrupt where the state does not allow it."""
    try:
        apply(state, event)
    except Corrupt:
        raise
    except Exception as fault:
        raise Corrupt("ENG-001", f"event {state.last_event} cannot have happened: {event!r:.200}") from fault
