"""The agent: registered, on the work stream, with its slots full of leases; killed at any point it goes on from disk.

Concrete things are handed in: who signs, what time it is, what can be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from holdfast.agent.backoff import Backoff, Draw
from holdfast.agent.carrier import ACCEPTED, LOST, PROGRESS, Carrier
from holdfast.agent.client import NodeClient, Standing
from holdfast.agent.delivery import Delivery
from holdfast.agent.dial import Broken, Dial, Fault, refusal_of, said
from holdfast.agent.executors import Registry
from holdfast.agent.held import Held, Marks, Word
from holdfast.agent.settings import AgentSettings, Signer, Tls
from holdfast.agent.shipper import Shipper
from holdfast.agent.stream import Answer, WorkStream
from holdfast.agent.work import Taken, WorkFolder
from holdfast.core.provider.record import provider_id
from holdfast.core.refusal import Refused, Unavailable
from holdfast.ports import Clock
from holdfast.spool import Spool, SpoolPolicy
from holdfast.wire.acts import Act
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

ASK_AGAIN_MS: Final = 2_000
"""A provider that is not active asks this often whether it is."""
_log = structlog.get_logger()


class Agent:
    """One provider's process. `start` it, let it work, `stop` it; or `run` until `told` is set."""

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
        on_standing: Callable[[Standing], None] = lambda _: None,
    ) -> None:
        self._settings, self._registry, self._signer, self._clock = settings, registry, signer, clock
        self._draw, self._tls, self._spool_policy, self._on_standing = draw, tls, spool_policy, on_standing
        self.id = provider_id(signer.public)
        self.work = WorkFolder(settings.data / "work")
        self.held: dict[bytes, Held] = {}
        self.standing: Standing | None = None
        self._stream: WorkStream | None = None
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._carrying: dict[bytes, asyncio.Task[None]] = {}
        self._taking: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._stream_backoff = self._backoff()
        self._heartbeat_ms = 60_000

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.retry_base_ms, self._settings.retry_cap_ms, self._draw)
