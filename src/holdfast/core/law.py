"""The one table from command to station and from event to effect; everything that decides passes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from holdfast.core.escrow import acts as money
from holdfast.core.escrow import apply as move
from holdfast.core.escrow import decide as may
from holdfast.core.event import Batch, Decided, Event, OwnershipTaken, Tip, check_follows, seal, tip_of
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.state import State
from holdfast.core.values import Epoch, EventNo

Command = money.Mint | money.Reserve | money.Charge | money.Refund | money.Finalize | money.RollBack

_DECIDE: Final[dict[type, Callable[[State, Any, int], Decided | Refused]]] = {
    money.Mint: may.mint,
    money.Reserve: may.reserve,
    money.Charge: may.charge,
    money.Refund: may.refund,
    money.Finalize: may.finalize,
    money.RollBack: may.roll_back,
}

_APPLY: Final[dict[type[Event], Callable[[State, Any], None]]] = {
    OwnershipTaken: lambda state, event: setattr(state, "owner", event),
    money.Minted: move.apply_minted,
    money.Reserved: move.apply_reserved,
    money.Charged: move.apply_charged,
    money.Refunded: move.apply_refunded,
    money.Finalized: move.apply_finalized,
    money.Undone: move.apply_undone,
}

_CLAIM_KEY: Final[dict[type, Callable[[State, Any], bytes | None]]] = {
    money.Mint: lambda _, command: money.mint_key(command),
    money.Reserve: lambda _, command: money.hold_key(command),
    money.Charge: may.settlement_asked_for,
    money.Refund: may.settlement_asked_for,
}

EVENTS: Final = tuple(_APPLY)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[reduce(or_, EVENTS)]).decode  # type: ignore[misc]


def decide(state: State, command: Command, now_ms: int) -> Decided | Refused:
    """What the rules say to this command now; nothing has changed yet."""
    return _DECIDE[type(command)](state, command, now_ms)


def claim_key(state: State, command: Command) -> bytes | None:
    """The claim this command depends on (ENG-005), so that the engine can recall an old one before the decision."""
    key = _CLAIM_KEY.get(type(command))
    return key(state, command) if key else None


def apply(state: State, event: Event) -> None:
    """Give the event the next number and let it take effect: the only way state changes (ENG-001)."""
    state.last_event = EventNo(state.last_event + 1)
    _APPLY[type(event)](state, event)


def pack(tip: Tip, epoch: Epoch, events: list[Event], time_ms: int) -> Batch:
    """The events as the batch that follows `tip`."""
    return seal(tip, epoch, len(events), time_ms, _pack(events))


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


def fold(state: State, tip: Tip, batches: Iterable[Batch]) -> Tip:
    """ENG-003: check and apply the batches that follow `tip`; returns the new one."""
    for batch in batches:
        check_follows(tip, batch)
        for event in unpack(batch):
            try:
                apply(state, event)
            except Corrupt:
                raise
            except Exception as fault:
                raise Corrupt("ENG-001", f"event {state.last_event} cannot have happened: {event!r:.200}") from fault
        tip = tip_of(batch)
    return tip
