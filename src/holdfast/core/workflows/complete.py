"""A completion (RCV-001, PRF-003): submitted by the lease's holder; an accepted proof ends lease and job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided
from holdfast.core.base.handlers import CommandRuns, EventRuns
from holdfast.core.base.values import EventNo, tally
from holdfast.core.lease import apply as lease_apply
from holdfast.core.lease.messages import CompletionSubmitted
from holdfast.core.lease.model import LeaseTransition
from holdfast.core.proof import apply as proof_apply
from holdfast.core.proof.decide import submit_completions
from holdfast.core.proof.messages import ProofAccepted, SubmitCompletion
from holdfast.core.provider.apply import record_completions
from holdfast.core.queue import apply as queue_apply
from holdfast.core.result import apply as result_apply
from holdfast.core.retention.apply import record_recent_digests
from holdfast.core.retention.decide import check_not_being_deleted
from holdfast.core.state import State

LATE_REFUSALS: Final = frozenset({"LeaseLost", "ProofConflict"})


def submit(state: State, commands: Sequence[SubmitCompletion], now_ms: int) -> list[Answer]:
    """RCV-001, RCV-002: a late completion changes no fact; the metrics count it as ignored.

    RES-001: a repeat refers to no bytes any more, so it gets its answer also while these are being deleted.
    """
    answers = submit_completions(state, commands[:1] if state.warm_deletes_pending else commands, now_ms)
    if state.warm_deletes_pending and _is_submission(answers[0]):
        answers = [check_not_being_deleted(state, commands[0]) or answers[0]]
    if late := sum(isinstance(answer, Refused) and answer.name in LATE_REFUSALS for answer in answers):
        result_apply.count_outcome(state, "ignored", "", late)
    return answers


def _is_submission(answer: Answer) -> bool:
    return isinstance(answer, Decided) and any(isinstance(event, CompletionSubmitted) for event in answer.events)


def apply_proofs_accepted(state: State, events: Sequence[ProofAccepted], numbers: Sequence[EventNo]) -> None:
    """PRF-003: lease and job COMPLETED, nullifier reserved, all in one batch; inclusion resolves the results.

    A job by quorum is paid in parts: its event is applied alone.
    """
    accepted = list(zip(numbers, events, strict=True))
    if not any(event.paid for event in events):  # nearly always
        _complete(state, accepted, is_quorum=False)
        return
    for is_quorum, group in groupby(accepted, key=lambda each: bool(each[1].paid)):
        for run in [[each] for each in group] if is_quorum else [list(group)]:
            _complete(state, run, is_quorum=is_quorum)


def _complete(state: State, accepted: Sequence[tuple[EventNo, ProofAccepted]], *, is_quorum: bool) -> None:
    events = [event for _, event in accepted]
    state.last_event = accepted[-1][0]
    if is_quorum:
        proof_apply.apply_quorum_accepted(state, events[0])
    else:
        lease_apply.finish(state, LeaseTransition.COMPLETE, [(event.lease_id, "", event.ended_ms) for event in events])
        queue_apply.complete(state, [(event.task_id, event.ended_ms) for event in events])
        record_completions(state, tally([event.provider_id for event in events]))
    proof_apply.reserve_nullifiers(state, accepted)
    state.results.update((event.task_id, result_apply.make_result(number, event)) for number, event in accepted)
    record_recent_digests(state, accepted)


COMMAND_RUNS: Final[CommandRuns] = {SubmitCompletion: submit}
EVENT_RUNS: Final[EventRuns] = {ProofAccepted: apply_proofs_accepted}
