"""Transition tables: a life is a dictionary from state to what may happen to where it leads, never a ladder of ifs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)
A = TypeVar("A", bound=StrEnum)

Life = Mapping[S, Mapping[A, S]]
"""state → act → next state. A state without acts is an end."""


def step(life: Life[S, A], state: S, act: A) -> S | None:
    """The state after `act`, or None where the table has no such arrow."""
    arrows = life.get(state)
    return arrows.get(act) if arrows else None


def why_not_step(life: Life[S, A], state: S, act: A) -> str | None:
    """A sentence that says why there is no such arrow, None where there is one."""
    arrows = life.get(state, {})
    if act in arrows:
        return None
    if not arrows:
        return f"{state} is final"
    return f"{state} allows {', '.join(sorted(arrows))}, not {act}"


def unreachable(life: Life[S, A], start: S) -> frozenset[S]:
    """States of the table that no path from `start` reaches: a well-made life has none."""
    seen, todo = {start}, [start]
    while todo:
        for target in life.get(todo.pop(), {}).values():
            if target not in seen:
                seen.add(target)
                todo.append(target)
    every = set(life) | {target for arrows in life.values() for target in arrows.values()}
    return frozenset(every - seen)
