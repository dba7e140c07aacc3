"""Verdicts on a real owner: every method by its own measure, many at once, and no verifier can hurt anybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.core.blocks import SEAL
from tests.core.books import some_id
from tests.core.ways import ALICE, YEAR_MS, public
from tests.simulated.world import DEVELOPMENT, World

from holdfast.core.canon import canonical
from holdfast.core.escrow.acts import Mint
from holdfast.core.job.record import JobState
from holdfast.core.match.decide import Match
from holdfast.core.policy import QuotaPolicy
from holdfast.core.proof.acts import Submit, Verdict
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.finding import Case, Finding, Method, Where
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.result import result_digest
from holdfast.core.values import AccountId, Amount, LeaseId, TaskId, Tier
from holdfast.duties.verifier import AHEAD, LOT, Verifier
from holdfast.engine import read
from holdfast.engine.loop import Engine
from holdfast.engine.stir import Stir
from holdfast.verifiers.attested import attested

pytestmark = pytest.mark.rule("PRF-002")
ID = provider_id(public(1))
GOOD = b"good"


def verify(key: bytes, _: bytes, signature: bytes) -> bool:
    return key == public(1) and signature == GOOD


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    roomy = QuotaPolicy(leases_per_provider_max=256)
    world = World(msgspec.structs.replace(DEVELOPMENT, quota=roomy))
    started = await world.started()
    await started.submit(Mint(some_id(1), ALICE, Amount(100_000)))
    await started.submit(Mint(some_id(2), AccountId("oak"), Amount(10_000)))
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 256)
    await started.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await started.submit(Stake(ID, Amount(10_000), some_id(3)))
    await started.submit(Beat(ID, 256))
    await started.submit(SEAL)
    yield started
    await started.stop()


async def handed_in(
    engine: Engine, nonce: int = 1, proof: str = "attested", signature: bytes = GOOD, output: bytes = b"out"
) -> TaskId:
    """A job that somebody has done, and that waits for its verdict."""
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "proof": proof}
    command = prepare(engine.policy, ALICE, Tier.FREE, payload, 100, nonce)
    assert isinstance(command, Enqueue)
    await engine.submit(command)
    job = next(reversed(engine.state.queue.jobs))
    await engine.submit(Match())
    lease = engine.state.leases.by_job[job]
    body = body_of(job, lease.id, ID, result_digest(output), len(output), {})
    await engine.submit(Submit(lease.id, ID, Envelope(1, proof, body, signature)))
    return job


async def judged(engine: Engine, job: TaskId, verifier: Verifier) -> None:
    duty = asyncio.create_task(verifier.run())
    async with asyncio.timeout(60):
        while engine.state.submissions:
            await asyncio.sleep(0)
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)
    await engine.ask(lambda _: None)
    assert job in engine.state.queue.jobs


async def verdicts(engine: Engine, job: TaskId) -> list[Verdict]:
    await engine.projector.drain()
    return list((await read.page(engine, "verdict", {"task_id": job}, 0, 10)).rows)


def yes(_: Case) -> Finding:
    return Finding(True, "as ever")


def no(_: Case) -> Finding:
    return Finding(False, "it is wrong")


def fails(_: Case) -> Finding:
    raise RuntimeError("a bug of the verifier")


async def test_a_refused_proof_is_kept_with_its_reasons(engine: Engine) -> None:
    job = await handed_in(engine, signature=b"forged")
    await judged(engine, job, Verifier(engine, {"attested": attested(verify)}))
    (kept,) = await verdicts(engine, job)
    assert (kept.verdict, kept.method, kept.provider_id) == ("PROOF_INVALID", "attested", ID)
    assert kept.reasons == "the signature is not the leased provider's"
    assert engine.state.providers[ID].failed == 1


@pytest.mark.parametrize("where", list(Where))
async def test_a_verifier_that_fails_blames_nobody_and_the_job_tries_again(engine: Engine, where: Where) -> None:
    before = msgspec.structs.replace(engine.state.providers[ID])
    job = await handed_in(engine)
    await judged(engine, job, Verifier(engine, {"attested": Method("", fails, where)}))
    found, provider = engine.state.queue.jobs[job], engine.state.providers[ID]
    assert (found.state, found.failures) == (JobState.QUEUED, 0)
    assert found.not_before_ms > engine.now_ms()
    assert (provider.failed, provider.health_ppm, provider.stake) == (0, before.health_ppm, before.stake)
    (kept,) = await verdicts(engine, job)
    assert kept.verdict == "VERIFIER_FAILED"


async def test_a_verifier_is_tried_again_before_it_counts_as_broken(engine: Engine) -> None:
    asked = 0

    async def once_broken(method: Method, case: Case) -> Finding:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise RuntimeError("its process was ended by SIGKILL")
        return method.find(case)

    job = await handed_in(engine)
    await judged(engine, job, Verifier(engine, {"attested": Method("", yes)}, heavy=once_broken, tries=3))
    assert (asked, engine.state.queue.jobs[job].state) == (3, JobState.COMPLETED)


async def test_a_job_whose_method_nobody_knows_ends_with_its_money_back(engine: Engine) -> None:
    job = await handed_in(engine, proof="guessed")
    await judged(engine, job, Verifier(engine, {"attested": attested(verify)}))
    found = engine.state.queue.jobs[job]
    assert (found.state, found.reason, found.charged) == (JobState.FAILED, "NO_VERIFIER", 0)
    assert engine.state.providers[ID].failed == 0


async def test_a_job_that_no_verifier_can_judge_does_not_go_round_for_ever(engine: Engine) -> None:
    job = await handed_in(engine)
    engine.state.queue.jobs[job].attempts = engine.policy.retry.failures_max
    await judged(engine, job, Verifier(engine, {"attested": Method("", fails)}))
    assert engine.state.queue.jobs[job].state is JobState.FAILED


class Lost:
    """Bytes that are gone, or damaged."""

    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault

    async def read(self, _: bytes) -> bytes | None:
        if self._fault is not None:
            raise self._fault
        return None


@pytest.mark.parametrize("fault", [None, Corrupt("TIER-001", "other bytes")])
async def test_output_that_the_node_lost_is_not_the_providers_fault(engine: Engine, fault: Exception | None) -> None:
    job = await handed_in(engine)
    method = Method("", no, needs_output=True)
    await judged(engine, job, Verifier(engine, {"attested": method}, Lost(fault)))  # type: ignore[arg-type]
    assert (await verdicts(engine, job))[0].verdict == "VERIFIER_FAILED"
    assert engine.state.providers[ID].failed == 0


async def test_many_cheap_proofs_are_judged_in_few_hops(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    hops: list[int] = []

    async def hop(work: Callable[..., object], cases: list[object]) -> object:
        hops.append(len(cases))
        return work(cases)

    monkeypatch.setattr(asyncio, "to_thread", hop)
    jobs = [await handed_in(engine, nonce) for nonce in range(LOT + 10)]
    await judged(engine, jobs[0], Verifier(engine, {"attested": attested(verify)}))
    assert hops == [LOT, 10]
    assert all(engine.state.queue.jobs[job].state is JobState.COMPLETED for job in jobs)


# ------------------------------------------------------------------------------------------------ one output of many


class Spoilt:
    """A disk on which one output cannot be had."""

    def __init__(self, outputs: list[bytes], fault: Exception | None) -> None:
        self._outputs = {result_digest(output): output for output in outputs}
        self._spoilt, self._fault = result_digest(outputs[0]), fault

    async def read(self, digest: bytes) -> bytes | None:
        if digest != self._spoilt:
            return self._outputs[digest]  # type: ignore[index]
        if self._fault is not None:
            raise self._fault
        return None


@pytest.mark.rule("RCV-001")
@pytest.mark.parametrize("fault", [None, Corrupt("TIER-001", "other bytes")])
async def test_an_output_that_was_lost_or_damaged_holds_up_nobody_elses_verdict(
    engine: Engine, fault: Exception | None
) -> None:
    outputs = [b"output %d" % number for number in range(5)]
    jobs = [await handed_in(engine, nonce, output=output) for nonce, output in enumerate(outputs)]
    verifier = Verifier(engine, {"attested": attested(verify)}, Spoilt(outputs, fault))  # type: ignore[arg-type]
    await judged(engine, jobs[0], verifier)
    states = [engine.state.queue.jobs[job].state for job in jobs]
    assert states == [JobState.QUEUED, *[JobState.COMPLETED] * 4]
    (kept,) = await verdicts(engine, jobs[0])
    assert kept.verdict == "VERIFIER_FAILED"
    assert kept.reasons.startswith("the node does not hold the output any more")
    assert engine.state.providers[ID].failed == 0


async def test_an_output_that_cannot_be_read_now_waits_alone(engine: Engine) -> None:
    outputs = [b"output %d" % number for number in range(5)]
    jobs = [await handed_in(engine, nonce, output=output) for nonce, output in enumerate(outputs)]
    disk = Spoilt(outputs, Unavailable("TIER-001", "the warm tier: Input/output error"))
    duty = asyncio.create_task(Verifier(engine, {"attested": attested(verify)}, disk).run())  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while len(engine.state.submissions) > 1:
            await asyncio.sleep(0)
    disk._fault, disk._spoilt = None, result_digest(b"")
    async with asyncio.timeout(60):
        while engine.state.submissions:
            engine.stirred()  # as whatever is decided next does
            await asyncio.sleep(0)
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)
    assert all(engine.state.queue.jobs[job].state is JobState.COMPLETED for job in jobs)


# ------------------------------------------------------------------------------------------------ what a plug-in says


@pytest.mark.parametrize("where", list(Where))
@pytest.mark.parametrize(
    ("said", "state", "reasons"),
    [
        (Finding(True, "half a character: \ud800"), JobState.COMPLETED, "half a character: ?"),
        (Finding(True, None), JobState.COMPLETED, "None"),  # type: ignore[arg-type]
        (Finding("no", "not a truth value"), JobState.QUEUED, ""),  # type: ignore[arg-type]
        (None, JobState.QUEUED, ""),
    ],
)
async def test_whatever_a_plug_in_answers_the_owner_goes_on(
    engine: Engine, where: Where, said: Finding, state: JobState, reasons: str
) -> None:
    job = await handed_in(engine)
    await judged(engine, job, Verifier(engine, {"attested": Method("", lambda _: said, where)}))
    assert engine.state.queue.jobs[job].state is state
    assert engine.state.providers[ID].failed == 0
    if job in engine.state.results:
        assert engine.state.results[job].reasons == reasons


async def test_what_a_sample_is_drawn_by_is_known_to_nobody_who_hands_in(engine: Engine) -> None:
    """The newest beacon is public: with it a provider could look for a false result that is not computed again."""
    seen = list[bytes]()

    def look(case: Case) -> Finding:
        seen.append(case.chance)
        return Finding(True, "")

    for nonce in range(2):
        await judged(engine, await handed_in(engine, nonce), Verifier(engine, {"attested": Method("", look)}))
    first, second = seen
    assert first != second
    assert len(first) == 32
    assert engine.state.chain.head.beacon not in seen


# ------------------------------------------------------------------------------------------------ very many at once


class Crowd:
    """A state in which so many wait for a verdict, and one among them for one that takes computing."""

    def __init__(self, count: int, heavy: int) -> None:
        self.looked = 0
        self.submissions = {LeaseId(number.to_bytes(32, "big")): b"" for number in range(count)}
        self.leases = self.by_id = self
        self.queue = SimpleNamespace(jobs={b"cheap": SimpleNamespace(proof="c"), b"heavy": SimpleNamespace(proof="h")})
        self._heavy = heavy

    def __getitem__(self, lease_id: LeaseId) -> SimpleNamespace:
        self.looked += 1
        is_heavy = int.from_bytes(lease_id, "big") == self._heavy
        return SimpleNamespace(job_id=b"heavy" if is_heavy else b"cheap")


@pytest.mark.parametrize(("heavy", "is_begun"), [(500, True), (9_000, False)])
async def test_a_look_costs_the_same_however_many_wait(
    heavy: int, is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage all agents hand in at once: a look at all of them for every lot would cost more than judging."""
    crowd = Crowd(10_000, heavy)
    engine = SimpleNamespace(state=crowd, stirred=Stir())
    methods = {"c": Method("", yes, Where.THREAD), "h": Method("", yes, Where.PROCESS)}
    verifier = Verifier(engine, methods)  # type: ignore[arg-type]

    def begin(work: Coroutine[Any, Any, None], leases: list[LeaseId]) -> None:
        work.close()
        verifier._at_work.update(leases)

    monkeypatch.setattr(verifier, "_begin", begin)
    verifier._look()
    assert len(verifier._at_work) == 2 * LOT + is_begun
    verifier._look()  # there is no room for more
    assert len(verifier._at_work) == 2 * LOT + is_begun
    assert crowd.looked <= 2 * (AHEAD + 2 * LOT + 1)
