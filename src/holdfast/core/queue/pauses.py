"""Kinds of jobs that an operator has paused: they are admitted and wait (JOB-008)."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Decided, Event
from holdfast.core.base.values import EventNo, Kind

REASON_MAX: Final = 256


class PauseKind(Command, frozen=True):
    """Assign no job of this kind until it is resumed; live leases continue."""

    kind: Kind
    reason: str = ""


class ResumeKind(Command, frozen=True):
    """Assign jobs of this kind again."""

    kind: Kind


class KindPaused(Event, frozen=True, tag=55):
    """No job of this kind is assigned from now on."""

    kind: Kind
    reason: str
    at_ms: int


class KindResumed(Event, frozen=True, tag=56):
    """Jobs of this kind are assigned again."""

    kind: Kind
    at_ms: int


class Paused(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Since when a kind is paused, by which event, and why."""

    event: EventNo
    since_ms: int
    reason: str = ""


class HasPauses(Protocol):
    """The parts of the state that this module reads and changes."""

    paused: dict[str, Paused]
    last_event: EventNo


def pause(state: HasPauses, command: PauseKind, now_ms: int) -> Decided | Refused:
    """Pausing a paused kind changes nothing: the first reason stays."""
    if len(command.reason) > REASON_MAX or not command.reason.isprintable():
        return Refused("JOB-008", f"reason: at most {REASON_MAX} printable characters", name="InvalidParams")
    if (known := state.paused.get(command.kind)) is not None:
        return Decided((), repeat_of=known.event)
    return Decided((KindPaused(command.kind, command.reason, now_ms),))


def resume(state: HasPauses, command: ResumeKind, now_ms: int) -> Decided | Refused:
    if command.kind not in state.paused:
        return Decided((), repeat_of=state.last_event)
    return Decided((KindResumed(command.kind, now_ms),))


def apply_kind_paused(state: HasPauses, event: KindPaused) -> None:
    state.paused[event.kind.value] = Paused(state.last_event, event.at_ms, event.reason)


def apply_kind_resumed(state: HasPauses, event: KindResumed) -> None:
    del state.paused[event.kind.value]
