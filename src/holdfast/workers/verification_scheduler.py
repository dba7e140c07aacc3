"""Verifies submitted results by the method that the job requires (PRF-002).

Submissions that wait for a verdict are in the state, so a restart loses none. Cheap methods verify many proofs in one
call to a thread; methods that compute run in processes of their own. A method that fails is tried again; then the proof
is refused without penalty. Nothing that a verifier does can stop the node or cost a provider its stake.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import LeaseId
from holdfast.core.proof.envelope import unpack
from holdfast.core.proof.messages import RecordVerdict, VerifierFault
from holdfast.core.proof.model import REASONS_MAX
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.output_tier import attach_bytes
from holdfast.ports import Blobs
from holdfast.ports.verifier import Isolation, ProofMethod, VerificationInput, VerificationResult

CHUNK_PROOFS: Final = 64
"""Cheap proofs that are verified in one call to a thread."""
CHUNKS_IN_FLIGHT_MAX: Final = 2
ISOLATED_IN_FLIGHT_MAX: Final = 4
"""Proofs with an isolated method that are in memory, with their outputs, at a time."""
SCAN_AHEAD: Final = 1_024
"""How many waiting cheap proofs are skipped at most, to find one with an isolated method."""
TRIES: Final = 3
COMMIT_INLINE_BYTES: Final = 4 << 10
"""Up to this size a commitment takes less time than a hand-over to a thread."""
SAMPLE_SEED_BYTES: Final = 32
OUTPUT_MISSING: Final = "the node does not hold the output any more"
OUTPUT_DAMAGED: Final = "the node's copy of the output is damaged"
_log = structlog.get_logger()

RunIsolated = Callable[[ProofMethod, VerificationInput], Awaitable[VerificationResult]]
"""Runs a method where it can be killed; raises if it fails."""


class VerificationScheduler:
    """Woken by every decided batch; the number of proofs in progress is bounded."""

    def __init__(
        self,
        engine: Engine,
        methods: Mapping[str, ProofMethod],
        blobs: Blobs | None = None,
        run_isolated: RunIsolated | None = None,
        tries: int = TRIES,
    ) -> None:
        self._engine, self._methods, self._blobs = engine, methods, blobs
        self._run_isolated, self._tries = run_isolated or _run_in_thread, tries
        self._changed = engine.changed.subscribe()
        self._in_progress: set[LeaseId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._chunks_in_flight = self._isolated_in_flight = 0

    async def run(self) -> None:
        try:
            while True:
                self._run_once()
                await self._changed.wait()
                self._changed.clear()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run_once(self) -> None:
        state, cheap = self._engine.undurable_state, list[LeaseId]()
        capacity = CHUNK_PROOFS * (CHUNKS_IN_FLIGHT_MAX - self._chunks_in_flight)
        for lease_id in state.submissions:
            if lease_id in self._in_progress:
                continue
            method = self._methods.get(state.queue.jobs[state.leases.by_id[lease_id].job_id].proof)
            if method is None or method.isolation is Isolation.THREAD:
                cheap.append(lease_id)
                if len(cheap) >= capacity + (SCAN_AHEAD if self._isolated_in_flight < ISOLATED_IN_FLIGHT_MAX else 0):
                    break
            elif self._isolated_in_flight < ISOLATED_IN_FLIGHT_MAX:
                self._isolated_in_flight += 1
                self._start_task(self._verify_isolated(lease_id, method), [lease_id])
        cheap = cheap[:capacity]
        while cheap:
            chunk, cheap = cheap[:CHUNK_PROOFS], cheap[CHUNK_PROOFS:]
            self._chunks_in_flight += 1
            self._start_task(self._verify_chunk(chunk), chunk)

    def _start_task(self, work: Awaitable[None], leases: list[LeaseId]) -> None:
        self._in_progress.update(leases)

        async def verify() -> None:
            try:
                await work
            except Unavailable as fault:  # the engine notifies when it is back
                _log.info("verification_delayed", reason=str(fault))
            else:
                self._changed.set()  # there is capacity again
            finally:
                self._in_progress.difference_update(leases)

        task = asyncio.create_task(verify(), name="verdict")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------ verification

    async def _verify_chunk(self, leases: list[LeaseId]) -> None:
        try:
            inputs = [(lease_id, self._build_input(lease_id)) for lease_id in leases]
            waiting = [(lease_id, case) for lease_id, case in inputs if case is not None]
            verdicts = await asyncio.to_thread(self._verify_all, waiting)
            await self._submit_verdicts(verdicts)
        finally:
            self._chunks_in_flight -= 1

    def _verify_all(self, cases: list[tuple[LeaseId, VerificationInput]]) -> list[RecordVerdict]:
        """Runs in a thread."""
        return [self._verdict(lease_id, case) for lease_id, case in cases]

    def _verdict(self, lease_id: LeaseId, case: VerificationInput) -> RecordVerdict:
        name = case.envelope.method
        method = self._methods.get(name)
        if method is None:
            reason = f"no verifier for {name!r:.40} on this node"
            return RecordVerdict(lease_id, False, reason, fault=VerifierFault.NO_VERIFIER)
        try:
            return _to_verdict(lease_id, method.verify(case))
        except Exception as fault:
            _log.exception("verifier_failed", method=name)
            return _fault_verdict(lease_id, f"the verifier raised {type(fault).__name__}")

    async def _verify_isolated(self, lease_id: LeaseId, method: ProofMethod) -> None:
        try:
            if (case := self._build_input(lease_id)) is not None:
                await self._verify_with_retries(lease_id, method, case)
        finally:
            self._isolated_in_flight -= 1

    async def _verify_with_retries(self, lease_id: LeaseId, method: ProofMethod, case: VerificationInput) -> None:
        verdict = RecordVerdict(lease_id, False, fault=VerifierFault.VERIFIER_FAILED)
        for _ in range(self._tries):
            try:
                complete = await self._load_payload_and_output(lease_id, method, case)
                verdict = _to_verdict(lease_id, await self._run_isolated(method, complete))
                break
            except Unavailable:
                raise
            except Corrupt as fault:  # of the node's own disk: another try would read the same bytes
                verdict = _damaged_verdict(lease_id, fault)
                break
            except Exception as fault:  # any error in there is the verifier's fault, not the provider's
                verdict = _fault_verdict(lease_id, f"the verifier failed: {fault}")
                _log.warning("verifier_failed", method=case.envelope.method, reason=str(fault))
        await self._submit_verdicts([verdict])

    async def _submit_verdicts(self, verdicts: list[RecordVerdict]) -> None:
        """Each by itself: a file that cannot be read does not delay the other verdicts."""
        complete, unavailable = list[RecordVerdict](), None
        for verdict in verdicts:
            try:
                complete.append(await self._attach_output(verdict))
            except Corrupt as fault:
                complete.append(_damaged_verdict(verdict.lease_id, fault))
            except Unavailable as fault:
                unavailable = fault
        outcomes = await self._engine.submit_many(complete)
        for verdict, outcome in zip(complete, outcomes, strict=True):
            if isinstance(outcome, Refused):  # the proof is valid, but not for this task
                await self._engine.submit(RecordVerdict(verdict.lease_id, False, outcome.message))
        if unavailable is not None:
            raise unavailable

    # ------------------------------------------------------------------------------------ input and output

    def _build_input(self, lease_id: LeaseId) -> VerificationInput | None:
        """The proof and the public key it must be signed with; None if it no longer waits for a verdict."""
        state = self._engine.undurable_state
        raw, lease = state.submissions.get(lease_id), state.leases.by_id.get(lease_id)
        if raw is None or lease is None:
            return None
        seed = secrets.token_bytes(SAMPLE_SEED_BYTES)  # not the beacon: a provider knows it before it submits
        return VerificationInput(unpack(raw), state.providers[lease.provider_id].signing_key, sampling_seed=seed)

    async def _load_payload_and_output(
        self, lease_id: LeaseId, method: ProofMethod, case: VerificationInput
    ) -> VerificationInput:
        """The input with payload and output, if the method needs them; missing bytes are not the provider's fault."""
        lease = self._engine.undurable_state.leases.by_id.get(lease_id)
        if lease is None or lease.submitted is None:
            raise LookupError("the lease no longer waits for a verdict")
        payload, output = b"", None
        if method.needs_payload:
            payload = await queries.spec(self._engine, self._engine.undurable_state.queue.jobs[lease.job_id])
        if method.needs_output:
            output = await self._blobs.read(lease.submitted) if self._blobs is not None else None
            if output is None:
                raise LookupError(OUTPUT_MISSING)
        return VerificationInput(case.envelope, case.public_key, payload, output, case.sampling_seed)

    async def _attach_output(self, verdict: RecordVerdict) -> RecordVerdict:
        """The verdict with the bytes, or with the commitment to them."""
        lease = self._engine.undurable_state.leases.by_id.get(verdict.lease_id)
        inline_max = self._engine.policy.result.max_inline_bytes
        if not verdict.is_good or self._blobs is None or lease is None or lease.submitted is None:
            return verdict
        # Read before the await: a job that is cancelled meanwhile is gone.
        caller = self._engine.undurable_state.queue.jobs[lease.job_id].caller
        output = await self._blobs.read(lease.submitted)  # which verifies the bytes
        if output is None:  # RCV-001: the next submission uploads them again
            return _fault_verdict(verdict.lease_id, OUTPUT_MISSING)
        if len(output) <= max(inline_max, COMMIT_INLINE_BYTES):
            return attach_bytes(verdict, caller, output, inline_max)
        return await asyncio.to_thread(attach_bytes, verdict, caller, output, inline_max)


