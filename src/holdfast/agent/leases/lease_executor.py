"""Runs a lease: execute, report the outcome as evidence, with its output or after its upload (EVD-005).

Every step begins from what is on disk, so that a crash at any point only repeats that step. A small output travels in
the record of the completion; a larger one is uploaded before it is reported. An output that another execution might not
give again is a file before its digest is signed, and until the verdict is final (RCV-002).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
import structlog

from holdfast.agent.executors.contract import (
    AnyExecutor,
    AsyncExecutor,
    Executor,
    ExecutorIsolation,
    TypedOutput,
    Work,
    media_type_of,
    valid_media_type,
)
from holdfast.agent.executors.execute import Declined, Failed, execute, execute_async, execute_inline
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.group_signer import GroupSigner
from holdfast.agent.leases.input_fetch import InputDamaged, InputFetcher
from holdfast.agent.leases.lease_run import LeaseRun, NodeView
from holdfast.agent.leases.outcomes import OutcomeDraft, ProvedOutput, draft_completion, draft_failure
from holdfast.agent.leases.records import FAILED, READY, Outcome
from holdfast.agent.leases.spooled_leases import SpooledLeases
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.leases.work_reports import WorkReports
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.evidence_emitter import RETRY_MS, EmittedRecord, EvidenceEmitter, LeaseRecord, SpooledAt
from holdfast.agent.transport.node_client import NodeClient
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.job.spec import WorkPayload
from holdfast.core.result.ids import result_digest
from holdfast.ports import Clock
from holdfast.shipping.backoff import Backoff, Draw
from holdfast.shipping.node_connection import RpcFault, describe_fault, refusal_of
from holdfast.spool.files.record import BLOCK_FENCE
from holdfast.wire.signed_messages import OUTPUT_INLINE_BYTES_MAX

LEASE_OVER_NAMES: Final = frozenset({"LeaseLost", "NotFound"})
"""Refusals by which the node says that a lease is over."""
OUTPUT_UNWANTED_NAMES: Final = frozenset({"InvalidParams", "InvalidRequest", "TooLarge", "Forbidden"})
"""Refusals after which a retry of the upload is useless."""
LONG_MS: Final = 1_000
"""Work that takes longer is reported as started, and its offer becomes a file: the spool need not keep it."""
_log = structlog.get_logger()


class LeaseExecutor:
    """Runs the remaining steps of a lease until its outcome is spooled. It is cancelled when the lease ends before."""

    def __init__(
        self,
        *,
        settings: AgentSettings,
        registry: ExecutorRegistry,
        work_dir: WorkDir,
        emitter: EvidenceEmitter,
        spooled: SpooledLeases,
        client: NodeClient,
        signer: GroupSigner,
        clock: Clock,
        draw: Draw,
    ) -> None:
        self._settings, self._registry, self._work_dir = settings, registry, work_dir
        self._emitter, self._spooled = emitter, spooled
        self._client, self._signer, self._clock, self._draw = client, signer, clock, draw
        self._inputs = InputFetcher(settings, client, clock, draw)
        self.reports = WorkReports(emitter)
        self.on_declined: Callable[[LeaseRun, str], None] = lambda lease, reason: lease.end("DECLINED", reason)
        """What gives a lease back whose executor does not want its work."""

    async def run(self, lease: LeaseRun) -> None:
        """A failing disk is retried: the lease is not lost while its offer is stored."""
        backoff = Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
        while lease.outcome_spooled_at is None:
            try:
                await self._run_steps(lease)
            except Unavailable as fault:
                _log.error("lease_waiting_for_disk", lease=lease.id.hex(), reason=str(fault))
                await backoff.pause(self._clock)
            except Exception as fault:
                _log.exception("lease_failed_by_agent_error", lease=lease.id.hex())
                lease.outcome = await self._sign(draft_failure(lease.offer, f"AGENT_ERROR: {type(fault).__name__}"))
        if lease.outcome is not None and lease.outcome.payload_type == FAILED:
            await self._emitter.wait_delivered(lease.outcome_spooled_at)
            lease.end(FAILED, str(lease.outcome.payload["reason"]))

    async def _run_steps(self, lease: LeaseRun) -> None:
        if lease.is_resumed and not lease.has_files:
            await self.store_offer(lease)
        if lease.outcome is None:
            lease.outcome = await (self._upload_output(lease) if lease.has_output else self._execute(lease))
        await self._report(lease, lease.outcome)

    async def store_offer(self, lease: LeaseRun) -> None:
        """Make the offer a file: its record may be dropped then."""
        lease.has_files = True  # before: what is stored half is removed as well
        await self._work_dir.store_offer(lease.offer)
        self.hold(lease, None)

    async def store_unreported(self, leases: list[LeaseRun]) -> None:
        """What is not done and not declined becomes a file: the spool's session ends here."""
        for lease in leases:
            if lease.is_unreported and not lease.has_files:
                try:
                    await self.store_offer(lease)
                except Unavailable as fault:  # the node offers it again
                    _log.warning("offer_not_stored", lease=lease.id.hex(), reason=str(fault))

    # -------------------------------------------------------------------------------------------- steps

    def execute_at_once(self, lease: LeaseRun) -> OutcomeDraft | None:
        """The outcome of work that takes no time; None where it has to wait for anything."""
        if lease.work is None or lease.work[0].isolation is not ExecutorIsolation.INLINE:
            return None
        executor, payload = cast(tuple[Executor, WorkPayload], lease.work)
        if payload.input is not None:
            return None
        lease.started_ms = self._clock.monotonic_ms()
        lease.output = execute_inline(executor, payload)
        return self._draft(lease, lease.output)

    async def _execute(self, lease: LeaseRun) -> Outcome:
        if lease.is_resumed and lease.offer.t_deadline_ms <= self._clock.wall_ms() + self._client.offset_ms:
            await asyncio.shield(lease.node_view)  # its deadline seems to be over: the node decides
        if lease.output is None:
            lease.output = await self._run_executor(lease)
        if lease.reporting_start is not None:  # EVD-005: the start comes before the outcome
            await lease.reporting_start
        output = lease.output
        draft = self._draft(lease, output)
        if isinstance(output, bytes) and (draft is None or not self._is_repeatable(lease)):
            await self._store_output(lease, output)
        if draft is not None:
            return await self._sign(draft)
        lease.output = None
        return await self._upload_output(lease)

    def _is_repeatable(self, lease: LeaseRun) -> bool:
        """An inline executor gives the same bytes again; of others, what was signed is never computed anew."""
        work = lease.work or self._registry.find(lease.offer.kind, lease.offer.payload)
        return not isinstance(work, Refused) and work[0].isolation is ExecutorIsolation.INLINE

    async def _store_output(self, lease: LeaseRun, output: bytes) -> None:
        """RCV-002: the output is on disk before its digest is signed, so that no other digest is ever signed."""
        if not lease.has_files:
            await self.store_offer(lease)
        await self._work_dir.store_output(lease.id, output)
        lease.has_output = True

    def _draft(self, lease: LeaseRun, output: bytes | Failed) -> OutcomeDraft | None:
        """The outcome; None where the output is too large to travel with it."""
        if isinstance(output, Failed):
            return draft_failure(lease.offer, output.reason)
        if len(output) > OUTPUT_INLINE_BYTES_MAX:
            return None
        return self._draft_completion(lease, result_digest(output), len(output), output)

    async def _run_executor(self, lease: LeaseRun) -> bytes | Failed:
        match = lease.work or self._registry.find(lease.offer.kind, lease.offer.payload)
        if isinstance(match, Refused):
            return Failed(f"NOT_OFFERED: {match.message}")
        try:
            match = lease.work = await self._with_input(lease, *match)
        except InputDamaged as fault:
            return Failed(f"INPUT_DAMAGED: {fault}")
        lease.started_ms = self._clock.monotonic_ms()
        long_run = asyncio.get_running_loop().call_later(LONG_MS / 1_000, self._on_long_run, lease)
        try:
            executor, payload = match
            if executor.isolation is ExecutorIsolation.ASYNC:
                return await self._run_async(lease, cast(AsyncExecutor, executor), payload)
            timeout_ms = payload.run_ms_max or self._settings.execution_ms_max
            return await execute(cast(Executor, executor), payload, timeout_ms)
        finally:
            long_run.cancel()

    async def _run_async(self, lease: LeaseRun, executor: AsyncExecutor, payload: WorkPayload) -> bytes | Failed:
        timeout_ms = payload.run_ms_max or self._settings.execution_ms_max
        work = Work(payload, lease.offer.task_id, self._clock.wall_ms() + timeout_ms, self.reports.of(lease))
        try:
            outcome = await execute_async(executor, work, timeout_ms)
        finally:
            self.reports.finish(lease)
        if isinstance(outcome, Declined):
            self.on_declined(lease, outcome.reason)
            await asyncio.get_running_loop().create_future()  # the end of the lease cancels this
        if not isinstance(outcome, TypedOutput):
            assert isinstance(outcome, Failed)
            return outcome
        lease.media_type = outcome.media_type
        return outcome.raw

    async def _with_input(
        self, lease: LeaseRun, executor: AnyExecutor, payload: WorkPayload
    ) -> tuple[AnyExecutor, WorkPayload]:
        """JOB-003: the bytes of the input are a file of the lease before its work begins."""
        if payload.input is None:
            return executor, payload
        if not lease.has_files:
            await self.store_offer(lease)
        folder = self._work_dir.folder_of(lease.id).absolute()
        file = await self._inputs.fetch(lease.id, payload.input, folder)
        return executor, msgspec.structs.replace(payload, input_file=str(file))

    def _on_long_run(self, lease: LeaseRun) -> None:
        """The lease's own task waits for the executor: another one reports that it has started."""
        lease.reporting_start = asyncio.create_task(self._report_start(lease))

    async def _report_start(self, lease: LeaseRun) -> None:
        while not self.reports.report_start(lease):
            await self._clock.sleep(RETRY_MS)
        if not lease.has_files:
            try:
                await self.store_offer(lease)
            except Unavailable as fault:  # the record in the spool is kept instead
                _log.warning("offer_not_stored", lease=lease.id.hex(), reason=str(fault))

    async def _upload_output(self, lease: LeaseRun) -> Outcome:
        """EVD-006: the node has the bytes before the completion is reported. They are stored here as well."""
        if lease.is_resumed and await asyncio.shield(lease.node_view) is NodeView.SUBMITTED:
            await asyncio.shield(lease.ended)  # an earlier process has reported it: the node decides
        output = await self._work_dir.read_output(lease.id)
        digest, size = result_digest(output), len(output)
        if not self._spooled.is_spooled(READY, lease.id):
            await self._emitter.emit(READY, {"lease_id": lease.id.hex(), "digest": digest.hex(), "size": size})
        refusal = await self._upload_with_retries(lease, digest, output)
        if refusal is not None:
            return await self._sign(draft_failure(lease.offer, f"OUTPUT_REFUSED: {refusal.name}: {refusal.message}"))
        return await self._sign(self._draft_completion(lease, digest, size, None))

    async def _upload_with_retries(self, lease: LeaseRun, digest: bytes, output: bytes) -> Refused | None:
        """Until the node has the bytes or refuses them for good."""
        backoff = Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
        while True:
            try:
                await self._client.put_output(lease.id, digest, output)
                return None
            except RpcFault as fault:
                refusal = refusal_of(fault)
                if refusal is not None and refusal.name in LEASE_OVER_NAMES:
                    lease.end("LOST", refusal.message)
                if refusal is not None and (refusal.name in LEASE_OVER_NAMES or refusal.rule == "RCV-001"):
                    await asyncio.shield(lease.ended)  # over, or submitted before: the node decides
                if refusal is not None and refusal.name in OUTPUT_UNWANTED_NAMES:
                    return refusal
                _log.info("upload_failed", lease=lease.id.hex(), reason=describe_fault(fault))
                await backoff.pause(self._clock)

    # -------------------------------------------------------------------------------------------- reporting

    async def _report(self, lease: LeaseRun, outcome: Outcome) -> None:
        """Spool the outcome, and the fence behind it. What is spooled is sent, and nothing is sent before (SP-005)."""
        lease.is_reported, records = True, self._outcome_records(lease, outcome)
        emitted = [*lease.emitted, *await self._emitter.emit_all(records[len(lease.emitted) :])]
        self._on_reported(lease, emitted)
        lease.outcome_spooled_at = await self._emitter.wait_spooled(records, emitted)

    def report_at_once(self, lease: LeaseRun, outcome: Outcome) -> None:
        """The same without waiting: `run` waits until it is spooled, and emits what the spool refuses now."""
        lease.outcome = outcome
        for record in self._outcome_records(lease, outcome):
            emitted = self._emitter.try_emit(*record)
            if emitted is None:
                return
            self._on_reported(lease, [*lease.emitted, emitted])

    def _on_reported(self, lease: LeaseRun, emitted: list[EmittedRecord]) -> None:
        lease.is_reported, lease.is_fenced, lease.emitted = True, len(emitted) > 1, emitted
        if lease.held_at != emitted[0].at:
            self.hold(lease, emitted[0].at)

    def _outcome_records(self, lease: LeaseRun, outcome: Outcome) -> list[LeaseRecord]:
        return [(outcome.payload_type, outcome.payload), self.fence(lease, outcome.payload_type, "")]

    def hold(self, lease: LeaseRun, at: SpooledAt | None) -> None:
        """EVD-006: the spool keeps the record that carries what the lease needs, instead of the one before."""
        before, lease.held_at = lease.held_at, at
        if at is not None:
            self._emitter.hold(at)
        if before is not None:
            self._emitter.release(before)

    def fence(self, lease: LeaseRun, status: str, reason: str) -> LeaseRecord:
        payload: dict[str, Any] = {"block_id": lease.id.hex(), "actual_end_utc_ms": self._clock.wall_ms()}
        return BLOCK_FENCE, payload | {"status": status, "reason": reason}

    async def _sign(self, draft: OutcomeDraft) -> Outcome:
        return draft.signed(await self._signer.sign(draft.to_sign))

    def _draft_completion(self, lease: LeaseRun, digest: bytes, size: int, inline: bytes | None) -> OutcomeDraft:
        took_ms = lease.took_ms(self._clock.monotonic_ms())
        work = lease.work or self._registry.find(lease.offer.kind, lease.offer.payload)
        declared = "" if isinstance(work, Refused) else media_type_of(*work)
        media_type = valid_media_type(lease.media_type) or declared
        return draft_completion(lease.offer, self._client.id, ProvedOutput(digest, size, took_ms, inline, media_type))
