"""Runs a lease: execute, store the output, upload it, report the outcome as evidence, await the verdict (EVD-005).

Every step begins from what is on disk, so that a crash at any point only repeats that step.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from holdfast.agent.executors.execute import REASON_MAX, Failed, execute
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.lease_run import LeaseRun, NodeView
from holdfast.agent.leases.work_dir import Outcome, WorkDir
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter
from holdfast.agent.transport.node_client import NodeClient
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.proof.envelope import ProofType, body_of, signed_bytes
from holdfast.core.result.ids import result_digest
from holdfast.ports import Clock, Signer
from holdfast.shipping.backoff import Backoff, Draw
from holdfast.shipping.node_connection import RpcFault, describe_fault, refusal_of
from holdfast.spool.files.record import BLOCK_FENCE
from holdfast.wire.signed_messages import to_sign_failure

ACCEPTED, STARTED, PROGRESS = "LEASE_ACCEPTED", "EXECUTION_STARTED", "PROGRESS"
READY, COMPLETED, FAILED = "OUTPUT_READY", "LEASE_COMPLETED", "LEASE_FAILED"
LEASE_OVER_NAMES: Final = frozenset({"LeaseLost", "NotFound"})
"""Refusals by which the node says that a lease is over."""
OUTPUT_UNWANTED_NAMES: Final = frozenset({"InvalidParams", "InvalidRequest", "TooLarge", "Forbidden"})
"""Refusals after which a retry of the upload is useless."""
_log = structlog.get_logger()


class LeaseExecutor:
    """Runs the remaining steps of a lease."""

    def __init__(
        self,
        *,
        settings: AgentSettings,
        registry: ExecutorRegistry,
        work_dir: WorkDir,
        emitter: EvidenceEmitter,
        client: NodeClient,
        signer: Signer,
        clock: Clock,
        draw: Draw,
    ) -> None:
        self._settings, self._registry, self._work_dir = settings, registry, work_dir
        self._emitter, self._client, self._signer, self._clock = emitter, client, signer, clock
        self._draw = draw

    async def run(self, lease: LeaseRun) -> None:
        """Until the lease is over: a verdict, a loss, or a failure that the node has received."""
        steps = asyncio.create_task(self._run_with_retries(lease), name=f"lease {lease.id.hex()[:8]}")
        ends: list[asyncio.Future[Any]] = [steps, lease.ended]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            steps.cancel()
            await asyncio.gather(steps, return_exceptions=True)
        end = lease.ended.result()
        _log.info("lease_ended", lease=lease.id.hex(), cause=end.cause, reason=end.reason)
        if lease.outcome_spooled_at is None and end.cause != "VERDICT":
            await self._emit_fence(lease, end.cause, end.reason)
        elif lease.is_spooling_outcome and lease.outcome is not None:  # the verdict arrived before the spool's ticket
            await self._emit_fence(lease, lease.outcome.payload_type, "")
        try:
            await self._work_dir.remove(lease.id)
        except Unavailable as fault:  # the next start resumes it, and the node answers that it is over
            _log.error("lease_not_removed", lease=lease.id.hex(), reason=str(fault))

    async def _run_with_retries(self, lease: LeaseRun) -> None:
        """A failing disk is retried: the lease is not lost while its offer is stored."""
        backoff = Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
        while not lease.ended.done():
            try:
                await self._run_steps(lease)
            except Unavailable as fault:
                _log.error("lease_waiting_for_disk", lease=lease.id.hex(), reason=str(fault))
                await backoff.pause(self._clock)
            except Exception as fault:
                _log.exception("lease_failed_by_agent_error", lease=lease.id.hex())
                await self._store_outcome(lease, self._make_failure(lease, f"AGENT_ERROR: {type(fault).__name__}"))

    async def _run_steps(self, lease: LeaseRun) -> None:
        if lease.outcome is None:
            if not lease.has_output:
                await self._execute(lease)
            if lease.outcome is None:
                await self._upload_output(lease)
        if lease.outcome_spooled_at is None:
            await self._spool_outcome(lease)
        if lease.outcome is not None and lease.outcome.payload_type == FAILED and lease.outcome_spooled_at is not None:
            await self._emitter.wait_delivered(lease.outcome_spooled_at)
            lease.end(FAILED, str(lease.outcome.payload["reason"]))
        await asyncio.shield(lease.ended)

    # -------------------------------------------------------------------------------------------- steps

    async def _execute(self, lease: LeaseRun) -> None:
        if lease.is_resumed and lease.offer.t_deadline_ms <= self._clock.wall_ms() + self._client.offset_ms:
            await asyncio.shield(lease.node_view)  # its deadline seems to be over: the node decides
        match = self._registry.find(lease.offer.kind, lease.offer.payload)
        if isinstance(match, Refused):
            return await self._store_outcome(lease, self._make_failure(lease, f"NOT_OFFERED: {match.message}"))
        executor, payload = match
        lease.started_ms = self._clock.monotonic_ms()
        await self._emitter.emit(STARTED, {"lease_id": lease.id.hex(), "attempt": lease.offer.attempt})
        output = await execute(executor, payload, self._settings.execution_ms_max)
        if isinstance(output, Failed):
            return await self._store_outcome(lease, self._make_failure(lease, output.reason))
        await self._work_dir.store_output(lease.id, output)
        lease.has_output = True
        return None

    async def _upload_output(self, lease: LeaseRun) -> None:
        """EVD-006: the node has the bytes before the completion is reported. They are stored here as well."""
        output = await self._work_dir.read_output(lease.id)
        digest, size = result_digest(output), len(output)
        if self._emitter.spooled_before(READY, lease.id) is None:
            await self._emitter.emit(READY, {"lease_id": lease.id.hex(), "digest": digest.hex(), "size": size})
        refusal = await self._upload_with_retries(lease, digest, output)
        if refusal is not None:
            reason = f"OUTPUT_REFUSED: {refusal.name}: {refusal.message}"
            return await self._store_outcome(lease, self._make_failure(lease, reason))
        return await self._store_outcome(lease, self._make_completion(lease, digest, size))

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

    async def _store_outcome(self, lease: LeaseRun, outcome: Outcome) -> None:
        """From here on the outcome of the lease is decided."""
        await self._work_dir.store_outcome(lease.id, outcome)
        lease.outcome = outcome

    async def _spool_outcome(self, lease: LeaseRun) -> None:
        """Spool the outcome once. Whether an earlier process has done so is known from its spool or from the node."""
        outcome = lease.outcome
        assert outcome is not None
        lease.outcome_spooled_at = self._emitter.spooled_before(outcome.payload_type, lease.id)
        if lease.outcome_spooled_at is not None:
            return
        if lease.is_in_doubt and await asyncio.shield(lease.node_view) is NodeView.SUBMITTED:
            return
        lease.is_spooling_outcome = True
        lease.outcome_spooled_at = await self._emitter.emit_spooled(outcome.payload_type, outcome.payload)
        await self._emit_fence(lease, outcome.payload_type, "")
        lease.is_spooling_outcome = False

    async def _emit_fence(self, lease: LeaseRun, status: str, reason: str) -> None:
        payload: dict[str, Any] = {"block_id": lease.id.hex(), "actual_end_utc_ms": self._clock.wall_ms()}
        await self._emitter.emit(BLOCK_FENCE, payload | {"status": status, "reason": reason})

    # -------------------------------------------------------------------------------------------- outcomes

    def _make_completion(self, lease: LeaseRun, digest: bytes, size: int) -> Outcome:
        offer, kind = lease.offer, ProofType[lease.offer.kind]
        took_ms = self._clock.monotonic_ms() - lease.started_ms if lease.started_ms else 0
        body = body_of(offer.task_id, lease.id, self._client.id, digest, size, {"took_ms": took_ms})
        signature = self._signer.sign(signed_bytes(kind, offer.proof, body))
        proof = {"lease_id": lease.id.hex(), "type": int(kind), "method": offer.proof}
        return Outcome(COMPLETED, proof | {"body": body.hex(), "signature": signature.hex()})

    def _make_failure(self, lease: LeaseRun, reason: str) -> Outcome:
        reason = reason.encode("utf-8", "replace").decode()[:REASON_MAX]
        signature = self._signer.sign(to_sign_failure(lease.id, reason))
        return Outcome(FAILED, {"lease_id": lease.id.hex(), "reason": reason, "signature": signature.hex()})
