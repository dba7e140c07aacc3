"""Random states for the matcher, and any state told in plain values, as the naive reading takes them."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec
from tests.core import naive
from tests.core.match.naive_match import World, priced, some_job, some_provider

from holdfast.core.base.canonical import canonical, decode
from holdfast.core.base.values import ZERO_DIGEST, AccountId, EventNo, Height, Kind, LeaseId, ProviderId, TaskId, Tier
from holdfast.core.job.job_class import denial_key, job_class
from holdfast.core.job.model import Job, JobState
from holdfast.core.job.quorum import Quorum, Vote, replica_ids
from holdfast.core.match.requester_window import RequesterWindow
from holdfast.core.policy import MatchOrder, MatchPolicy, Policy, ProviderPolicy, QuotaPolicy
from holdfast.core.provider.model import Provider, ProviderStatus, split_price
from holdfast.core.queue import priority
from holdfast.core.queue.pauses import Paused
from holdfast.core.queue.quota import Quota, units_used
from holdfast.core.queue.ready_queue import rebuild_ready_queue
from holdfast.core.state import State

NOW_MS: Final = 1_700_000_100_000
CALLERS: Final = ("alice", "bob")


def random_policy(chance: random.Random, order: str) -> Policy:
    has_window = chance.random() < 0.15
    rules = MatchPolicy(
        order=MatchOrder(order),
        interleave_every=chance.choice((0, 1, 2, 3, 20)),
        batch_jobs_max=chance.choice((1, 3, 256, 256, 256)),
        requester_window_ms=60_000 if has_window else 0,
        requester_window_jobs_max=chance.choice((1, 2, 4)) if has_window else 0,
        requester_weight_pro=chance.choice((1, 2)),
        requester_weight_premium=chance.choice((1, 0)),
    )
    units = QuotaPolicy(
        leases_per_provider_max=chance.choice((1, 2, 4, 16)),
        ai_units_per_epoch=chance.choice((3, 6, 100_000)),
        quantum_units_per_epoch=chance.choice((2, 5, 10_000)),
    )
    attestors = ProviderPolicy(
        attestors_required_ai=chance.choice(((), (), (), ("tpm", "sgx"))),
        attestors_required_quantum=chance.choice(((), (), ("lab",))),
    )
    return Policy(match=rules, quota=units, provider=attestors)


def random_state(chance: random.Random, order: str, jobs: int = 10, providers: int = 6) -> State:
    """Anything that a history could have left behind, and some things that none would."""
    state = State(random_policy(chance, order))
    height, beacon = Height(chance.randrange(5_000)), chance.randbytes(32)
    state.chain.head = msgspec.structs.replace(state.chain.head, height=height, beacon=beacon)
    state.assignments = chance.randrange(40)
    for _ in range(chance.randrange(providers + 1)):
        provider = _provider(chance, priced(chance, some_provider(chance)))
        state.providers[provider.id] = provider
        if chance.random() < 0.4:
            epoch = height // 1_800 - chance.choice((0, 0, 0, 1))
            used = [chance.randrange(3) for _ in range(4)]
            state.quotas[provider.id] = Quota(provider.id, max(0, epoch), *used)
    for _ in range(chance.randrange(jobs + 1)):
        job = _job(chance, some_job(chance), state.policy)
        for each in _replicas(chance, state, job) if chance.random() < 0.08 else [job]:
            state.queue.jobs[each.id] = each
        for provider_id in state.providers:
            if chance.random() < 0.08:
                key = denial_key(provider_id, job_class(job.kind, job.requirements))
                state.class_denials[key] = NOW_MS + chance.choice((0, 1, 30_000))
    if chance.random() < 0.1:
        state.paused[chance.choice(list(Kind)).value] = Paused(EventNo(1), 0)
    for caller in CALLERS:
        given = [(NOW_MS + chance.choice((0, 1, 50_000)), chance.randrange(1, 3)) for _ in range(chance.randrange(3))]
        if given:
            state.requester_windows[AccountId(caller)] = RequesterWindow(given)
    state.queue.ready_queue = rebuild_ready_queue(state.queue.jobs.values())
    return state


def _provider(chance: random.Random, described: World) -> Provider:
    told_of = (canonical(described["capabilities"]), described["region"], 0, described["leases_max"])
    attested, beaten = NOW_MS + chance.choice((10**9, -180_000, -179_999)), chance.choice((0, -179_999, -180_000))
    provider = Provider(
        ProviderId(bytes.fromhex(described["provider_id"])), EventNo(1), b"", "", AccountId("p"), *told_of, 0, 0
    )
    provider.attested_until_ms = attested if chance.random() < 0.2 else NOW_MS + 10**9
    provider.heartbeat_ms = NOW_MS + (beaten if chance.random() < 0.2 else -1_000)
    provider.status, provider.stake = ProviderStatus(described["status"]), described["stake"]
    provider.health_ppm, provider.leases = described["health_ppm"], described["leases_active"]
    provider.is_draining = int(chance.random() < 0.05)
    provider.cooling_until_ms = NOW_MS + chance.choice((0, 1)) if chance.random() < 0.1 else 0
    provider.denied_by_list = "deny" if chance.random() < 0.05 else ""
    provider.attestor = chance.choice(("self-signed", "tpm", "sgx", "lab"))
    if chance.random() < 0.7:
        provider.price, provider.prices = split_price(described["price"])
    return provider


def _job(chance: random.Random, described: World, policy: Policy) -> Job:
    size, fee, tier, at_ms = (
        described["size_bytes"],
        described["max_fee"],
        Tier(described["tier"]),
        described["enqueue_ts_ms"],
    )
    rank = priority.sort_priority(fee, size, tier, at_ms, policy.priority)
    who = (
        EventNo(1),
        TaskId(bytes.fromhex(described["job_id"])),
        Kind(described["kind"]),
        AccountId(chance.choice(CALLERS)),
        tier,
    )
    asked = (fee, described["units"], rank, at_ms, NOW_MS + 10**9)
    needs = dict(described["requirements"])
    if chance.random() < 0.1:
        needs[chance.choice(("allow", "deny"))] = [chance.randbytes(32)]
    job = Job(*who, Height(1), ZERO_DIGEST, 0, ZERO_DIGEST, size, ZERO_DIGEST, *asked, canonical(needs), "attested")
    job.not_before_ms = NOW_MS + chance.choice((-1, 0, 1)) if chance.random() < 0.1 else 0
    return job


def _replicas(chance: random.Random, state: State, job: Job) -> list[Job]:
    """A job that counts when several say the same, and those that stand in line for it; some have spoken already."""
    m = chance.randrange(2, 5)
    voters = chance.sample(list(state.providers), min(len(state.providers), chance.randrange(3)))
    votes = [Vote(EventNo(1), at, LeaseId(b""), id_, ZERO_DIGEST, 0, 0) for at, id_ in enumerate(voters)]
    state.quorums[job.id] = Quorum(job.id, 2, m, votes)
    job.quorum_n = 2
    replicas = [msgspec.structs.replace(job, id=id_, parent=job.id) for id_ in replica_ids(job.id, m)]
    job.quorum_m = m
    return [job, *replicas]


# ------------------------------------------------------------------------------------------------ told


def world_of(state: State, now_ms: int) -> World:
    """All that matching may look at, as plain values."""
    policy, (height, beacon) = state.policy, state.beacon
    epoch = height // policy.chain.epoch_blocks
    rules = policy.match
    weights = {
        "FREE": rules.requester_weight_free,
        "PRO": rules.requester_weight_pro,
        "PREMIUM": rules.requester_weight_premium,
    }
    return {
        "seed": naive.h("AICF|match", policy.chain_id, epoch, height, beacon),
        "counter": state.assignments,
        "now_ms": now_ms,
        "policy": {
            "order": str(rules.order),
            "interleave_every": rules.interleave_every,
            "batch": rules.batch_jobs_max,
            "window_jobs": rules.requester_window_jobs_max,
            "weights": weights,
            "attestors": {
                "AI": policy.provider.attestors_required_ai,
                "QUANTUM": policy.provider.attestors_required_quantum,
            },
        },
        "jobs": [
            _job_values(job)
            for job in state.queue.jobs.values()
            if job.state is JobState.QUEUED and not job.quorum_m  # its replicas stand in line for it
        ],
        "providers": [_provider_values(each, state, epoch) for each in state.providers.values()],
        "denials": _denials(state),
        "paused": list(state.paused),
        "holders": {parent: _holders(state, quorum) for parent, quorum in state.quorums.items()},
        "windows": {caller: list(window.entries) for caller, window in state.requester_windows.items()},
    }


def _job_values(job: Job) -> World:
    told: World = {"job_id": job.id, "kind": str(job.kind), "max_fee": job.max_fee, "size_bytes": job.size_bytes}
    told |= {"tier": str(job.tier), "enqueue_ts_ms": job.enqueue_ms, "units": job.units, "caller": job.caller}
    told |= {"parent": job.parent, "shares": job.quorum_n or 1}
    return told | {"requirements": decode(job.requirements), "not_before_ms": job.not_before_ms}


def _holders(state: State, quorum: Quorum) -> set[bytes]:
    held = [lease for lease in state.leases.by_id.values() if state.queue.jobs[lease.job_id].parent == quorum.task_id]
    return {lease.provider_id for lease in held} | {vote.provider_id for vote in quorum.votes}


def _provider_values(provider: Provider, state: State, epoch: int) -> World:
    quota = state.policy.quota
    names = (
        "status",
        "health_ppm",
        "stake",
        "region",
        "denied_by_list",
        "attestor",
        "is_draining",
        "cooling_until_ms",
        "heartbeat_ms",
    )
    told: World = {name: getattr(provider, name) for name in (*names, "attested_until_ms")}
    named: Any = decode(provider.prices) if provider.prices else {}
    told["price"] = {"*": provider.price} | named
    told |= {"provider_id": provider.id, "capabilities": decode(provider.capabilities)}
    told |= {"leases_active": provider.leases, "leases_max": min(provider.slots, quota.leases_per_provider_max)}
    used: dict[str, Any] = {str(kind): units_used(state.quotas, provider.id, kind, epoch) for kind in Kind}
    most = {"AI": quota.ai_units_per_epoch, "QUANTUM": quota.quantum_units_per_epoch}
    return told | {"units_used": used, "units_max": most}


def _denials(state: State) -> dict[tuple[bytes, str, bytes], int]:
    """By provider and what was asked for, whose class the state knows only by its hash."""
    asked = {(job.kind, job.requirements) for job in state.queue.jobs.values()}
    return {
        (id_, str(kind), needs): state.class_denials[key]
        for kind, needs in asked
        for id_ in state.providers
        if (key := denial_key(id_, job_class(kind, needs))) in state.class_denials
    }
