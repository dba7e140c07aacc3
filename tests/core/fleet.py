"""A fleet of providers that run both kinds of work, and jobs of both for them: for tests of what happens in between."""

from __future__ import annotations

import msgspec
from tests.core.books import DEVELOPMENT
from tests.core.ways import ALICE, YEAR_MS, Way, public

from holdfast.core.canon import canonical
from holdfast.core.event import Event
from holdfast.core.lease.acts import FailLease, Reap
from holdfast.core.policy import ChainPolicy, Policy, ProviderPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.result import result_digest
from holdfast.core.state import State
from holdfast.core.values import AccountId, Amount, ProviderId, TaskId, Tier

CAPABILITIES = canonical(
    {"AI": {"models": ["echo", "other"]}, "QUANTUM": {"gates": ["h", "cx"], "depth_max": 100, "width_max": 10}}
)
PATIENT = ProviderPolicy(
    failures_in_row_max=1_000,
    missed_heartbeat_decay_ppm=0,
    ack_timeout_decay_ppm=0,
    lease_expired_decay_ppm=0,
    heartbeat_stale_ms=YEAR_MS,
)
"""Nobody loses health or has to pause: where a test is about jobs, not about those who do them."""


def patient(depth: int = 12, **parts: msgspec.Struct) -> Policy:
    """A development network that forgives its providers, with these parts of policy changed."""
    told = {"provider": PATIENT, "chain": ChainPolicy(finality_depth=depth), **parts}
    return msgspec.structs.replace(DEVELOPMENT, **told)


def fleet(providers: int = 1, slots: int = 4, policy: Policy | None = None, money: int = 1_000_000) -> Way:
    """Alice with money, and so many providers."""
    way = Way(State(policy or patient()))
    way.funded(amount=money)
    for number in range(1, providers + 1):
        joined(way, number, slots)
    return way


def joined(way: Way, number: int, slots: int = 4) -> ProviderId:
    """A provider of both kinds: registered, staked, alive."""
    account, id_ = AccountId(f"provider-{number}"), provider_id(public(number))
    told = (f"p{number}", account, CAPABILITIES, "eu", 3, slots, way.now_ms + YEAR_MS)
    way.do(Register(public(number), *told))
    way.funded(account, 100_000)
    way.do(Stake(id_, Amount(60_000), way.new_id()))
    way.do(Beat(id_, slots))
    return id_


def asked_for(
    way: Way, nonce: int = 1, kind: str = "AI", units: int = 2, max_fee: int = 100, ttl_ms: int | None = None
) -> TaskId:
    """A job in the queue."""
    specs: dict[str, dict[str, object]] = {
        "AI": {"model": "echo", "prompt": "hi"},
        "QUANTUM": {"circuit": "OPENQASM 3;", "shots": 10, "width": 2, "depth": 3, "gates": ["h"]},
    }
    payload: dict[str, object] = {"kind": kind, "spec": specs[kind], "units": units}
    if ttl_ms is not None:
        payload["ttl_ms"] = ttl_ms
    command = prepare(way.state.policy, ALICE, Tier.FREE, payload, max_fee, nonce)
    assert isinstance(command, Enqueue), command
    way.do(command)
    return next(reversed(way.state.queue.jobs))


def sent(way: Way, job: TaskId, output: bytes = b"out") -> Envelope:
    """What the holder of a job's lease hands in, for a job of either kind."""
    lease = way.lease_of(job)
    type_ = {"AI": 1, "QUANTUM": 2}[way.state.queue.jobs[job].kind]
    body = body_of(job, lease.id, lease.provider_id, result_digest(output), len(output), {"ms": 5})
    return Envelope(type_, "attested", body, b"s" * 64)


def given_back(way: Way, job: TaskId) -> tuple[Event, ...]:
    """Its holder says that it could not do it."""
    lease = way.lease_of(job)
    return way.do(FailLease(lease.id, lease.provider_id))


def tried_again(way: Way, job: TaskId) -> None:
    """Wait as long as the retry has to, and let it be leased."""
    way.now_ms = max(way.now_ms, way.state.queue.jobs[job].not_before_ms)
    way.do(Reap())
    way.match()


def exhausted(way: Way, job: TaskId) -> None:
    """Fail as often as a job may."""
    for _ in range(way.state.policy.retry.failures_max):
        tried_again(way, job)
        given_back(way, job)
