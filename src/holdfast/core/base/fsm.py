"""Transition tables: the life of a record is a dictionary {state: {transition: next state}}, not a ladder of ifs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
T = TypeVar("T", bound=StrEnum)

Transitions = Mapping[S, Mapping[T, S]]
"""state → transition → next state. A state without transitions is final."""


def by_transition(transitions: Transitions[S, T]) -> dict[T, dict[S, S]]:
    """transition → state → next state: the same table for a run of records that make one transition."""
    steps = {step for allowed in transitions.values() for step in allowed}
    return {step: {state: to[step] for state, to in transitions.items() if step in to} for step in steps}


def next_state(transitions: Transitions[S, T], state: S, transition: T) -> S | None:
    """The state after `transition`, or None where the table does not allow it."""
    return transitions.get(state, {}).get(transition)


def why_not_transition(transitions: Transitions[S, T], state: S, transition: T) -> str | None:
    """Why the table does not allow this transition, None where it does."""
    allowed = transitions.get(state, {})
    if transition in allowed:
        return None
    if not allowed:
        return f"{state} is final"
    return f"{state} allows {', '.join(sorted(allowed))}, not {transition}"
