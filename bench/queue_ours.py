"""Holdfast's queue as a contestant: whole lives of jobs through the engine, with matching, quotas, money and blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from hashlib import sha512
from itertools import count
from typing import Final, TypeVar

import msgspec

from bench.ours import ALICE, POLICY, check
from bench.queue_hand import FEE, UNITS
from bench.stores import Spot
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import Folder
from holdfast.core.canon import canonical
from holdfast.core.chain.acts import Seal
from holdfast.core.escrow.acts import Mint
from holdfast.core.lease.acts import AckLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.policy import Policy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.result import result_digest
from holdfast.core.values import AccountId, Amount, TaskId, Tier
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

T = TypeVar("T")
SLOTS: Final = 4_000
YEAR_MS: Final = 365 * 86_400_000
_numbers = count(1)
_digest = result_digest(b"out")


def roomy() -> Policy:
    """The defaults, but for caps that would stop a measurement: how much one requester and one provider may have."""
    changed = {
        "quota": {"leases_per_provider_max": SLOTS, "ai_units_per_epoch": 2**40},
        "admission": {"in_flight_per_requester_max": 2**30, "queue_depth_max": 2**31},
    }
    parts = {name: msgspec.structs.replace(getattr(POLICY, name), **told) for name, told in changed.items()}
    return msgspec.structs.replace(POLICY, **parts)


async def opened(spot: Spot, providers: int = 4) -> Engine:
    """A running engine with a rich requester and as many providers."""
    journal, tables = spot.open()
    engine = Engine(journal, tables, Folder(spot.folder / "snapshots"), MachineClock(), roomy())
    await engine.start()
    await _mint(engine, ALICE, 10**15)
    for number in range(1, providers + 1):
        await _enlist(engine, number)
    return engine


async def _enlist(engine: Engine, number: int) -> None:
    public, account = number.to_bytes(32, "big"), AccountId(f"provider-{number}")
    id_ = provider_id(public)
    told = (f"p{number}", account, canonical({"AI": {"models": ["echo"]}}), "eu", 3, SLOTS)
    check([await engine.submit(Register(public, *told, engine.now_ms() + YEAR_MS))])
    await _mint(engine, account, 20_000)
    check([await engine.submit(Stake(id_, Amount(10_000), _some_id()))])
    check([await engine.submit(Beat(id_, SLOTS))])


async def _mint(engine: Engine, owner: AccountId, amount: int) -> None:
    check([await engine.submit(Mint(_some_id(), owner, Amount(amount)))])


def _some_id() -> bytes:
    return next(_numbers).to_bytes(32, "big")


def asked(engine: Engine, many: int) -> list[Enqueue]:
    """As many different requests, checked and in canonical bytes: what a door does before it asks the owner."""
    found = []
    for number in (next(_numbers) for _ in range(many)):
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}, "units": UNITS}
        command = prepare(engine.state.policy, ALICE, Tier.FREE, payload, FEE, number)
        assert isinstance(command, Enqueue), command
        found.append(command)
    return found


async def enqueued(engine: Engine, commands: Sequence[Enqueue]) -> list[TaskId]:
    """All taken in; their ids."""
    outcomes = await engine.submit_many(commands)
    check(outcomes)
    return [each.fact.id for each in outcomes if isinstance(each, Accepted)]  # type: ignore[union-attr]


async def drained(engine: Engine) -> tuple[int, float]:
    """Match, acknowledge, hand in, judge until nobody waits; how many jobs came to their end, and in which time."""
    done, began, theirs = 0, time.perf_counter(), 0.0
    while leases := await _matched(engine):
        theirs += await finished(engine, leases)
        done += len(leases)
    return done, time.perf_counter() - began - theirs


async def finished(engine: Engine, leases: Sequence[Lease]) -> float:
    """What the providers and the verifier ask for; how long it took to write the proofs, which is not the queue's."""
    check(await engine.submit_many([AckLease(each.id, each.provider_id) for each in leases]))
    began = time.perf_counter()
    proofs = [_submission(each) for each in leases]
    took = time.perf_counter() - began
    check(await engine.submit_many(proofs))
    check(await engine.submit_many([Judge(each.id, True, "signed by the leased provider") for each in leases]))
    return took


async def _matched(engine: Engine, ticks: int = 4) -> list[Lease]:
    """The leases of a few ticks."""
    before = engine.state.assignments
    for _ in range(ticks):
        outcome = await engine.submit(Match())
        if not isinstance(outcome, Accepted) or outcome.is_repeat:
            break
    given = engine.state.assignments - before
    return list(engine.state.leases.by_id.values())[-given:] if given else []


def _submission(lease: Lease) -> Submit:
    body = body_of(lease.job_id, lease.id, lease.provider_id, _digest, 3, {"ms": 5})
    return Submit(lease.id, lease.provider_id, Envelope(1, "attested", body, bytes(64)))


async def lived(engine: Engine, commands: Sequence[Enqueue], size: int) -> float:
    """Whole lives a second, lot by lot, a block sealed after each lot."""
    took = 0.0
    for at in range(0, len(commands), size):
        began = time.perf_counter()
        await enqueued(engine, commands[at : at + size])
        took += time.perf_counter() - began
        done, drain = await drained(engine)
        assert done == len(commands[at : at + size])
        began = time.perf_counter()
        await sealed(engine)
        took += drain + time.perf_counter() - began
    return len(commands) / took


async def spent(engine: Engine, commands: Sequence[Enqueue]) -> Mapping[str, float]:
    """Microseconds of processor time that each step of a job takes, in the thread that decides."""
    took: dict[str, float] = {}

    async def step(name: str, work: Awaitable[T]) -> T:
        began = time.thread_time()
        found = await work
        took[name] = (time.thread_time() - began) / len(commands) * 1e6
        return found

    await step("enqueue", enqueued(engine, commands))
    leases = await step("match", _matched(engine, len(commands)))
    acks, proofs = [AckLease(each.id, each.provider_id) for each in leases], [_submission(each) for each in leases]
    check(await step("ack", engine.submit_many(acks)))
    check(await step("hand in", engine.submit_many(proofs)))
    verdicts = [Judge(each.id, True, "signed by the leased provider") for each in leases]
    check(await step("verdict and result", engine.submit_many(verdicts)))
    await step("seal", sealed(engine))
    assert len(leases) == len(commands)
    return took


async def sealed(engine: Engine, times: int = 1) -> None:
    for _ in range(times):
        check([await engine.submit(Seal(bytes(range(32)), lambda raw: sha512(raw).digest()))])


async def rested(engine: Engine) -> None:
    """Between turns: everything is final and in the tables, so that nobody pays for another's turn."""
    await sealed(engine, engine.state.policy.chain.finality_depth + 1)
    await engine.projector.drain()


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
