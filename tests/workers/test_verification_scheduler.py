"""Verification on a real owner: every method in its own isolation, many at once, and no verifier can do harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import ALICE, YEAR_MS, public
from tests.simulation.world import DEVELOPMENT, World

from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import AccountId, Amount, LeaseId, TaskId, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.model import JobState
from holdfast.core.match.messages import Match
from holdfast.core.policy import ProofPolicy, QuotaPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import SubmitCompletion
from holdfast.core.proof.model import ProofVerdict
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.engine import queries
from holdfast.engine.change_signal import ChangeSignal
from holdfast.engine.loop import Engine
from holdfast.engine.queries.node import Ping
from holdfast.ports.verifier import Isolation, ProofMethod, VerificationInput, VerificationResult
from holdfast.verifiers.attested import attested_method
from holdfast.workers.verification_scheduler import (
    CHUNK_PROOFS,
    OUTPUT_DAMAGED,
    OUTPUT_MISSING,
    SCAN_AHEAD,
    VerificationScheduler,
)

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
    await started.submit(Heartbeat(ID, 256))
    await started.submit(SEAL)
    yield started
    await started.stop()


async def submitted_job(
    engine: Engine, nonce: int = 1, proof: str = "attested", signature: bytes = GOOD, output: bytes = b"out"
) -> TaskId:
    """A job that is done and waits for its verdict."""
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "proof": proof}
    known = msgspec.structs.replace(engine.policy, proof=ProofPolicy(methods=(proof,)))
    command = build_enqueue(known, ALICE, Tier.FREE, payload, 100, nonce)
    assert isinstance(command, Enqueue)
    await engine.submit(command)
    job = list(engine.undurable_state.queue.jobs)[-1]
    await engine.submit(Match())
    lease = engine.undurable_state.leases.by_job[job]
    body = body_of(job, lease.id, ID, result_digest(output), len(output), {})
    await engine.submit(SubmitCompletion(lease.id, ID, Envelope(1, proof, body, signature)))
    return job


async def verify_job(engine: Engine, job: TaskId, verifier: VerificationScheduler) -> None:
    duty = asyncio.create_task(verifier.run())
    async with asyncio.timeout(60):
        while engine.undurable_state.submissions:
            await asyncio.sleep(0)
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)
    await engine.query_durable(Ping())
    assert job in engine.undurable_state.queue.jobs


async def verdicts(engine: Engine, job: TaskId) -> list[ProofVerdict]:
    await engine.wait_tables()
    return list((await queries.page(engine, "verdict", {"task_id": job}, 0, 10)).rows)


def yes(_: VerificationInput) -> VerificationResult:
    return VerificationResult(True, "as ever")


def no(_: VerificationInput) -> VerificationResult:
    return VerificationResult(False, "it is wrong")


def fails(_: VerificationInput) -> VerificationResult:
    raise RuntimeError("a bug of the verifier")


async def test_a_refused_proof_is_kept_with_its_reasons(engine: Engine) -> None:
    job = await submitted_job(engine, signature=b"forged")
    await verify_job(engine, job, VerificationScheduler(engine, {"attested": attested_method(verify)}))
    (kept,) = await verdicts(engine, job)
    assert (kept.verdict, kept.method, kept.provider_id) == ("PROOF_INVALID", "attested", ID)
    assert kept.reasons == "the signature is not the leased provider's"
    assert engine.undurable_state.providers[ID].failed == 1


@pytest.mark.parametrize("where", list(Isolation))
async def test_a_verifier_that_fails_costs_no_provider_anything_and_the_job_tries_again(
    engine: Engine, where: Isolation
) -> None:
    before = msgspec.structs.replace(engine.undurable_state.providers[ID])
    job = await submitted_job(engine)
    await verify_job(engine, job, VerificationScheduler(engine, {"attested": ProofMethod("", fails, where)}))
    found, provider = engine.undurable_state.queue.jobs[job], engine.undurable_state.providers[ID]
    assert (found.state, found.failures) == (JobState.QUEUED, 0)
    assert found.not_before_ms > engine.now_ms()
    assert (provider.failed, provider.health_ppm, provider.stake) == (0, before.health_ppm, before.stake)
    (kept,) = await verdicts(engine, job)
    assert kept.verdict == "VERIFIER_FAILED"


async def test_a_verifier_is_tried_again_before_it_counts_as_broken(engine: Engine) -> None:
    asked = 0

    async def once_broken(method: ProofMethod, case: VerificationInput) -> VerificationResult:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise RuntimeError("its process was ended by SIGKILL")
        return method.verify(case)

    job = await submitted_job(engine)
    await verify_job(
        engine,
        job,
        VerificationScheduler(engine, {"attested": ProofMethod("", yes)}, run_isolated=once_broken, tries=3),
    )
    assert (asked, engine.undurable_state.queue.jobs[job].state) == (3, JobState.COMPLETED)


async def test_a_job_with_an_unknown_method_ends_with_its_money_back(engine: Engine) -> None:
    job = await submitted_job(engine, proof="guessed")
    await verify_job(engine, job, VerificationScheduler(engine, {"attested": attested_method(verify)}))
    found = engine.undurable_state.queue.jobs[job]
    assert (found.state, found.reason, found.charged) == (JobState.FAILED, "NO_VERIFIER", 0)
    assert engine.undurable_state.providers[ID].failed == 0


async def test_a_job_that_no_verifier_can_judge_does_not_go_round_for_ever(engine: Engine) -> None:
    job = await submitted_job(engine)
    engine.undurable_state.queue.jobs[job].attempts = engine.policy.retry.failures_max
    await verify_job(engine, job, VerificationScheduler(engine, {"attested": ProofMethod("", fails)}))
    assert engine.undurable_state.queue.jobs[job].state is JobState.FAILED


class LostOutputs:
    """Bytes that are gone, or damaged."""

    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault

    async def read(self, _: bytes) -> bytes | None:
        if self._fault is not None:
            raise self._fault
        return None


@pytest.mark.parametrize("fault", [None, Corrupt("TIER-001", "other bytes")])
async def test_output_that_the_node_lost_is_not_the_providers_fault(engine: Engine, fault: Exception | None) -> None:
    job = await submitted_job(engine)
    method = ProofMethod("", no, needs_output=True)
    with capture_logs() as logs:
        await verify_job(engine, job, VerificationScheduler(engine, {"attested": method}, LostOutputs(fault)))  # type: ignore[arg-type]
    assert [each["reason"] for each in logs if each["event"] == "output_damaged"] == (["other bytes"] if fault else [])
    (kept,) = await verdicts(engine, job)
    assert kept.verdict == "VERIFIER_FAILED"
    assert ("damaged" in kept.reasons) == (fault is not None)
    assert engine.undurable_state.providers[ID].failed == 0


async def test_many_cheap_proofs_are_judged_in_few_hops(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    hops: list[int] = []

    async def hop(work: Callable[..., object], cases: list[object]) -> object:
        hops.append(len(cases))
        return work(cases)

    monkeypatch.setattr(asyncio, "to_thread", hop)
    jobs = [await submitted_job(engine, nonce) for nonce in range(CHUNK_PROOFS + 10)]
    await verify_job(engine, jobs[0], VerificationScheduler(engine, {"attested": attested_method(verify)}))
    assert hops == [CHUNK_PROOFS, 10]
    assert all(engine.undurable_state.queue.jobs[job].state is JobState.COMPLETED for job in jobs)


# ------------------------------------------------------------------------------------------------ one output of many


class SpoiltOutputs:
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


@pytest.mark.rule("RCV-001", "TIER-001")
@pytest.mark.parametrize("fault", [None, Corrupt("TIER-001", "other bytes")])
async def test_an_output_that_was_lost_or_damaged_delays_no_other_verdict(
    engine: Engine, fault: Exception | None
) -> None:
    outputs = [b"output %d" % number for number in range(5)]
    jobs = [await submitted_job(engine, nonce, output=output) for nonce, output in enumerate(outputs)]
    verifier = VerificationScheduler(engine, {"attested": attested_method(verify)}, SpoiltOutputs(outputs, fault))  # type: ignore[arg-type]
    await verify_job(engine, jobs[0], verifier)
    states = [engine.undurable_state.queue.jobs[job].state for job in jobs]
    assert states == [JobState.QUEUED, *[JobState.COMPLETED] * 4]
    (kept,) = await verdicts(engine, jobs[0])
    assert kept.verdict == "VERIFIER_FAILED"
    assert kept.reasons == (OUTPUT_MISSING if fault is None else OUTPUT_DAMAGED)
    assert engine.undurable_state.providers[ID].failed == 0


async def test_an_output_that_cannot_be_read_now_waits_alone(engine: Engine) -> None:
    outputs = [b"output %d" % number for number in range(5)]
    jobs = [await submitted_job(engine, nonce, output=output) for nonce, output in enumerate(outputs)]
    disk = SpoiltOutputs(outputs, Unavailable("TIER-001", "the warm tier: Input/output error"))
    duty = asyncio.create_task(VerificationScheduler(engine, {"attested": attested_method(verify)}, disk).run())  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while len(engine.undurable_state.submissions) > 1:
            await asyncio.sleep(0)
    disk._fault, disk._spoilt = None, result_digest(b"")
    async with asyncio.timeout(60):
        while engine.undurable_state.submissions:
            engine.changed.notify()  # as whatever is decided next does
            await asyncio.sleep(0)
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)
    assert all(engine.undurable_state.queue.jobs[job].state is JobState.COMPLETED for job in jobs)


# ------------------------------------------------------------------------------------------------ what a plug-in says


@pytest.mark.parametrize("where", list(Isolation))
@pytest.mark.parametrize(
    ("said", "state", "reasons"),
    [
        (VerificationResult(True, "half a character: \ud800"), JobState.COMPLETED, "half a character: ?"),
        (VerificationResult(True, None), JobState.COMPLETED, "None"),  # type: ignore[arg-type]
        (VerificationResult("no", "not a truth value"), JobState.QUEUED, ""),  # type: ignore[arg-type]
        (None, JobState.QUEUED, ""),
    ],
)
async def test_whatever_a_plug_in_answers_the_owner_goes_on(
    engine: Engine, where: Isolation, said: VerificationResult, state: JobState, reasons: str
) -> None:
    job = await submitted_job(engine)
    await verify_job(engine, job, VerificationScheduler(engine, {"attested": ProofMethod("", lambda _: said, where)}))
    assert engine.undurable_state.queue.jobs[job].state is state
    assert engine.undurable_state.providers[ID].failed == 0
    if job in engine.undurable_state.results:
        assert engine.undurable_state.results[job].reasons == reasons


async def test_the_seed_of_a_sample_is_not_known_to_a_provider_that_submits(engine: Engine) -> None:
    """The newest beacon is public: with it a provider could look for a false result that is not computed again."""
    seen = list[bytes]()

    def look(case: VerificationInput) -> VerificationResult:
        seen.append(case.sampling_seed)
        return VerificationResult(True, "")

    for nonce in range(2):
        await verify_job(
            engine,
            await submitted_job(engine, nonce),
            VerificationScheduler(engine, {"attested": ProofMethod("", look)}),
        )
    first, second = seen
    assert first != second
    assert len(first) == 32
    assert engine.undurable_state.chain.head.beacon not in seen


# ------------------------------------------------------------------------------------------------ very many at once


class CrowdedState:
    """A state in which many proofs wait for a verdict, one of them with an isolated method."""

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
async def test_a_run_costs_the_same_however_many_wait(
    heavy: int, is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage all agents submit at once: a scan of all for every chunk would cost more than verification."""
    crowd = CrowdedState(10_000, heavy)
    engine = SimpleNamespace(undurable_state=crowd, changed=ChangeSignal())
    methods = {"c": ProofMethod("", yes, Isolation.THREAD), "h": ProofMethod("", yes, Isolation.PROCESS)}
    verifier = VerificationScheduler(engine, methods)  # type: ignore[arg-type]

    def begin(work: Coroutine[Any, Any, None], leases: list[LeaseId]) -> None:
        work.close()
        verifier._in_progress.update(leases)

    monkeypatch.setattr(verifier, "_start_task", begin)
    verifier._run_once()
    assert len(verifier._in_progress) == 2 * CHUNK_PROOFS + is_begun
    verifier._run_once()  # there is no capacity for more
    assert len(verifier._in_progress) == 2 * CHUNK_PROOFS + is_begun
    assert crowd.looked <= 2 * (SCAN_AHEAD + 2 * CHUNK_PROOFS + 1)
