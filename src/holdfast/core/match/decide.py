"""What a tick of the matcher decides (MAT-001 … MAT-006): from the state alone, so that anybody can decide it again.

Seed, counter and time are in the journal before the tick's events: head, leases given so far, reading of the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from holdfast.core.event import Decided, Event
from holdfast.core.job.klass import denied_until, job_class
from holdfast.core.job.record import Job
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.lease.ids import lease_id
from holdfast.core.lease.quorum import holders
from holdfast.core.lease.record import Leasing, lease_ms
from holdfast.core.match import chance, fairness
from holdfast.core.match.fairness import RequestersCounted, Window
from holdfast.core.match.fit import Offering, epoch_of, wishes
from holdfast.core.match.supply import Seat, Stocked, Supply, Ticked, Tried
from holdfast.core.match.tick import KIND_AT, NO_LIMIT, Tick
from holdfast.core.provider.record import Provider
from holdfast.core.queue.line import Ask, job_at
from holdfast.core.quota import units_max, units_used
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, ChainId, Height, Seed

NEVER: Final = 2**63


def _no_watch() -> int:
    return 0


class Match(msgspec.Struct, frozen=True, gc=False):
    """Give waiting jobs to providers. Height and beacon of the head are read from the state (MAT-001)."""

    watch: Callable[[], int] = _no_watch
    """Measures how long a tick takes; nothing is decided by it."""


class Seeded(Leasing, Offering, Stocked, Protocol):
    """What this station needs of the state."""

    supply: Supply
    windows: dict[AccountId, Window]

    @property
    def beacon(self) -> tuple[Height, bytes]: ...


def match(state: Seeded, command: Match, now_ms: int) -> Decided | Refused:
    """MAT-003 … MAT-005. A job that nobody fits is not written about, however often it is passed over (MAT-004)."""
    began = command.watch()
    events = ticked(state, now_ms) if is_worthwhile(state, now_ms) else ()
    if not events:
        return Decided((), since=state.last_event)
    state.supply.last = state.supply.last._replace(took=command.watch() - began)
    return Decided(events)


def match_again(state: Seeded, now_ms: int) -> tuple[Event, ...]:
    """MAT-006: what a tick at this moment must give, whatever was tried before."""
    _look_around(state, now_ms)
    return ticked(state, now_ms)


def ticked(state: Seeded, now_ms: int) -> tuple[Event, ...]:
    """The events of a tick, over line and supply as they were brought to this moment."""
    policy, seed = state.policy.match, tick_seed(state)
    rules = RulesNow(state, now_ms)
    jobs, epoch = state.queue.jobs, epoch_of(state)
    tick = Tick(state.queue.line, state.supply, rules, policy.order, seed)
    given = [
        (jobs[job_at(place)], seat.provider)
        for place, seat in tick.run(state.assignments, policy.interleave_every, policy.batch_jobs_max)
    ]
    if len(given) < policy.batch_jobs_max:
        rolls_ms = now_ms + policy.requester_window_ms if given and fairness.is_on(policy) else NEVER
        state.supply.tried = _tried(state, state.assignments + len(given), min(rules.until_ms, rolls_ms))
    state.supply.last = Ticked(len(given), len(tick.guarded))
    events: list[Event] = [_assigned(state, job, provider, seed, epoch, now_ms) for job, provider in given]
    if given and fairness.is_on(policy):
        counts = Counter(job.caller for job, _ in given)
        events.append(RequestersCounted(now_ms, now_ms + policy.requester_window_ms, dict(counts)))
    return tuple(events)


def is_worthwhile(state: Seeded, now_ms: int) -> bool:
    """MAT-007: whether a tick at this moment could give anything."""
    _look_around(state, now_ms)
    return _has_changed(state, now_ms)


def is_stirred(state: Seeded, now_ms: int) -> bool:
    """Whether that is worth being asked; it looks at nothing but marks, and changes nothing.

    A decision may be dated a little before `now_ms`, with its batch, and the index must not be ahead of it.
    """
    line, due_ms = state.queue.line, state.queue.line.later.next_ms()
    if due_ms is not None and due_ms <= now_ms:
        return True
    is_moved = bool(state.stale) or state.supply.is_due(state, now_ms)
    return bool(line.groups) and bool(state.providers) and (is_moved or _has_changed(state, now_ms))


def _has_changed(state: Seeded, now_ms: int) -> bool:
    """Whether there is somebody, and something that was not there when a tick had nothing more to give."""
    before = state.supply.tried
    if not state.queue.line.groups or not state.supply.vacant:
        return False
    return before is None or now_ms >= before.until_ms or before != _tried(state, state.assignments, before.until_ms)


def _look_around(state: Seeded, now_ms: int) -> None:
    """Bring line and supply to this moment: retries that are due, providers that changed or whom time has changed."""
    line, supply = state.queue.line, state.supply
    if line.later.buckets:
        line.promote(state.queue.jobs, now_ms)
    if state.stale or supply.is_due(state, now_ms):
        supply.refresh(state, now_ms)
    line.regroup(state.queue.jobs, is_by_caller=fairness.is_on(state.policy.match))


def _tried(state: Seeded, assignments: int, until_ms: int) -> Tried:
    ended = state.assignments - len(state.leases.by_id)
    seen = (state.supply.version, state.queue.line.version, assignments, ended, epoch_of(state))
    return Tried(*seen, tuple(sorted(state.paused)), until_ms)


def tick_seed(state: Seeded) -> Seed:
    """MAT-001: from height and beacon of the head."""
    height, beacon = state.beacon
    policy = state.policy
    return chance.seed(ChainId(policy.chain_id), chance.epoch_id(height, policy.chain.epoch_blocks), height, beacon)


class RulesNow:
    """What the state says of providers and requesters at this moment; notes when that changes by itself."""

    def __init__(self, state: Seeded, now_ms: int) -> None:
        self._state, self._now_ms, self._epoch = state, now_ms, epoch_of(state)
        self._most = [units_max(kind, state.policy.quota) for kind in KIND_AT]
        self.until_ms = NEVER

    def units_left(self, seat: Seat) -> list[int]:
        quotas, id_ = self._state.quotas, seat.provider.id
        if id_ not in quotas:
            return self._most.copy()
        return [self._most[at] - units_used(quotas, id_, kind, self._epoch) for kind, at in KIND_AT.items()]

    def is_open(self, ask: Ask) -> bool:
        return ask.kind.value not in self._state.paused

    def welcome(self, ask: Ask) -> Callable[[Seat], bool] | None:
        denials, klass = self._state.denials, job_class(ask.kind, ask.requirements)
        allowed, denied = wishes(ask.requirements)
        if ask.parent:
            denied |= holders(self._state, ask.parent)
        if not denials and not denied and allowed is None:
            return None

        def is_welcome(seat: Seat) -> bool:
            id_ = seat.provider.id
            until_ms = denied_until(denials, id_, klass)
            if self._now_ms < until_ms:
                self.until_ms = min(self.until_ms, until_ms)
                return False
            return id_ not in denied and (allowed is None or id_ in allowed)

        return is_welcome

    def window(self, ask: Ask) -> tuple[int, int] | None:
        if ask.tier is None:
            return None
        windows, now_ms = self._state.windows, self._now_ms
        rolls_ms = fairness.rolls_ms(windows, ask.caller, now_ms)
        if rolls_ms is not None:
            self.until_ms = min(self.until_ms, rolls_ms)
        may = fairness.most(ask.tier, self._state.policy.match)
        return fairness.used(windows, ask.caller, now_ms), NO_LIMIT if may is None else may


def _assigned(state: Seeded, job: Job, provider: Provider, seed: Seed, epoch: int, now_ms: int) -> JobAssigned:
    policy = state.policy.lease
    t_ms = lease_ms(job.kind, policy)
    name = lease_id(job.id, provider.id, job.attempts, seed)
    marks = (now_ms, now_ms + t_ms, now_ms + t_ms * policy.renew_by_per_mille // 1_000, now_ms + policy.ack_timeout_ms)
    ends_ms = job.relative_expires_ms or now_ms + state.policy.ttl.relative_ms
    return JobAssigned(name, job.id, provider.id, job.attempts, *marks, provider.price, ends_ms, job.units, epoch)
