"""The agent's leases: accepts or declines offers, renews leases, and ends them as the node decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.lease_executor import ACCEPTED, LEASE_OVER_NAMES, PROGRESS, LeaseExecutor
from holdfast.agent.leases.lease_run import LeaseRun, LeaseTimes, NodeView
from holdfast.agent.leases.work_dir import AcceptedOffer, ResumedLease, WorkDir
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter
from holdfast.agent.transport.node_client import NodeClient
from holdfast.agent.transport.work_stream import ActResult, WorkStream
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.ports import Clock
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.signed_messages import AgentAct

HEARTBEAT_IDLE_MS: Final = 60_000
GIVE_BACK_MS: Final = 2_000
"""How long to wait for the answer to a decline; without one the lease stays on disk."""
_log = structlog.get_logger()


class ActiveLeases:
    """All leases of this process, and the open work stream, if there is one."""

    def __init__(
        self,
        *,
        settings: AgentSettings,
        registry: ExecutorRegistry,
        work_dir: WorkDir,
        emitter: EvidenceEmitter,
        executor: LeaseExecutor,
        client: NodeClient,
        clock: Clock,
        on_progress: Callable[[], None],
    ) -> None:
        self._settings, self._registry, self._work_dir = settings, registry, work_dir
        self._emitter, self._executor, self._client, self._clock = emitter, executor, client, clock
        self.on_progress = on_progress
        self.leases: dict[bytes, LeaseRun] = {}
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._progress_tasks: set[asyncio.Task[None]] = set()
        self._stream: WorkStream | None = None
        self._heartbeat_ms, self._heartbeat_due_ms = HEARTBEAT_IDLE_MS, 0
        self._changed = asyncio.Event()
        self.is_stopping = False

    # -------------------------------------------------------------------------------------------- accepting

    def resume(self, resumed: ResumedLease) -> None:
        """Resume a lease of an earlier process."""
        lease = self.leases[resumed.offer.lease_id] = LeaseRun.from_resumed(resumed)
        _log.info("lease_resumed", lease=lease.id.hex(), has_output=lease.has_output)
        self._spawn(lease, self._executor.run(lease))

    def on_offer(self, offer: pb.Offer) -> None:
        """A known lease: the node repeats its offer. A new one: accept it, if there is a free slot."""
        self._client.set_node_time(offer.time_ms)
        lease = self.leases.get(offer.lease_id)
        if lease is None and offer.is_submitted:
            return  # nothing to do: the node decides on the result
        if lease is None and (reason := self._why_not_accept(offer)):
            _log.info("lease_declined", lease=offer.lease_id.hex(), reason=reason)
            self._send(AgentAct("decline", lease_id=offer.lease_id, reason=reason))
            return
        is_new = lease is None
        if lease is None:
            lease = self.leases[offer.lease_id] = LeaseRun(_accepted_offer(offer))
        lease.schedule_renewal(_lease_times(offer), self._clock.monotonic_ms())
        self._changed.set()
        if is_new:
            self._spawn(lease, self._accept(lease))
        elif lease.is_offer_stored:
            lease.on_node_view(NodeView.SUBMITTED if offer.is_submitted else NodeView.LIVE)
            if not offer.is_acked:
                self._query_lease(lease)

    def _why_not_accept(self, offer: pb.Offer) -> str:
        if self.is_stopping:
            return "STOPPING"
        if not self._emitter.is_ready:
            return "NO_ROOM_FOR_EVIDENCE"
        if self._running_count() >= self._settings.slots:
            return "FULL"
        found = self._registry.find(offer.kind, offer.payload)
        return f"NOT_OFFERED: {found.message}" if isinstance(found, Refused) else ""

    def _running_count(self) -> int:
        return sum(lease.is_working for lease in self.leases.values())

    async def _accept(self, lease: LeaseRun) -> None:
        """Store the offer, then acknowledge it, then execute it."""
        try:
            await self._work_dir.store_offer(lease.offer)
        except Unavailable as fault:
            _log.error("lease_declined", lease=lease.id.hex(), reason=str(fault))
            self._send(AgentAct("decline", lease_id=lease.id, reason="NO_DISK"))
            return
        lease.is_offer_stored = True
        self._query_lease(lease)
        await self._emitter.emit(ACCEPTED, {"lease_id": lease.id.hex(), "task_id": lease.offer.task_id.hex()})
        await self._executor.run(lease)

    def _spawn(self, lease: LeaseRun, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[lease.id] = asyncio.create_task(work)
        task.add_done_callback(partial(self._on_task_done, lease))

    def _on_task_done(self, lease: LeaseRun, task: asyncio.Task[None]) -> None:
        self.leases.pop(lease.id, None)
        self._tasks.pop(lease.id, None)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("lease_abandoned", lease=lease.id.hex(), reason=repr(fault), hint="the next start resumes it")

    # -------------------------------------------------------------------------------------------- receiving

    def on_welcome(self, stream: WorkStream, welcome: pb.Welcome) -> None:
        """Send a heartbeat, and query every lease: the node may have ended it while the stream was closed."""
        self._client.set_node_time(welcome.time_ms)
        self._stream, self._heartbeat_ms, self._heartbeat_due_ms = stream, max(1, welcome.heartbeat_ms), 0
        for lease in self.leases.values():
            if lease.is_offer_stored:
                self._query_lease(lease)
        self._changed.set()
        _log.info("work_stream_open", status=welcome.status, heartbeat_ms=welcome.heartbeat_ms)

    def on_stream_ended(self) -> None:
        self._stream = None

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    def on_lost(self, lease_id: bytes, reason: str) -> None:
        if (lease := self.leases.get(lease_id)) is not None:
            lease.end("LOST", reason)

    def on_verdict(self, lease_id: bytes, is_accepted: bool, reason: str) -> None:
        """The verdict is final: whatever it is, the lease's files are not needed any more (EVD-006)."""
        if (lease := self.leases.get(lease_id)) is not None:
            lease.end("VERDICT", "accepted" if is_accepted else f"refused: {reason}")

    def on_node_draining(self) -> None:
        _log.info("node_draining", hint="work continues and is submitted when the node is back")

    # -------------------------------------------------------------------------------------------- sending

    def _send(self, act: AgentAct) -> asyncio.Future[ActResult] | None:
        return self._stream.send(act) if self._stream is not None else None

    def _query_lease(self, lease: LeaseRun) -> None:
        """Send an ACK: the node applies it once and answers every repeat, so the answer tells the lease's state."""
        answer = self._send(AgentAct("ack", lease_id=lease.id))
        if answer is not None:
            answer.add_done_callback(partial(self._on_act_result, lease))

    def _on_act_result(self, lease: LeaseRun, answer: asyncio.Future[ActResult]) -> bool:
        """Update the lease from the answer to an act; whether the act was done."""
        if answer.cancelled():
            return False
        result = answer.result()
        if result.is_done:
            lease.on_node_view(NodeView.LIVE)
        elif result.name in LEASE_OVER_NAMES:
            lease.end("LOST", result.message)
        elif result.rule == "RCV-001":
            lease.on_node_view(NodeView.SUBMITTED)
        else:
            _log.warning("act_refused", lease=lease.id.hex(), rule=result.rule, reason=result.message)
        return result.is_done

    async def heartbeat_loop(self) -> None:
        """Heartbeats and renewals, each when it is due, while a stream is open."""
        while True:
            self._changed.clear()
            wait_ms = self._run_due() if self._stream is not None else HEARTBEAT_IDLE_MS
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _run_due(self) -> int:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._heartbeat_due_ms:
            self._heartbeat_due_ms = now_ms + self._heartbeat_ms
            self.send_heartbeat()
        for lease in [lease for lease in self.leases.values() if lease.is_unreported and lease.is_offer_stored]:
            if lease.renew_due_ms is not None and lease.renew_due_ms <= now_ms:
                self._renew(lease)
        unreported = (lease.renew_due_ms for lease in self.leases.values() if lease.is_unreported)
        dues = [due_ms for due_ms in unreported if due_ms is not None]
        return max(1, min([self._heartbeat_due_ms, *dues]) - self._clock.monotonic_ms())

    def send_heartbeat(self) -> None:
        """PRV-002. It also queries leases that wait for a verdict, which may have been sent while disconnected."""
        slots = 0 if self.is_stopping or not self._emitter.is_ready else self._settings.slots
        self._send(self._client.make_heartbeat(slots, self._running_count()))
        for lease in self.leases.values():
            if lease.outcome_spooled_at is not None and lease.is_offer_stored:
                self._query_lease(lease)

    def _renew(self, lease: LeaseRun) -> None:
        renewal, lease.renew_due_ms = lease.renewals + 1, None
        answer = self._send(AgentAct("renew", lease_id=lease.id, renewal=renewal))
        if answer is not None:
            answer.add_done_callback(partial(self._on_renewed, lease, renewal))
        took_ms = self._clock.monotonic_ms() - lease.started_ms if lease.started_ms else 0
        payload = {"lease_id": lease.id.hex(), "took_ms": took_ms, "renewal": renewal}
        task = asyncio.create_task(self._emitter.emit(PROGRESS, payload))  # a full spool must not delay heartbeats
        self._progress_tasks.add(task)
        task.add_done_callback(self._progress_tasks.discard)

    def _on_renewed(self, lease: LeaseRun, renewal: int, answer: asyncio.Future[ActResult]) -> None:
        """A refused renewal is not repeated: the lease cannot be extended, or the next offer has new times."""
        if self._on_act_result(lease, answer):
            lease.on_renewed(renewal, self._clock.monotonic_ms())
            self._changed.set()

    # -------------------------------------------------------------------------------------------- stopping

    async def drain(self, timeout_ms: int) -> None:
        """Accept nothing more; finish what runs within the timeout; then decline what is not done."""
        self.is_stopping = True
        self.send_heartbeat()
        until_ms = self._clock.monotonic_ms() + timeout_ms
        while any(lease.is_unreported for lease in self.leases.values()) and self._clock.monotonic_ms() < until_ms:
            await self._clock.sleep(20)
        declines = [
            self._give_back(lease) for lease in self.leases.values() if lease.is_unreported and not lease.has_output
        ]
        await asyncio.gather(*declines)
        tasks = [*self._tasks.values(), *self._progress_tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _give_back(self, lease: LeaseRun) -> None:
        """LEA-006: decline, so that the job is offered to others at once. Without a stream the lease stays on disk."""
        answer = self._send(AgentAct("decline", lease_id=lease.id, reason="STOPPING"))
        if answer is None:
            return
        await asyncio.wait({answer}, timeout=GIVE_BACK_MS / 1000)
        if answer.done() and not answer.cancelled() and answer.result().is_done:
            lease.end("GIVEN_BACK", "STOPPING")


def _accepted_offer(offer: pb.Offer) -> AcceptedOffer:
    return AcceptedOffer(
        lease_id=offer.lease_id,
        task_id=offer.task_id,
        kind=offer.kind,
        attempt=offer.attempt,
        payload=offer.payload,
        proof=offer.proof,
        t_deadline_ms=offer.t_deadline_ms,
    )


def _lease_times(offer: pb.Offer) -> LeaseTimes:
    return LeaseTimes(offer.time_ms, offer.renew_by_ms, offer.t_deadline_ms, offer.renewals)
