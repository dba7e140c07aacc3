"""The state machine: merges what the domains publish, decides commands and applies events. All changes are made here.

A domain publishes `COMMANDS`, `EVENTS` and `CLAIM_KEYS` in its `handlers`; adding one is one line in `_DOMAINS`. What
comes in great numbers it publishes by the run (`COMMAND_RUNS`, `EVENT_RUNS`); a single one is then a run of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Final, TypeVar

from holdfast.core.archive import handlers as archive
from holdfast.core.base.clock_record import RecordTime, TimeRecorded, record_time
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Command, Decided, Event, NeedsClaims, OwnershipTaken
from holdfast.core.base.handlers import Apply, ApplyRun, ClaimKey, Decide, DecideRun, no_effect
from holdfast.core.base.height_bound import AtHeight, why_not_height
from holdfast.core.base.privileged import PrivilegedActRecorded, PrivilegedCommand
from holdfast.core.base.values import EventNo
from holdfast.core.blob import handlers as blob
from holdfast.core.escrow import handlers as escrow
from holdfast.core.evidence import handlers as evidence
from holdfast.core.evidence.dead_letters import resolve_dead_letter
from holdfast.core.evidence.messages import ResolveDeadLetter
from holdfast.core.key import handlers as key
from holdfast.core.lease import handlers as lease
from holdfast.core.lease.apply import credit_outage
from holdfast.core.match import handlers as match
from holdfast.core.policy_change import handlers as policy_change
from holdfast.core.proof import handlers as proof
from holdfast.core.provider import handlers as provider
from holdfast.core.queue import handlers as queue
from holdfast.core.result import handlers as result
from holdfast.core.retention import handlers as retention
from holdfast.core.schedule import handlers as schedule
from holdfast.core.state import State
from holdfast.core.validator import handlers as validator
from holdfast.core.workflows import cancel, complete, finalize, revoke, roll_back, seal
from holdfast.core.workflows.include import TRANSACTIONS, add_transactions

K = TypeVar("K")
V = TypeVar("V")

_DOMAINS: Final = (
    *(key, escrow, provider, queue, lease, match, evidence, proof, validator, result, policy_change, retention),
    *(blob, archive, schedule),
)
_WORKFLOWS: Final = (cancel, complete, revoke, seal, roll_back, finalize)


def _merge(name: str, own: Mapping[K, V]) -> dict[K, V]:
    """The tables of all domains and workflows as one; a message has exactly one owner."""
    merged = dict(own)
    for module in (*_DOMAINS, *_WORKFLOWS):
        table: Mapping[K, V] = getattr(module, name, {})
        assert not merged.keys() & table.keys(), f"{module.__name__}: {merged.keys() & table.keys()} is owned twice"
        merged |= table
    return merged


# ------------------------------------------------------------------------------------------------ commands


def decide_run(state: State, commands: Sequence[Command], now_ms: int) -> list[Answer]:
    """The answers to the first of these commands of one type, at least one; the others are decided once its events are
    applied. No fact of the state changes; indexes and metrics may.

    The last answer can be `NeedsClaims`: that command is decided anew when the engine has loaded the claims.
    """
    command = commands[0]
    if (run := COMMAND_RUNS.get(type(command))) is not None:
        return run(state, commands, now_ms)
    if lacking := state.claims.lacking(claim_keys(state, command)):
        return [NeedsClaims(lacking)]
    return [COMMANDS[type(command)](state, command, now_ms)]


def decide(state: State, command: Command, now_ms: int) -> Decided | Refused:
    """The decision on one command whose claims are loaded."""
    (answer,) = decide_run(state, (command,), now_ms)
    assert not isinstance(answer, NeedsClaims)
    return answer


def claim_keys(state: State, command: Command) -> tuple[bytes, ...]:
    """The claims this command depends on (ENG-005), so that the engine can load old ones before the decision."""
    keys_of = _CLAIM_KEYS.get(type(command))
    return keys_of(state, command) if keys_of else ()


def _decide_at_height(state: State, call: AtHeight, now_ms: int) -> Decided | Refused:
    return why_not_height(state.open_height, call.height) or decide(state, call.command, now_ms)


def _decide_privileged(state: State, commands: Sequence[PrivilegedCommand], now_ms: int) -> list[Answer]:
    """SEC-001: the actor is recorded before the events, in the same batch; without events nothing is recorded.

    A repeat of an earlier command of the run names its event, whose number the records before it have moved.
    """
    kind, answers, moved_by = type(commands[0].command), list[Answer](), list[int]()
    run = list(takewhile(lambda command: type(command.command) is kind, commands))
    for privileged, answer in zip(run, decide_run(state, [each.command for each in run], now_ms), strict=False):
        if not isinstance(answer, Decided):
            answers.append(answer)
        elif answer.events:
            moved_by += [1 + (moved_by[-1] if moved_by else 0)] * len(answer.events)
            recorded = PrivilegedActRecorded(privileged.actor, privileged.method, len(answer.events))
            events, at = (recorded, *answer.events), 1 + answer.answer_index
            answers.append(Decided(events, answer.attachments, answer_index=at))
        else:
            answers.append(_repeat_of_moved(answer, state.last_event, moved_by))
    return answers


def _repeat_of_moved(answer: Decided, before: EventNo, moved_by: Sequence[int]) -> Decided:
    if answer.repeat_of is None or answer.repeat_of <= before:
        return answer
    return Decided((), repeat_of=EventNo(answer.repeat_of + moved_by[answer.repeat_of - before - 1]))


def _decide_dead_letter(state: State, command: ResolveDeadLetter, now_ms: int) -> Decided | Refused:
    """EVD-007: the retried command can be any command; it is decided as if it had just arrived."""
    return resolve_dead_letter(state, command, now_ms, decide)


COMMAND_RUNS: Final[dict[type, DecideRun]] = _merge("COMMAND_RUNS", {PrivilegedCommand: _decide_privileged})
COMMANDS: Final[dict[type, Decide]] = _merge(
    "COMMANDS",
    {
        AtHeight: _decide_at_height,
        ResolveDeadLetter: _decide_dead_letter,
        RecordTime: record_time,
    },
)
COMMANDS.update({kind: roll_back.unless_rolling_back(COMMANDS[kind]) for kind in roll_back.HELD_BACK})
_CLAIM_KEYS: Final[dict[type, ClaimKey]] = _merge(
    "CLAIM_KEYS",
    {
        AtHeight: lambda state, call: claim_keys(state, call.command),
        PrivilegedCommand: lambda state, privileged: claim_keys(state, privileged.command),
        ResolveDeadLetter: lambda state, command: claim_keys(state, command.retry_command),
    },
)

# ------------------------------------------------------------------------------------------------ events


def apply_all(state: State, events: Sequence[Event]) -> None:
    """Give the events the next numbers and apply them, run by run: the only way state changes (ENG-001).

    Runs of one type are independent of how the events were cut into batches and decisions.
    """
    observer, last = state.observer, EventNo(state.last_event + len(events))
    for run, numbers in _runs(events, state.last_event):
        effect, transaction = _EFFECTS[type(run[0])]
        if observer is not None:
            observer.observe(state, run)
        effect(state, run, numbers)
        state.last_event = numbers[-1]
        if transaction is not None:
            add_transactions(state, transaction, run, numbers)
    state.last_event = last


def _runs(events: Sequence[Event], before: EventNo) -> Iterable[tuple[Sequence[Event], Sequence[EventNo]]]:
    """Events of one type with their numbers. Who has asked for each (SEC-001) has no effect and ends no run."""
    numbers: Sequence[Any] = range(before + 1, before + 1 + len(events))
    if len(kinds := set(map(type, events))) == 1:
        return [(events, numbers)]
    pairs: Iterable[tuple[Event, EventNo]] = zip(events, numbers, strict=True)
    if PrivilegedActRecorded in kinds:
        pairs = [pair for pair in pairs if type(pair[0]) is not PrivilegedActRecorded]
    groups = (list(group) for _, group in groupby(pairs, key=lambda pair: type(pair[0])))
    return [([event for event, _ in group], [number for _, number in group]) for group in groups]


def apply(state: State, event: Event) -> None:
    apply_all(state, (event,))


def _one_by_one(effect: Apply) -> ApplyRun:
    def apply_each(state: State, events: Sequence[Event], numbers: Sequence[EventNo]) -> None:
        for number, event in zip(numbers, events, strict=True):
            state.last_event = number
            effect(state, event)

    return apply_each


def _apply_ownership(state: State, event: OwnershipTaken) -> None:
    """LEA-008: leases are credited the time without an owner of the journal."""
    state.owner = event
    credit_outage(state, event)


_SINGLE: Final[dict[type[Event], Apply]] = _merge(
    "EVENTS", {OwnershipTaken: _apply_ownership, PrivilegedActRecorded: no_effect, TimeRecorded: no_effect}
)
_APPLY: Final = _merge("EVENT_RUNS", {type_: _one_by_one(effect) for type_, effect in _SINGLE.items()})
EVENTS: Final = tuple(_APPLY)
"""Every kind of event that a journal may hold."""
_EFFECTS: Final = {kind: (effect, TRANSACTIONS.get(kind)) for kind, effect in _APPLY.items()}
"""Effect and transaction as one table: every event is looked up here once."""
