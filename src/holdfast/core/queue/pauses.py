"""Kinds of work that an operator has stopped for a while: their jobs are taken in and wait (JOB-008)."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.core.event import Decided, Event
from holdfast.core.refusal import Refused
from holdfast.core.values import EventNo, Kind

REASON_MAX: Final = 256


class PauseKind(msgspec.Struct, frozen=True, gc=False):
    """Give no job of this kind to anybody until it is resumed; leases that live go on."""

    kind: Kind
    reason: str = ""


class ResumeKind(msgspec.Struct, frozen=True, gc=False):
    """Jobs of this kind are given out again."""

    kind: Kind


class KindPaused(Event, frozen=True, tag=55):
    """No job of this kind is given out from here on."""

    kind: Kind
    reason: str
    at_ms: int


class KindResumed(Event, frozen=True, tag=56):
    """Jobs of this kind are given out again."""

    kind: Kind
    at_ms: int


class Paused(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Since when a kind is paused, by which event, and why."""

    event: EventNo
    since_ms: int
    reason: str = ""


class Pausing(Protocol):
    """What is needed of the state."""

    paused: dict[str, Paused]
    last_event: EventNo


def pause(state: Pausing, command: PauseKind, now_ms: int) -> Decided | Refused:
    """Pausing what is paused changes nothing: the first reason stays."""
    if len(command.reason) > REASON_MAX or not command.reason.isprintable():
        return Refused("JOB-008", f"reason: at most {REASON_MAX} printable signs", name="InvalidParams")
    if (known := state.paused.get(command.kind)) is not None:
        return Decided((), since=known.event)
    return Decided((KindPaused(command.kind, command.reason, now_ms),))


def resume(state: Pausing, command: ResumeKind, now_ms: int) -> Decided | Refused:
    if command.kind not in state.paused:
        return Decided((), since=state.last_event)
    return Decided((KindResumed(command.kind, now_ms),))


def apply_paused(state: Pausing, event: KindPaused) -> None:
    state.paused[event.kind.value] = Paused(state.last_event, event.at_ms, event.reason)


def apply_resumed(state: Pausing, event: KindResumed) -> None:
    del state.paused[event.kind.value]
