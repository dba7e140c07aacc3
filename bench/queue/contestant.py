"""Holdfast's queue as a contestant: whole lives of jobs through the engine, with matching, quotas, money and blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from itertools import count
from typing import Final, TypeVar

import msgspec

from bench.engine.contestant import ALICE, check
from bench.engine.opened import POLICY, BenchSigner, make_final, open_engine, until_in_tables
from bench.queue.baselines.contract import FEE, UNITS
from bench.stores import StorePlace
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, LeaseId, TaskId, Tier
from holdfast.core.chain.messages import SealBlock
from holdfast.core.escrow.messages import Mint
from holdfast.core.lease.messages import AckLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.policy import Policy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

T = TypeVar("T")
SLOTS: Final = 4_000
YEAR_MS: Final = 365 * 86_400_000
_numbers = count(1)
_digest = result_digest(b"out")


def policy_without_limits() -> Policy:
    """The defaults, but for caps that would stop a measurement: how much one requester and one provider may have."""
    changed = {
        "quota": {"leases_per_provider_max": SLOTS, "ai_units_per_epoch": 2**40},
        "admission": {"in_flight_per_requester_max": 2**30, "queue_depth_max": 2**31},
    }
    parts = {name: msgspec.structs.replace(getattr(POLICY, name), **told) for name, told in changed.items()}
    return msgspec.structs.replace(POLICY, **parts)


async def open_engine_with_providers(spot: StorePlace, providers: int = 4, policy: Policy | None = None) -> Engine:
    """A running engine with a rich requester and as many providers."""
    engine = await open_engine(spot, policy or policy_without_limits())
    await _mint(engine, ALICE, 10**15)
    for number in range(1, providers + 1):
        await _register_provider(engine, number)
    await until_in_tables(engine)  # its projector runs
    return engine


async def _register_provider(engine: Engine, number: int) -> None:
    public, account = number.to_bytes(32, "big"), AccountId(f"provider-{number}")
    id_ = provider_id(public)
    told = (f"p{number}", account, canonical({"AI": {"models": ["echo"]}}), "eu", 3, SLOTS)
    check([await engine.submit(Register(public, *told, engine.now_ms() + YEAR_MS))])
    await _mint(engine, account, 20_000)
    check([await engine.submit(Stake(id_, Amount(10_000), _some_id()))])
    await send_heartbeats(engine)


async def send_heartbeats(engine: Engine) -> None:
    """A run may take longer than a heartbeat is fresh, and nothing is assigned to a provider that is silent."""
    check(await engine.submit_many([Heartbeat(id_, SLOTS) for id_ in engine.undurable_state.providers]))


async def _mint(engine: Engine, owner: AccountId, amount: int) -> None:
    check([await engine.submit(Mint(_some_id(), owner, Amount(amount)))])


def _some_id() -> bytes:
    return next(_numbers).to_bytes(32, "big")


def make_enqueues(engine: Engine, many: int) -> list[Enqueue]:
    """As many different requests, checked and in canonical bytes: what the API does before it submits."""
    found = []
    for number in (next(_numbers) for _ in range(many)):
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}, "units": UNITS}
        command = build_enqueue(engine.policy, ALICE, Tier.FREE, payload, FEE, number)
        assert isinstance(command, Enqueue), command
        found.append(command)
    return found


async def enqueue_all(engine: Engine, commands: Sequence[Enqueue]) -> list[TaskId]:
    """All taken in; their ids."""
    outcomes = await engine.submit_many(commands)
    check(outcomes)
    return [each.fact.id for each in outcomes if isinstance(each, Accepted)]  # type: ignore[union-attr]


class ProofTime:
    """What it took to write proofs, which is the providers' work and not the queue's."""

    def __init__(self) -> None:
        self.wall_s, self.cpu_s = 0.0, 0.0

    def write(self, leases: Sequence[Lease]) -> list[SubmitCompletion]:
        wall, cpu = time.perf_counter(), time.thread_time()
        proofs = [_submission(each) for each in leases]
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.thread_time() - cpu
        return proofs


async def drain_all(engine: Engine) -> tuple[int, float]:
    """Match, acknowledge, submit, judge until no job waits; how many jobs ended, and in which time."""
    await send_heartbeats(engine)
    proofs, began = ProofTime(), time.perf_counter()
    done = await _drain(engine, set(), proofs)
    return done, time.perf_counter() - began - proofs.wall_s


async def _drain(engine: Engine, taken: set[LeaseId], proofs: ProofTime) -> int:
    """The same beside others who do it; `taken` holds the leases that somebody finishes."""
    done = 0
    while leases := [each for each in await _run_ticks(engine) if each.id not in taken]:
        taken.update(each.id for each in leases)
        await finish_leases(engine, leases, proofs)
        taken.difference_update(each.id for each in leases)
        done += len(leases)
    return done


async def finish_leases(engine: Engine, leases: Sequence[Lease], proofs: ProofTime | None = None) -> None:
    """What the providers and the verifier ask for."""
    check(await engine.submit_many([AckLease(each.id, each.provider_id) for each in leases]))
    check(await engine.submit_many((proofs or ProofTime()).write(leases)))
    check(await engine.submit_many([RecordVerdict(each.id, True, "signed by the leased provider") for each in leases]))


async def _run_ticks(engine: Engine, ticks: int = 4) -> list[Lease]:
    """The live leases after a few ticks."""
    await engine.submit_many([Match()] * ticks)
    return live_leases(engine)


def live_leases(engine: Engine) -> list[Lease]:
    return list(engine.undurable_state.leases.by_id.values())


def _submission(lease: Lease) -> SubmitCompletion:
    body = body_of(lease.job_id, lease.id, lease.provider_id, _digest, 3, {"ms": 5})
    return SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, bytes(64)))


async def run_lives(
    engine: Engine, commands: Sequence[Enqueue], size: int, proofs: ProofTime | None = None, at_once: int = 1
) -> float:
    """Whole lives per second: `at_once` chunks live at the same time, each step of one after the step before is
    durable, and a block is sealed after each."""
    await send_heartbeats(engine)
    chunks = iter([commands[at : at + size] for at in range(0, len(commands), size)])
    proofs, taken, done = proofs or ProofTime(), set[LeaseId](), 0
    before = proofs.wall_s

    async def live() -> None:
        nonlocal done
        for chunk in chunks:
            await enqueue_all(engine, chunk)
            ended = await _drain(engine, taken, proofs)
            done += ended
            await seal_blocks(engine)

    began = time.perf_counter()
    await asyncio.gather(*(live() for _ in range(at_once)))
    took = time.perf_counter() - began - (proofs.wall_s - before)
    assert done == len(commands)
    return len(commands) / took


async def measure_cpu(engine: Engine, commands: Sequence[Enqueue]) -> Mapping[str, float]:
    """Microseconds of processor time that each step of a job takes, in the thread that decides."""
    took: dict[str, float] = {}

    async def step(name: str, work: Awaitable[T]) -> T:
        began = time.thread_time()
        found = await work
        took[name] = (time.thread_time() - began) / len(commands) * 1e6
        return found

    await step("enqueue", enqueue_all(engine, commands))
    leases = await step("match", _run_ticks(engine))
    acks, proofs = [AckLease(each.id, each.provider_id) for each in leases], ProofTime().write(leases)
    check(await step("ack", engine.submit_many(acks)))
    check(await step("submit", engine.submit_many(proofs)))
    verdicts = [RecordVerdict(each.id, True, "signed by the leased provider") for each in leases]
    check(await step("verdict and result", engine.submit_many(verdicts)))
    await step("seal", seal_blocks(engine))
    assert len(leases) == len(commands)
    return took


async def seal_blocks(engine: Engine, times: int = 1) -> None:
    signer = BenchSigner()
    for _ in range(times):
        check([await engine.submit(SealBlock(signer.public, signer.sign))])


async def finalize_and_project(engine: Engine) -> None:
    """Between turns: everything is final, in the tables and evicted, so that no contestant pays for another's turn."""
    await seal_blocks(engine, engine.policy.chain.finality_depth + 1)
    await make_final(engine)
    await until_in_tables(engine)


async def one_by_one(engine: Engine, commands: Sequence[Enqueue], callers: int) -> tuple[float, list[float]]:
    """A closed loop of requesters; jobs taken in a second, and how long each waited for its receipt."""
    waits: list[float] = []

    async def caller(mine: Sequence[Enqueue]) -> None:
        for command in mine:
            asked_at = time.perf_counter()
            check([await engine.submit(command)])
            waits.append(time.perf_counter() - asked_at)

    each = -(-len(commands) // callers)
    began = time.perf_counter()
    await asyncio.gather(*(caller(commands[at : at + each]) for at in range(0, len(commands), each)))
    return len(commands) / (time.perf_counter() - began), waits
