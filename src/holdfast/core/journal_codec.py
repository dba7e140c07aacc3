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
from holdfast.core.state_machine import EVENTS, apply_all

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
        apply_stored(state, *unpack(batch))
        head = head_of(batch)
    return head


def apply_stored(state: State, *events: Event) -> None:
    """Apply events of the journal; Corrupt where the state does not allow them."""
    try:
        apply_all(state, events)
    except Corrupt:
        raise
    except Exception as fault:
        at = f"from event {state.last_event} on" if len(events) > 1 else f"{events[0]!r:.200}"
        raise Corrupt("ENG-001", f"event {state.last_event} cannot have happened: {at}") from fault