def _to_verdict(lease_id: LeaseId, result: VerificationResult) -> RecordVerdict:
    """A plug-in may return anything: an invalid result is its own fault."""
    if type(result.is_good) is not bool:
        raise TypeError(f"it returned {result.is_good!r:.40} instead of a bool")
    return RecordVerdict(lease_id, result.is_good, _storable_text(result.reasons))


def _fault_verdict(lease_id: LeaseId, reason: str) -> RecordVerdict:
    return RecordVerdict(lease_id, False, _storable_text(reason), fault=VerifierFault.VERIFIER_FAILED)


def _damaged_verdict(lease_id: LeaseId, fault: Corrupt) -> RecordVerdict:
    """TIER-001: neither the provider's fault nor the verifier's. The log has the file, the caller has the reason."""
    _log.error("output_damaged", lease=lease_id.hex(), reason=fault.message, hint=fault.hint)
    return _fault_verdict(lease_id, OUTPUT_DAMAGED)


def _storable_text(reasons: object) -> str:
    """The text as it can be stored: a lone surrogate would stop the owner when its batch is written."""
    return str(reasons)[:REASONS_MAX].encode(errors="replace").decode()


async def _run_in_thread(method: ProofMethod, case: VerificationInput) -> VerificationResult:
    """Used if no processes are configured, as in tests."""
    return await asyncio.to_thread(method.verify, case)
