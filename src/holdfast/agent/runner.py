"""The agent: registers at its node, receives leases on the work stream, and executes them. Killed at any point, it
resumes from disk.

Signer, clock and executors are passed in.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from holdfast.agent.control import DRAIN, PAUSE, RESUME, STATUS, ControlSocket
from holdfast.agent.executors.contract import WorkFailed
from holdfast.agent.executors.health import probe_loop
from holdfast.agent.executors.own_work import SCRATCH, WorkSource
from holdfast.agent.executors.programs.limits import warn_of_missing_isolation
from holdfast.agent.executors.programs.process import kill_leftovers
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.active_leases import ActiveLeases
from holdfast.agent.leases.group_signer import GroupSigner
from holdfast.agent.leases.lease_executor import LeaseExecutor
from holdfast.agent.leases.lease_run import LeaseRun
from holdfast.agent.leases.spooled_leases import SpooledLeases
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.settings import AgentSettings
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter
from holdfast.agent.transport.node_client import NodeClient, RegistrationStatus
from holdfast.agent.transport.work_stream import ActResult, WorkStream
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import ProviderId
from holdfast.core.provider.model import ProviderStatus, provider_id
from holdfast.ports import Clock, Signer
from holdfast.shipping.backoff import Backoff, Draw
from holdfast.shipping.evidence_transport import NodeEvidenceStream
from holdfast.shipping.metrics_endpoint import MetricsEndpoint
from holdfast.shipping.node_connection import NodeConnection, ProtocolError, RpcFault, Tls, describe_fault, refusal_of
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool import Spool, SpoolPolicy

REGISTRATION_POLL_MS: Final = 2_000
"""How often a provider that is not active checks its status."""
DRAIN_POLL_MS: Final = 50
_log = structlog.get_logger()


class Agent:
    """One provider's process, of one event loop. `run` it until a stop is requested, or `start` and `stop` it."""

    def __init__(
        self,
        settings: AgentSettings,
        registry: ExecutorRegistry,
        signer: Signer,
        clock: Clock,
        draw: Draw,
        *,
        tls: Tls | None = None,
        spool_policy: SpoolPolicy | None = None,
        id_: ProviderId | None = None,
        on_registration: Callable[[RegistrationStatus], None] = lambda _: None,
    ) -> None:
        self.settings, self._registry, self._signer, self._clock = settings, registry, signer, clock
        self._draw, self._tls, self._spool_policy, self._on_registration = draw, tls, spool_policy, on_registration
        self.id = provider_id(signer.public) if id_ is None else id_
        """The provider's id, from its first key, whichever key it signs with now (PRV-003)."""
        self.registration: RegistrationStatus | None = None
        """The status at the node; None before the first registration."""
        self._work_dir = WorkDir(settings.data / "work")
        self.sender_metrics = SenderMetrics()
        self._stream_backoff = self._make_backoff()
        self._tasks: list[asyncio.Task[None]] = []
        self._drained = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        answers = {STATUS: self.status, PAUSE: self.pause, RESUME: self.resume, DRAIN: self.drain}
        self._control = ControlSocket(settings.data, answers)

    def _make_backoff(self) -> Backoff:
        return Backoff(self.settings.retry_base_ms, self.settings.retry_cap_ms, self._draw)

    # -------------------------------------------------------------------------------------------- lifecycle

    async def run(self, stop_requested: asyncio.Event) -> None:
        """Until a stop is requested; raises what made it fail."""
        await self.start()
        ends = {asyncio.create_task(event.wait()) for event in (stop_requested, self._drained)}
        await asyncio.wait({*ends, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        is_asked = stop_requested.is_set() or self._drained.is_set()
        _log.info("stopping", reason="requested" if is_asked else "failed")
        for end in ends:
            end.cancel()
        failed = [task for task in self._tasks if task.done()]
        await self.stop()
        for task in failed:
            task.result()

    async def start(self) -> None:
        """Resume what is on disk, then connect. Unavailable where the work folder or the spool cannot be used."""
        on_disk = await asyncio.to_thread(self._work_dir.open)
        self._assemble()
        await self._prepare_executors()
        await self.emitter.open(self.spooled.add)
        if self.settings.metrics_port is not None:
            port = await self._metrics_endpoint.open(self.settings.metrics_port)
            _log.info("metrics_serving", url=f"http://127.0.0.1:{port}/metrics")
        for stored in on_disk:
            self.leases.resume(LeaseRun.resumed(stored.offer, has_files=True, has_output=stored.has_output))
        for offer in self.spooled.unfinished():
            if offer.lease_id not in self.leases.leases:
                self.leases.resume(LeaseRun.resumed(offer, has_files=False))
        await self.emitter.delete_ended(self.spooled.needed_sessions())
        await self._control.open()
        self._tasks = [
            asyncio.create_task(self._work_stream_loop(), name="work stream"),
            asyncio.create_task(self.leases.heartbeat_loop(), name="heartbeat"),
            asyncio.create_task(self._registration_loop(), name="registration"),
            asyncio.create_task(probe_loop(self._registry, self._clock), name="probes"),
        ]

    async def _prepare_executors(self) -> None:
        """Remove what a crash left, say what this machine cannot isolate, and warm up what can be."""
        scratch = (self.settings.data / SCRATCH).absolute()
        if scratch.exists():
            await asyncio.to_thread(kill_leftovers, scratch)
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        if any(own.source in (WorkSource.EXEC, WorkSource.PYTHON) for own in self.settings.executors):
            await asyncio.to_thread(warn_of_missing_isolation)
        for (kind, name), executor in self._registry.executors:
            warm_up = getattr(executor, "warm_up", None)
            if warm_up is None:
                continue
            try:
                await warm_up()
            except (WorkFailed, OSError, TimeoutError) as fault:
                await self._close_executors()
                self._work_dir.close()
                raise Unavailable("JOB-012", f"{kind}:{name} does not start: {fault}", "run it by hand") from fault
            _log.info("executor_warm", kind=kind, name=name)

    async def _close_executors(self) -> None:
        for _, executor in self._registry.executors:
            close = getattr(executor, "close", None)
            if close is not None:
                await close()

    def _assemble(self) -> None:
        """Create everything that belongs to the event loop."""
        settings, signer, clock = self.settings, self._signer, self._clock
        self._connection = NodeConnection(settings.node, self._tls)
        self.client = NodeClient(
            connection=self._connection,
            settings=settings,
            capabilities=self._registry.capabilities(settings.labels),
            signer=signer,
            clock=clock,
            id_=self.id,
            instance=self._work_dir.instance,
        )
        channel = self.id.hex()
        self.spooled = SpooledLeases()
        group_signer = GroupSigner(signer)
        self.emitter = EvidenceEmitter(settings.data / "spool", channel, self._open_sender, clock, self._spool_policy)
        self._metrics_endpoint = MetricsEndpoint(self.sender_metrics, channel, self.emitter.open_sessions)
        self.executor = LeaseExecutor(
            settings=settings,
            registry=self._registry,
            work_dir=self._work_dir,
            emitter=self.emitter,
            spooled=self.spooled,
            client=self.client,
            signer=group_signer,
            clock=clock,
            draw=self._draw,
        )
        self.leases = ActiveLeases(
            settings=settings,
            registry=self._registry,
            work_dir=self._work_dir,
            emitter=self.emitter,
            spooled=self.spooled,
            executor=self.executor,
            client=self.client,
            signer=group_signer,
            clock=clock,
            on_progress=self._stream_backoff.reset,
        )
        self._is_heartbeat_refused = self._was_welcome = False
        self.leases.watch_heartbeat = self._watch_heartbeat

    def _open_sender(self, session: str, spool: Spool) -> SessionSender:
        return SessionSender(
            channel=self.id.hex(),
            session=session,
            spool=spool,
            open_stream=partial(NodeEvidenceStream, self._connection, self._signer),
            backoff=self._make_backoff(),
            metrics=self.sender_metrics,
            ack_stall_ms=self.settings.ack_stall_ms,
        )

    async def stop(self) -> None:
        """Accept nothing more, finish or decline what runs, deliver what is spooled, close; all with time limits."""
        await self._control.close()
        await self.leases.drain(self.settings.drain_ms)
        await self.emitter.close("STOPPED", self.settings.flush_ms)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_executors()
        await self._metrics_endpoint.close()
        await self._connection.close()
        self._work_dir.close()
        _log.info("stopped")

    # -------------------------------------------------------------------------------------------- its operator

    def status(self) -> dict[str, Any]:
        """How it is, for `holdfast agent status`."""
        working = [lease for lease in self.leases.leases.values() if lease.is_working]
        keys = [lease.executor_key for lease in working]
        return {
            "provider": self.id.hex(),
            "name": self.settings.name,
            "node": self.settings.node,
            "is_connected": self.leases.is_connected,
            "status": self.registration.status if self.registration is not None else "",
            "is_paused": self.leases.is_paused,
            "is_draining": self._draining is not None,
            "running": len(working),
            "slots": self.settings.slots,
            "executors": [
                {
                    "kind": key[0],
                    "name": key[1],
                    "running": keys.count(key),
                    "slots": self._registry.slots_of(key) or self.settings.slots,
                    "is_healthy": key not in self._registry.unhealthy,
                }
                for key, _ in self._registry.executors
            ],
        }

    def pause(self) -> dict[str, Any]:
        """Take no more leases; what runs goes on."""
        return self._set_paused(is_paused=True)

    def resume(self) -> dict[str, Any]:
        return self._set_paused(is_paused=self._draining is not None)

    def drain(self) -> dict[str, Any]:
        """Take no more leases, and end when what runs is done, however long that takes."""
        self._draining = self._draining or asyncio.create_task(self._end_when_idle(), name="draining")
        return self._set_paused(is_paused=True)

    def _set_paused(self, *, is_paused: bool) -> dict[str, Any]:
        if self.leases.is_paused != is_paused:
            self.leases.is_paused = is_paused
            self.leases.send_heartbeat()
            _log.info("agent_paused" if is_paused else "agent_resumed")
        return self.status()

    async def _end_when_idle(self) -> None:
        while any(lease.is_unreported for lease in self.leases.leases.values()):
            await self._clock.sleep(DRAIN_POLL_MS)
        self._drained.set()

    # -------------------------------------------------------------------------------------------- at the node

    async def _work_stream_loop(self) -> None:
        """Register, then run the stream; when it ends, retry after a pause that progress resets (EVD-004)."""
        while True:
            try:
                if self.registration is None or not self.client.is_attested:
                    await self._register()
                self.emitter.start_delivery()
                await WorkStream(self._connection, self._signer, self.id, self.leases, self._work_dir.instance).run()
            except (RpcFault, ProtocolError) as fault:
                self._was_welcome |= self.leases.is_connected
                self._end_second_agent(fault)
                self._log_failure(fault)
            finally:
                self.leases.on_stream_ended()
            await self._stream_backoff.pause(self._clock)

    def _end_second_agent(self, fault: RpcFault | ProtocolError) -> None:
        """RCV-002: Unavailable at its start, where another agent of its key works; one that has worked tries again."""
        refusal = refusal_of(fault) if isinstance(fault, RpcFault) else None
        if refusal is not None and refusal.rule == "RCV-002" and not self._was_welcome:
            raise Unavailable(refusal.rule, refusal.message, refusal.hint)

    def _log_failure(self, fault: RpcFault | ProtocolError) -> None:
        """Only the first of consecutive failures is logged as a warning. An unknown provider registers again."""
        refusal = refusal_of(fault) if isinstance(fault, RpcFault) else None
        if refusal is not None and refusal.name in ("NotFound", "Forbidden", "Unauthorized"):
            self.registration = None
        log = _log.error if refusal is not None else _log.warning if not self._stream_backoff.failures else _log.debug
        log("connection_failed", node=self.settings.node, reason=describe_fault(fault))

    async def _register(self) -> None:
        status = await self.client.register()
        if status != self.registration:
            self.registration = status
            self._on_registration(status)

    def _watch_heartbeat(self, answer: asyncio.Future[ActResult] | None) -> None:
        if answer is not None:
            answer.add_done_callback(self._on_heartbeat_result)

    def _on_heartbeat_result(self, answer: asyncio.Future[ActResult]) -> None:
        if not answer.cancelled() and not (result := answer.result()).is_done:
            _log.warning("heartbeat_refused", rule=result.rule, reason=result.message)
            self._is_heartbeat_refused = True

    async def _registration_loop(self) -> None:
        """Until the provider is active, poll its status; later, renew the attestation in time.

        A refused heartbeat says that the registration is not this agent's any more: another one used the key.
        """
        while True:
            await self._clock.sleep(REGISTRATION_POLL_MS)
            known, is_valid = self.registration, self.client.is_attested and not self._is_heartbeat_refused
            if known is None or (known.status == ProviderStatus.ACTIVE and is_valid):
                continue
            try:
                await self._register()
                if self._is_heartbeat_refused:
                    self._is_heartbeat_refused = False
                    self.leases.send_heartbeat()
            except RpcFault as fault:
                _log.debug("registration_failed", reason=describe_fault(fault))
