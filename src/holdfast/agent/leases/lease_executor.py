"""Runs a lease: execute, report the outcome as evidence, with its output or after its upload (EVD-005).

Every step begins from what is on disk, so that a crash at any point only repeats that step. A small output travels in
the record of the completion; a larger one is a file until the verdict is final, and is uploaded before it is reported.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from holdfast.agent.executors.contract import ExecutorIsolation
from holdfast.agent.executors.execute import REASON_MAX, Failed, execute, execute_inline
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.group_signer import GroupSigner
from holdfast.agent.leases.lease_run import LeaseRun, NodeView
from holdfast.agent.leases.records import COMPLETED, FAILED, READY, STARTED, Outcome
from holdfast.agent.leases.spooled_leases import SpooledLeases
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter, LeaseRecord, SpooledAt
from holdfast.agent.transport.node_client import NodeClient
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.proof.envelope import ProofType, body_of, signed_bytes
from holdfast.core.result.ids import result_digest
from holdfast.ports import Clock
from holdfast.shipping.backoff import Backoff, Draw
from holdfast.shipping.node_connection import RpcFault, describe_fault, refusal_of
from holdfast.spool.files.record import BLOCK_FENCE
from holdfast.wire.signed_messages import OUTPUT_INLINE_BYTES_MAX, to_sign_failure

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
                lease.outcome = await self._make_failure(lease, f"AGENT_ERROR: {type(fault).__name__}")
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

    # -------------------------------------------------------------------------------------------- steps

    async def _execute(self, lease: LeaseRun) -> Outcome:
        if lease.is_resumed and lease.offer.t_deadline_ms <= self._clock.wall_ms() + self._client.offset_ms:
            await asyncio.shield(lease.node_view)  # its deadline seems to be over: the node decides
        match = lease.work or self._registry.find(lease.offer.kind, lease.offer.payload)
        if isinstance(match, Refused):
            return await self._make_failure(lease, f"NOT_OFFERED: {match.message}")
        executor, payload = match
        lease.started_ms = self._clock.monotonic_ms()
        if executor.isolation is ExecutorIsolation.INLINE:
            output = execute_inline(executor, payload)
        else:
            long_run = asyncio.get_running_loop().call_later(LONG_MS / 1_000, self._on_long_run, lease)
            try:
                output = await execute(executor, payload, self._settings.execution_ms_max)
            finally:
                long_run.cancel()
        if isinstance(output, Failed):
            return await self._make_failure(lease, output.reason)
        if len(output) <= OUTPUT_INLINE_BYTES_MAX:
            return await self._make_completion(lease, result_digest(output), len(output), output)
        if not lease.has_files:
            await self.store_offer(lease)
        await self._work_dir.store_output(lease.id, output)
        lease.has_output = True
        return await self._upload_output(lease)

    def _on_long_run(self, lease: LeaseRun) -> None:
        """The lease's own task waits for the executor: another one reports that it has started."""
        lease.reporting_start = asyncio.create_task(self._report_start(lease))

    async def _report_start(self, lease: LeaseRun) -> None:
        await self._emitter.emit(STARTED, {"lease_id": lease.id.hex(), "attempt": lease.offer.attempt})
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
            return await self._make_failure(lease, f"OUTPUT_REFUSED: {refusal.name}: {refusal.message}")
        return await self._make_completion(lease, digest, size)

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
        records = [(outcome.payload_type, outcome.payload), self.fence(lease, outcome.payload_type, "")]
        emitted = await self._emitter.emit_all(records)
        lease.is_reported = True
        self.hold(lease, emitted[0].at)
        lease.outcome_spooled_at = await self._emitter.wait_spooled(records, emitted)

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

    # -------------------------------------------------------------------------------------------- outcomes

    async def _make_completion(self, lease: LeaseRun, digest: bytes, size: int, output: bytes | None = None) -> Outcome:
        """With its output, or for one that was uploaded."""
        offer, kind = lease.offer, ProofType[lease.offer.kind]
        took_ms = self._clock.monotonic_ms() - lease.started_ms if lease.started_ms else 0
        body = body_of(offer.task_id, lease.id, self._client.id, digest, size, {"took_ms": took_ms})
        signature = await self._signer.sign(signed_bytes(kind, offer.proof, body))
        payload: dict[str, Any] = {"lease_id": lease.id.hex(), "type": int(kind), "method": offer.proof}
        payload |= {"body": body.hex(), "signature": signature.hex()}
        if output is not None:
            payload["output"] = output
        return Outcome(COMPLETED, payload)

    async def _make_failure(self, lease: LeaseRun, reason: str) -> Outcome:
        reason = reason.encode("utf-8", "replace").decode()[:REASON_MAX]
        signature = await self._signer.sign(to_sign_failure(lease.id, reason))
        return Outcome(FAILED, {"lease_id": lease.id.hex(), "reason": reason, "signature": signature.hex()})
