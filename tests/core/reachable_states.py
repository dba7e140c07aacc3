"""A transition table without dead ends: every state is reached from the first one."""

from __future__ import annotations

from holdfast.core.base.fsm import S, T, Transitions


def unreachable_states(transitions: Transitions[S, T], start: S) -> frozenset[S]:
    """States of the table that no path from `start` reaches: a correct table has none."""
    seen, todo = {start}, [start]
    while todo:
        for target in transitions.get(todo.pop(), {}).values():
            if target not in seen:
                seen.add(target)
                todo.append(target)
    states = set(transitions) | {target for allowed in transitions.values() for target in allowed.values()}
    return frozenset(states - seen)
