"""What a tick of the matcher decides (MAT-001 … MAT-006): from the state alone, so that anyone can replay it.

Seed, counter and time are in the journal before the tick's events: the head, the number of leases granted, the clock
reading of the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import ChainId, Seed
from holdfast.core.job.job_class import denied_until, job_class
from holdfast.core.job.model import Job
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.lease.model import lease_id, lease_ms
from holdfast.core.lease.quorum import holders
from holdfast.core.match import requester_window, seed_shuffle
from holdfast.core.match.eligibility import HasEligibility, allow_deny, price_of
from holdfast.core.match.messages import Match, RequestersCounted
from holdfast.core.match.provider_index import IdleFingerprint, IndexedProvider, ProviderIndex, TickStats
from holdfast.core.match.tick import KIND_INDEX, NO_LIMIT, Tick
from holdfast.core.provider.model import Provider
from holdfast.core.queue.decide import epoch_of
from holdfast.core.queue.quota import units_max, units_used
from holdfast.core.queue.ready_queue import JobShape, task_id_of

NEVER: Final = 2**63


class HasMatching(HasEligibility, Protocol):
    """The parts of the state that this domain reads and changes."""

    provider_index: ProviderIndex


def match(state: HasMatching, command: Match, now_ms: int) -> Decided | Refused:
    """MAT-003 … MAT-005. A job without an eligible provider gives no event, however often it is skipped (MAT-004)."""
    started = command.stopwatch()
    events = run_tick(state, now_ms) if can_assign(state, now_ms) else ()
    if not events:
        return Decided((), repeat_of=state.last_event)
    state.provider_index.last_tick = state.provider_index.last_tick._replace(duration=command.stopwatch() - started)
    return Decided(events)


def replay_tick(state: HasMatching, now_ms: int) -> tuple[Event, ...]:
    """MAT-006: the events that a tick at this time must give, whatever ticks ran before."""
    _refresh_indexes(state, now_ms)
    return run_tick(state, now_ms)


def run_tick(state: HasMatching, now_ms: int) -> tuple[Event, ...]:
    """The events of a tick, over the ready queue and the provider index as refreshed for `now_ms`."""
    policy, seed = state.policy.match, tick_seed(state)
    rules = LiveRules(state, now_ms)
    jobs, epoch = state.queue.jobs, epoch_of(state)
    tick = Tick(state.queue.ready_queue, state.provider_index, rules, policy.order, seed)
    assigned = [
        (jobs[task_id_of(sort_key)], entry.provider)
        for sort_key, entry in tick.run(state.assignments, policy.interleave_every, policy.batch_jobs_max)
    ]
    if len(assigned) < policy.batch_jobs_max:
        rolls_ms = now_ms + policy.requester_window_ms if assigned and requester_window.is_on(policy) else NEVER
        state.provider_index.idle_fingerprint = _idle_fingerprint(
            state, state.assignments + len(assigned), min(rules.until_ms, rolls_ms)
        )
    state.provider_index.last_tick = TickStats(len(assigned), len(tick.starvation_picks))
    events: list[Event] = [_make_assignment(state, job, provider, seed, epoch, now_ms) for job, provider in assigned]
    if assigned and requester_window.is_on(policy):
        counts = Counter(job.caller for job, _ in assigned)
        events.append(RequestersCounted(now_ms, now_ms + policy.requester_window_ms, dict(counts)))
    return tuple(events)


def can_assign(state: HasMatching, now_ms: int) -> bool:
    """MAT-007: whether a tick at this time could assign anything."""
    _refresh_indexes(state, now_ms)
    return _has_changed(state, now_ms)


def may_have_work(state: HasMatching, now_ms: int) -> bool:
    """Whether a tick may find work; it compares versions only, and changes nothing.

    The decision has the time of its batch, a little before `now_ms`, and the index must not be ahead of it.
    """
    ready_queue, due_ms = state.queue.ready_queue, state.queue.ready_queue.delayed.earliest()
    if due_ms is not None and due_ms <= now_ms:
        return True
    is_moved = bool(state.changed_providers) or state.provider_index.is_due(state, now_ms)
    return bool(ready_queue.groups) and bool(state.providers) and (is_moved or _has_changed(state, now_ms))


def _has_changed(state: HasMatching, now_ms: int) -> bool:
    """Whether jobs and capacity are there, and something changed since a tick had nothing more to assign."""
    before = state.provider_index.idle_fingerprint
    if not state.queue.ready_queue.groups or not state.provider_index.groups_with_capacity:
        return False
    return (
        before is None
        or now_ms >= before.until_ms
        or before != _idle_fingerprint(state, state.assignments, before.until_ms)
    )


def _refresh_indexes(state: HasMatching, now_ms: int) -> None:
    """Bring both indexes to `now_ms`: promote delayed jobs that are due, update providers that changed or are due."""
    ready_queue, provider_index = state.queue.ready_queue, state.provider_index
    if ready_queue.delayed.buckets:
        ready_queue.promote(state.queue.jobs, now_ms)
    if state.changed_providers or provider_index.is_due(state, now_ms):
        provider_index.refresh(state, now_ms)
    is_by_caller = requester_window.is_on(state.policy.match)
    ready_queue.regroup(state.queue.jobs, is_by_caller=is_by_caller, prices=provider_index.prices)


def _idle_fingerprint(state: HasMatching, assignments: int, until_ms: int) -> IdleFingerprint:
    ended = state.assignments - len(state.leases.by_id)
    return IdleFingerprint(
        index_version=state.provider_index.version,
        queue_version=state.queue.ready_queue.version,
        leases_granted=assignments,
        leases_ended=ended,
        epoch=epoch_of(state),
        paused=tuple(sorted(state.paused)),
        until_ms=until_ms,
    )


def tick_seed(state: HasMatching) -> Seed:
    """MAT-001: the seed, from height and beacon of the head."""
    height, beacon = state.beacon
    return seed_shuffle.seed(ChainId(state.policy.chain_id), epoch_of(state), height, beacon)


class LiveRules:
    """The rules on the live state at `now_ms`; `until_ms` is when their results change by time alone.

    They repeat the filters of `eligibility.why_not_for_job`, in the form that a tick needs; a test holds them equal.
    """

    def __init__(self, state: HasMatching, now_ms: int) -> None:
        self._state, self._now_ms, self._epoch = state, now_ms, epoch_of(state)
        self._units_max = [units_max(kind, state.policy.quota) for kind in KIND_INDEX]
        self.until_ms = NEVER

    def units_left(self, entry: IndexedProvider) -> list[int]:
        quotas, id_ = self._state.quotas, entry.provider.id
        if id_ not in quotas:
            return self._units_max.copy()
        return [self._units_max[at] - units_used(quotas, id_, kind, self._epoch) for kind, at in KIND_INDEX.items()]

    def is_open(self, shape: JobShape) -> bool:
        return shape.kind.value not in self._state.paused

    def provider_filter(self, shape: JobShape) -> Callable[[IndexedProvider], bool] | None:
        denials, klass = self._state.class_denials, job_class(shape.kind, shape.requirements)
        allowed, denied = allow_deny(shape.requirements)
        if shape.parent:
            denied |= holders(self._state, shape.parent)
        if not denials and not denied and allowed is None:
            return None

        def is_accepted(entry: IndexedProvider) -> bool:
            id_ = entry.provider.id
            until_ms = denied_until(denials, id_, klass)
            if self._now_ms < until_ms:
                self.until_ms = min(self.until_ms, until_ms)
                return False
            return id_ not in denied and (allowed is None or id_ in allowed)

        return is_accepted

    def window(self, shape: JobShape) -> tuple[int, int] | None:
        if shape.tier is None:
            return None
        windows, now_ms = self._state.requester_windows, self._now_ms
        rolls_ms = requester_window.next_roll_ms(windows, shape.caller, now_ms)
        if rolls_ms is not None:
            self.until_ms = min(self.until_ms, rolls_ms)
        limit = requester_window.jobs_max(shape.tier, self._state.policy.match)
        return requester_window.jobs_in_window(windows, shape.caller, now_ms), NO_LIMIT if limit is None else limit


def _make_assignment(
    state: HasMatching, job: Job, provider: Provider, seed: Seed, epoch: int, now_ms: int
) -> JobAssigned:
    policy = state.policy.lease
    t_ms = lease_ms(job.kind, policy)
    ends_ms = job.relative_expires_ms or now_ms + max(state.policy.ttl.relative_ms, job.run_ms_max)
    t_deadline_ms, renew_by_ms = now_ms + t_ms, now_ms + t_ms * policy.renew_by_per_mille // 1_000
    return JobAssigned(  # by position: by name takes several times as long, and every job needs it
        lease_id(job.id, provider.id, job.attempts, seed), job.id, provider.id, job.attempts, now_ms, t_deadline_ms,
        renew_by_ms, now_ms + policy.ack_timeout_ms, price_of(provider, job.requirements), ends_ms, job.units, epoch,
    )  # fmt: skip
