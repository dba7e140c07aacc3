"""A tick of the matcher (MAT-003, MAT-004): the first jobs in order that somebody fits, each to the first who does."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.core.event import Decided, Event
from holdfast.core.job.record import Job
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.lease.ids import lease_id
from holdfast.core.lease.record import Leasing, lease_ms
from holdfast.core.match import chance
from holdfast.core.match.fit import why_not_fit, why_not_listed
from holdfast.core.provider.record import Provider
from holdfast.core.refusal import Refused
from holdfast.core.values import ChainId, Height, Seed


class Match(msgspec.Struct, frozen=True, gc=False):
    """Give waiting jobs to providers. Height and beacon of the head are read from the state (MAT-001)."""


class Seeded(Leasing, Protocol):
    """What this station needs of the state."""

    @property
    def beacon(self) -> tuple[Height, bytes]: ...


def match(state: Seeded, _: Match, now_ms: int) -> Decided | Refused:
    queue, policy = state.queue, state.policy
    queue.line.promote(queue.jobs, now_ms)
    listed = {id_: each for id_, each in state.providers.items() if why_not_listed(each, policy, now_ms) is None}
    if not listed or not queue.line.ready:
        return Decided((), since=state.last_event)
    seed = tick_seed(state)
    order = [msgspec.structs.replace(listed[id_]) for id_ in chance.shuffle(seed, listed)]  # loads change as we go
    events: list[Event] = []
    for job_id in queue.line.in_order():
        job = queue.jobs[job_id]
        taker = next((each for each in order if why_not_fit(each, job, policy) is None), None)
        if taker is not None:
            events.append(_assigned(state, job, taker, seed, now_ms))
            taker.leases += 1
        if len(events) == policy.match.batch_jobs_max:
            break
        if not any(each.leases < each.slots for each in order):
            break
    return Decided(tuple(events), since=None if events else state.last_event)


def tick_seed(state: Seeded) -> Seed:
    """MAT-001: from height and beacon of the head."""
    height, beacon = state.beacon
    policy = state.policy
    return chance.seed(ChainId(policy.chain_id), chance.epoch_id(height, policy.chain.epoch_blocks), height, beacon)


def _assigned(state: Seeded, job: Job, provider: Provider, seed: Seed, now_ms: int) -> JobAssigned:
    policy = state.policy.lease
    t_ms = lease_ms(job.kind, policy)
    name = lease_id(job.id, provider.id, job.attempts, seed)
    marks = (now_ms, now_ms + t_ms, now_ms + t_ms * policy.renew_by_per_mille // 1_000, now_ms + policy.ack_timeout_ms)
    ends_ms = job.relative_expires_ms or now_ms + state.policy.ttl.relative_ms
    return JobAssigned(name, job.id, provider.id, job.attempts, *marks, provider.price, ends_ms)
