"""The agent's leases: accepts or declines offers, renews leases, and ends them as the node decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import structlog

from holdfast.agent.executors.contract import AnyExecutor
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.group_signer import GroupSigner
from holdfast.agent.leases.lease_executor import LEASE_OVER_NAMES, LeaseExecutor
from holdfast.agent.leases.lease_run import LeaseEnd, LeaseRun, NodeView
from holdfast.agent.leases.offers import accepted_offer, forget_refused, lease_times
from holdfast.agent.leases.records import ACCEPTED, acceptance_payload
from holdfast.agent.leases.slots import Slots
from holdfast.agent.leases.spooled_leases import SpooledLeases
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.evidence_emitter import EmittedRecord, EvidenceEmitter
from holdfast.agent.transport.node_client import NodeClient
from holdfast.agent.transport.work_stream import ActResult, WorkStream
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.job.spec import WorkPayload
from holdfast.ports import Clock
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.signed_messages import AgentAct, to_sign_acceptance

HEARTBEAT_IDLE_MS: Final = 60_000
ACCEPT_MS: Final = 1_000
"""How long an offer waits for a spool that refuses records; then it is declined, well before its ACK is due."""
GIVE_BACK_MS: Final = 2_000
"""How long to wait for the answer to a decline; without one the lease stays on disk."""
END_MS: Final = 100
"""How long what is left at a stop may take; the next start continues with it."""
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
        spooled: SpooledLeases,
        executor: LeaseExecutor,
        client: NodeClient,
        signer: GroupSigner,
        clock: Clock,
        on_progress: Callable[[], None],
    ) -> None:
        self._settings, self._registry, self._work_dir, self._emitter = settings, registry, work_dir, emitter
        self._spooled, self._executor = spooled, executor
        self._client, self._signer, self._clock = client, signer, clock
        self.on_progress = on_progress
        self.leases: dict[bytes, LeaseRun] = {}
        self._slots = Slots(registry, settings.slots)
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        """What is being done for a lease; a lease that only awaits its end has none."""
        self._finishing: set[asyncio.Task[None]] = set()
        self._stream: WorkStream | None = None
        self._heartbeat_ms, self._heartbeat_due_ms = HEARTBEAT_IDLE_MS, 0
        self._changed, self.is_stopping, self.is_paused = asyncio.Event(), False, False
        self.watch_heartbeat: Callable[[asyncio.Future[ActResult] | None], None] = lambda _: None
        executor.on_declined = self._on_work_declined

    # -------------------------------------------------------------------------------------------- accepting

    def resume(self, lease: LeaseRun) -> None:
        """Resume a lease of an earlier process."""
        _log.info("lease_resumed", lease=lease.id.hex(), has_output=lease.has_output)
        self._add(lease)
        outcome_at, lease.is_fenced = self._spooled.outcome_at(lease.id), self._spooled.is_fenced(lease.id)
        if outcome_at is not None:  # it is not decided again: the spool delivers it
            lease.is_reported, lease.outcome_spooled_at = True, outcome_at
        elif lease.is_fenced:  # only its files are left
            lease.end("LOST", "an earlier process has ended it")
        else:
            self._spawn(lease, self._executor.run(lease))

    def _add(self, lease: LeaseRun) -> None:
        self._slots.forget(lease.id)
        self.leases[lease.id] = lease
        lease.ended.add_done_callback(partial(self._on_ended, lease))

    def on_offers(self, offers: Sequence[pb.Offer]) -> None:
        """All offers of a message. The new ones that fit are accepted together, with one signature."""
        self._client.set_node_time(offers[-1].time_ms)
        self._slots.count_running(self.leases.values())
        accepted = list[LeaseRun]()
        for offer in offers:
            lease = self.leases.get(offer.lease_id)
            if lease is not None:
                self._on_repeated(lease, offer)
            elif not offer.payload and not offer.is_acked:
                self._ack_unread(offer)
            elif not offer.is_submitted:  # else there is nothing to do: the node decides on the result
                lease = self._on_new(offer)
                if lease is not None:
                    accepted.append(lease)
        self._changed.set()
        self._accept(accepted)

    def _ack_unread(self, offer: pb.Offer) -> None:
        """JOB-010: the payload of a private job comes with the answer to the ACK, which takes a slot."""
        refusal = self._registry.why_not_offered(offer.kind, offer.requirements)
        reason = self._why_not_more(offer) or ("" if refusal is None else f"NOT_OFFERED: {refusal.message}")
        if reason:
            self._decline(offer.lease_id, reason)
        elif (answer := self._send(AgentAct("ack", lease_id=offer.lease_id))) is not None:
            self._slots.expect(offer.lease_id, self._registry.key_of(offer.kind, offer.requirements))
            answer.add_done_callback(partial(forget_refused, self._slots, offer.lease_id))

    def _on_repeated(self, lease: LeaseRun, offer: pb.Offer) -> None:
        lease.schedule_renewal(lease_times(offer), self._clock.monotonic_ms())
        if lease.is_on_disk:
            lease.on_node_view(NodeView.SUBMITTED if offer.is_submitted else NodeView.LIVE)
            if not offer.is_acked:
                self._query_lease(lease)

    def _on_new(self, offer: pb.Offer) -> LeaseRun | None:
        """The lease, if it is accepted."""
        if self._spooled.outcome_at(offer.lease_id) is not None:  # an earlier process has done it
            self.resume(LeaseRun.resumed(accepted_offer(offer), has_files=False))
            return None
        work = self._find_work(offer)
        if isinstance(work, str):
            self._slots.forget(offer.lease_id)
            self._decline(offer.lease_id, work)
            return None
        lease = LeaseRun(accepted_offer(offer))
        lease.work, lease.executor_key = work, self._registry.key_of(offer.kind, offer.requirements)
        self._slots.expect(lease.id, lease.executor_key)
        lease.schedule_renewal(lease_times(offer), self._clock.monotonic_ms())
        return lease

    def _find_work(self, offer: pb.Offer) -> tuple[AnyExecutor, WorkPayload] | str:
        """What is to be executed, or why the offer is declined."""
        if reason := self._why_not_more(offer):
            return reason
        found = self._registry.find(offer.kind, offer.payload)
        return f"NOT_OFFERED: {found.message}" if isinstance(found, Refused) else found

    def _why_not_more(self, offer: pb.Offer) -> str:
        if self.is_stopping or self.is_paused:
            return "STOPPING" if self.is_stopping else "PAUSED"
        if not self._emitter.is_ready:
            return "NO_ROOM_FOR_EVIDENCE"
        key = self._registry.key_of(offer.kind, offer.requirements)
        return self._slots.why_not(key, offer.lease_id)

    def _decline(self, lease_id: bytes, reason: str) -> None:
        _log.info("lease_declined", lease=lease_id.hex(), reason=reason)
        self._send(AgentAct("decline", lease_id=lease_id, reason=reason))

    def _on_work_declined(self, lease: LeaseRun, reason: str) -> None:
        self._decline(lease.id, reason)
        lease.end("DECLINED", reason)

    def _running_count(self) -> int:
        return sum(lease.is_working for lease in self.leases.values())

    def _accept(self, leases: list[LeaseRun]) -> None:
        """Spool the offers, each with its acceptance; delivered, that is the ACK. The work begins meanwhile.

        What takes no time is done first: acceptances and outcomes have one signature, and are spooled together.
        """
        drafts = [self._executor.execute_at_once(lease) for lease in leases]
        messages = [to_sign_acceptance(lease.id) for lease in leases]
        signatures = self._signer.sign_all([*messages, *(draft.to_sign for draft in drafts if draft is not None)])
        outcome_signatures = iter(signatures[len(leases) :])
        for lease, draft, signature in zip(leases, drafts, signatures, strict=False):
            outcome = None if draft is None else draft.signed(next(outcome_signatures))
            self._add(lease)
            if lease.offer.is_small and self._emit_acceptance(lease, signature):
                if outcome is not None:
                    self._executor.report_at_once(lease, outcome)
                self._spawn(lease, self._executor.run(lease))
            else:
                lease.outcome = outcome
                self._spawn(lease, self._accept_later(lease, signature))

    def _emit_acceptance(self, lease: LeaseRun, signature: bytes) -> bool:
        emitted = self._emitter.try_emit(ACCEPTED, acceptance_payload(lease.offer, signature))
        if emitted is not None:
            self._on_accepted(lease, emitted)
        return emitted is not None

    def _on_accepted(self, lease: LeaseRun, emitted: EmittedRecord) -> None:
        lease.accepted = emitted.ticket
        if lease.offer.is_small:
            self._executor.hold(lease, emitted.at)

    async def _accept_later(self, lease: LeaseRun, signature: bytes) -> None:
        """A large offer is a file before it is acknowledged; a spool that has just ended is replaced in a moment."""
        try:
            if not lease.offer.is_small:
                await self._executor.store_offer(lease)
            async with asyncio.timeout(ACCEPT_MS / 1_000):
                emitted = await self._emitter.emit(ACCEPTED, acceptance_payload(lease.offer, signature))
        except Unavailable as fault:
            _log.error("offer_not_stored", lease=lease.id.hex(), reason=str(fault))
            return self._drop(lease, "NO_DISK")
        except TimeoutError:
            return self._drop(lease, "NO_ROOM_FOR_EVIDENCE")
        self._on_accepted(lease, emitted)
        return await self._executor.run(lease)

    def _drop(self, lease: LeaseRun, reason: str) -> None:
        """A lease that could not be stored is declined. There is no evidence of it, and no fence."""
        lease.is_fenced = True
        self._on_work_declined(lease, reason)

    def _spawn(self, lease: LeaseRun, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[lease.id] = asyncio.create_task(work)
        task.add_done_callback(partial(self._on_task_done, lease))

    def _on_task_done(self, lease: LeaseRun, task: asyncio.Task[None]) -> None:
        self._tasks.pop(lease.id, None)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.leases.pop(lease.id, None)
            _log.error("lease_abandoned", lease=lease.id.hex(), reason=repr(fault), hint="the next start resumes it")

    # -------------------------------------------------------------------------------------------- ending

    def _on_ended(self, lease: LeaseRun, ended: asyncio.Future[LeaseEnd]) -> None:
        """The verdict is final, or the lease is lost: nothing of it is needed any more (EVD-006)."""
        if ended.cancelled():
            return
        end = ended.result()
        log = _log.debug if end.cause == "VERDICT" and end.reason == "accepted" else _log.info
        log("lease_ended", lease=lease.id.hex(), cause=end.cause, reason=end.reason)
        if end.cause == "VERDICT" and not lease.is_reported:
            lease.is_fenced = True  # an earlier process has reported it
        tasks = [each for each in (self._tasks.get(lease.id), lease.reporting_start) if each and not each.done()]
        if tasks or lease.has_files or not lease.is_fenced:
            finishing = asyncio.create_task(self._finish(lease, tasks, end))
            self._finishing.add(finishing)
            finishing.add_done_callback(self._finishing.discard)
            return
        self._executor.hold(lease, None)
        self.leases.pop(lease.id, None)

    async def _finish(self, lease: LeaseRun, tasks: list[asyncio.Task[None]], end: LeaseEnd) -> None:
        """Stop what is being done, emit the fence behind what it has told (EVD-005), and remove the files."""
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not lease.is_fenced:
            await self._emitter.emit(*self._executor.fence(lease, end.cause, end.reason))
            lease.is_fenced = True
        self._executor.hold(lease, None)
        try:
            if lease.has_files:
                await self._work_dir.remove(lease.id)
        except Unavailable as fault:  # the next start resumes it, and the node answers that it is over
            _log.error("lease_not_removed", lease=lease.id.hex(), reason=str(fault))
        self.leases.pop(lease.id, None)

    # -------------------------------------------------------------------------------------------- receiving

    def on_welcome(self, stream: WorkStream, welcome: pb.Welcome) -> None:
        """Send a heartbeat, and query every lease: the node may have ended it while the stream was closed."""
        self._client.set_node_time(welcome.time_ms)
        self._stream, self._heartbeat_ms, self._heartbeat_due_ms = stream, max(1, welcome.heartbeat_ms), 0
        for lease in self.leases.values():
            if lease.is_on_disk:
                self._query_lease(lease)
        self._changed.set()
        _log.info("work_stream_open", status=welcome.status, heartbeat_ms=welcome.heartbeat_ms)

    def on_stream_ended(self) -> None:
        self._stream = None
        self._slots.clear()

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    def on_lost(self, lease_id: bytes, reason: str) -> None:
        self._slots.forget(lease_id)
        if (lease := self.leases.get(lease_id)) is not None:
            lease.end("LOST", reason)

    def on_verdict(self, lease_id: bytes, is_accepted: bool, reason: str) -> None:
        """The verdict is final, whatever it is."""
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
        for lease in [lease for lease in self.leases.values() if lease.is_unreported and lease.is_on_disk]:
            if lease.renew_due_ms is not None and lease.renew_due_ms <= now_ms:
                self._renew(lease)
        unreported = (lease.renew_due_ms for lease in self.leases.values() if lease.is_unreported)
        dues = [due_ms for due_ms in unreported if due_ms is not None]
        return max(1, min([self._heartbeat_due_ms, *dues]) - self._clock.monotonic_ms())

    def send_heartbeat(self) -> None:
        """PRV-002. It also queries leases that wait for a verdict, which may have been sent while disconnected."""
        is_closed = self.is_stopping or self.is_paused or not self._emitter.is_ready
        slots = 0 if is_closed else self._settings.slots
        self.watch_heartbeat(self._send(self._client.make_heartbeat(slots, self._running_count())))
        for lease in self.leases.values():
            if lease.outcome_spooled_at is not None:
                self._query_lease(lease)

    def _renew(self, lease: LeaseRun) -> None:
        renewal, lease.renew_due_ms = lease.renewals + 1, None
        answer = self._send(AgentAct("renew", lease_id=lease.id, renewal=renewal))
        if answer is not None:
            answer.add_done_callback(partial(self._on_renewed, lease, renewal))
        self._executor.reports.report_renewal(lease, renewal, self._clock.monotonic_ms())

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
        await self._executor.store_unreported(list(self.leases.values()))
        for group in (self._tasks.values(), self._finishing):  # the second wait for the first
            tasks = [*group]
            if tasks:
                await asyncio.wait(tasks, timeout=END_MS / 1_000)
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
