"""The agent: known to its node, on the work stream, its slots full of leases; killed at any point it goes on from disk.

Concrete things are handed in: who signs, what time it is, what can be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from holdfast.agent.backoff import Backoff, Draw
from holdfast.agent.carrier import Carrier
from holdfast.agent.client import NodeClient, Standing
from holdfast.agent.delivery import Delivery
from holdfast.agent.dial import Broken, Dial, Fault, refusal_of, said
from holdfast.agent.executors import Registry
from holdfast.agent.exposition import Exposition
from holdfast.agent.hands import Hands
from holdfast.agent.settings import AgentSettings, Signer, Tls
from holdfast.agent.shipper import Shipper
from holdfast.agent.stream import WorkStream
from holdfast.agent.tally import Tally
from holdfast.agent.tongue import NodeTalk
from holdfast.agent.work import WorkFolder
from holdfast.core.provider.record import ProviderStatus, provider_id
from holdfast.core.values import ProviderId
from holdfast.ports import Clock
from holdfast.spool import Spool, SpoolPolicy

ASK_AGAIN_MS: Final = 2_000
"""A provider that is not active asks this often whether it is."""
_log = structlog.get_logger()


class Agent:
    """One provider's process. It belongs to one event loop; `run` it until `told` is set, or `start` and `stop` it."""

    def __init__(
        self,
        settings: AgentSettings,
        registry: Registry,
        signer: Signer,
        clock: Clock,
        draw: Draw,
        *,
        tls: Tls | None = None,
        spool_policy: SpoolPolicy | None = None,
        id_: ProviderId | None = None,
        on_standing: Callable[[Standing], None] = lambda _: None,
    ) -> None:
        self.settings, self._registry, self._signer, self._clock = settings, registry, signer, clock
        self._draw, self._tls, self._spool_policy, self._on_standing = draw, tls, spool_policy, on_standing
        self.id = provider_id(signer.public) if id_ is None else id_
        """Of the provider's first key, whichever it signs with now (PRV-003)."""
        self.standing: Standing | None = None
        """How the node sees us; None until it has said so."""
        self._work = WorkFolder(settings.data / "work")
        self.tally = Tally()
        self._backoff_of_stream = self._backoff()
        self._tasks: list[asyncio.Task[None]] = []

    def _backoff(self) -> Backoff:
        return Backoff(self.settings.retry_base_ms, self.settings.retry_cap_ms, self._draw)

    # -------------------------------------------------------------------------------------------- living

    async def run(self, told: asyncio.Event) -> None:
        """Until it is told to stop; raises what made it fail."""
        await self.start()
        stopping = asyncio.create_task(told.wait())
        await asyncio.wait({stopping, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("stopping", because="told to" if told.is_set() else "it cannot go on")
        stopping.cancel()
        failed = [task for task in self._tasks if task.done()]
        await self.stop()
        for task in failed:
            task.result()

    async def start(self) -> None:
        """Take up what is on disk, then look for the node. Unavailable where folder or spool cannot be used."""
        found = await asyncio.to_thread(self._work.open)
        self._assemble()
        await self.shipper.open()
        if self.settings.metrics_port is not None:
            port = await self._exposition.open(self.settings.metrics_port)
            _log.info("metrics", url=f"http://127.0.0.1:{port}/metrics")
        for each in found:
            self.hands.resume(each)
        self._tasks = [
            asyncio.create_task(self._work_for_ever(), name="work stream"),
            asyncio.create_task(self.hands.pulse(), name="pulse"),
            asyncio.create_task(self._stand_for_ever(), name="standing"),
        ]

    def _assemble(self) -> None:
        """Everything that belongs to the event loop."""
        settings, signer, clock = self.settings, self._signer, self._clock
        dial = self._dial = Dial(settings.node, self._tls)
        self.client = NodeClient(dial, settings, self._registry.capabilities(), signer, clock, self.id)
        channel = self.id.hex()

        def deliver(session: str, spool: Spool) -> Delivery:
            tongue, tally = partial(NodeTalk, dial, signer), self.tally
            return Delivery(channel, session, spool, tongue, self._backoff(), tally, settings.still_ms)

        self.shipper = Shipper(settings.data / "spool", channel, deliver, clock, self._spool_policy)
        parts = (settings, self._registry, self._work, self.shipper)
        self._exposition = Exposition(self.tally, channel, self.shipper.opened)
        self.carrier = Carrier(*parts, self.client, signer, clock, self._draw)
        self.hands = Hands(*parts, self.carrier, self.client, clock, self._backoff_of_stream.reset)

    async def stop(self) -> None:
        """Take nothing more, finish or give back what runs, deliver what is spooled, close; all of it bounded."""
        await self.hands.drain(self.settings.drain_ms)
        await self.shipper.close("STOPPED", self.settings.flush_ms)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._exposition.close()
        await self._dial.close()
        self._work.close()
        _log.info("stopped")

    # -------------------------------------------------------------------------------------------- with the node

    async def _work_for_ever(self) -> None:
        """Known, then on the stream; when it ends, again after a pause that progress makes short (EVD-004)."""
        while True:
            try:
                if self.standing is None or not self.client.is_attested:
                    await self._register()
                self.shipper.deliver()
                await WorkStream(self._dial, self._signer, self.id, self.hands).run()
            except (Fault, Broken) as fault:
                self._say_why(fault)
            finally:
                self.hands.stream_ended()
            await self._backoff_of_stream.pause(self._clock)

    def _say_why(self, fault: Fault | Broken) -> None:
        """Loud once in a row of failures; a node that does not know us is told who we are."""
        no = refusal_of(fault) if isinstance(fault, Fault) else None
        if no is not None and no.name in ("NotFound", "Forbidden", "Unauthorized"):
            self.standing = None
        say = _log.error if no is not None else _log.warning if not self._backoff_of_stream.failures else _log.debug
        say("not connected", node=self.settings.node, because=said(fault))

    async def _register(self) -> None:
        standing = await self.client.register()
        if standing != self.standing:
            self.standing = standing
            self._on_standing(standing)

    async def _stand_for_ever(self) -> None:
        """Until it is active, ask how we stand; later, say in time anew what we are."""
        while True:
            await self._clock.sleep(ASK_AGAIN_MS)
            standing = self.standing
            if standing is None or (standing.status == ProviderStatus.ACTIVE and self.client.is_attested):
                continue
            try:
                await self._register()
            except Fault as fault:
                _log.debug("not asked how we stand", because=said(fault))
