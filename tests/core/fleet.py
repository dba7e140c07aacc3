"""A fleet of providers that run both kinds of work, and jobs of both for them: for tests of what happens in between."""

from __future__ import annotations

import msgspec
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import ALICE, YEAR_MS, CoreDriver, public

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Event
from holdfast.core.base.values import AccountId, Amount, ProviderId, TaskId, Tier
from holdfast.core.lease.messages import ExpireDue, FailLease
from holdfast.core.policy import ChainPolicy, Policy, ProviderPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.core.state import State

CAPABILITIES = canonical(
    {
        "AI": {"models": ["echo", "other"]},
        "QUANTUM": {"gates": ["h", "cx"], "depth_max": 100, "width_max": 10},
        "COMPUTE": {"runtimes": ["wc"], "cpu_milli": 2_000, "memory_mb": 512, "gpus": 1},
    }
)
LENIENT = ProviderPolicy(
    failures_in_row_max=1_000,
    missed_heartbeat_decay_ppm=0,
    ack_timeout_decay_ppm=0,
    lease_expired_decay_ppm=0,
    heartbeat_stale_ms=YEAR_MS,
)
"""Nobody loses health or has to pause: where a test is about jobs, not about those who do them."""


def lenient_policy(depth: int = 12, **parts: msgspec.Struct) -> Policy:
    """A development network that forgives its providers, with these parts of policy changed."""
    told = {"provider": LENIENT, "chain": ChainPolicy(finality_depth=depth), **parts}
    return msgspec.structs.replace(DEVELOPMENT, **told)


def fleet(providers: int = 1, slots: int = 4, policy: Policy | None = None, money: int = 1_000_000) -> CoreDriver:
    """Alice with money, and so many providers."""
    core = CoreDriver(State(policy or lenient_policy()))
    core.funded(amount=money)
    for number in range(1, providers + 1):
        join_provider(core, number, slots)
    return core


def join_provider(core: CoreDriver, number: int, slots: int = 4) -> ProviderId:
    """A provider of both kinds: registered, staked, alive."""
    account, id_ = AccountId(f"provider-{number}"), provider_id(public(number))
    told = (f"p{number}", account, CAPABILITIES, "eu", 3, slots, core.now_ms + YEAR_MS)
    core.do(Register(public(number), *told))
    core.funded(account, 100_000)
    core.do(Stake(id_, Amount(70_000), core.new_id()))
    core.do(Heartbeat(id_, slots))
    return id_


def enqueue_job(
    core: CoreDriver, nonce: int = 1, kind: str = "AI", units: int = 2, max_fee: int = 100, ttl_ms: int | None = None
) -> TaskId:
    """A job in the queue."""
    specs: dict[str, dict[str, object]] = {
        "AI": {"model": "echo", "prompt": "hi"},
        "QUANTUM": {"circuit": "OPENQASM 3;", "shots": 10, "width": 2, "depth": 3, "gates": ["h"]},
        "COMPUTE": {"runtime": "wc", "resources": {"memory_mb": 512}},
    }
    payload: dict[str, object] = {"kind": kind, "spec": specs[kind], "units": units}
    if ttl_ms is not None:
        payload["ttl_ms"] = ttl_ms
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, max_fee, nonce)
    assert isinstance(command, Enqueue), command
    core.do(command)
    return list(core.state.queue.jobs)[-1]


def completion_envelope(core: CoreDriver, job: TaskId, output: bytes = b"out") -> Envelope:
    """What the holder of a job's lease hands in, for a job of either kind."""
    lease = core.lease_of(job)
    type_ = {"AI": 1, "QUANTUM": 2, "COMPUTE": 3}[core.state.queue.jobs[job].kind]
    body = body_of(job, lease.id, lease.provider_id, result_digest(output), len(output), {"ms": 5})
    return Envelope(type_, "attested", body, b"s" * 64)


def fail_lease(core: CoreDriver, job: TaskId) -> tuple[Event, ...]:
    """Its holder says that it could not do it."""
    lease = core.lease_of(job)
    return core.do(FailLease(lease.id, lease.provider_id))


def retry_job(core: CoreDriver, job: TaskId) -> None:
    """Wait as long as the retry has to, and let it be leased."""
    core.now_ms = max(core.now_ms, core.state.queue.jobs[job].not_before_ms)
    core.do(ExpireDue())
    core.match()


def exhaust_attempts(core: CoreDriver, job: TaskId) -> None:
    """Fail as often as a job may."""
    for _ in range(core.state.policy.retry.failures_max):
        retry_job(core, job)
        fail_lease(core, job)
