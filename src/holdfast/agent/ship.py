"""Shipping a spool from any process to a node or a v0.1 receiver: what a standalone user of the outbox imports.

```
spool = Spool.open("classic-1", session, root=root)
with ship(spool, "127.0.0.1:8452", protocol="retrovue") as shipping:
    ticket = spool.emit("SEGMENT_END", {...})       # never blocks
    shipping.wait(ticket.sequence, timeout_s=5)     # if one wants to know that the receiver has it
```

It runs in a thread of its own, delivers the session that is open, and beside it what earlier sessions of the channel
have left, oldest first (EVD-004). Whatever is not acked when the process ends is sent by the next one.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Final, Self

import structlog

from holdfast.agent.backlog import Backlog
from holdfast.agent.backoff import Backoff
from holdfast.agent.delivery import STILL_MS, Delivery
from holdfast.agent.dial import Dial
from holdfast.agent.legacy import LegacyTalk
from holdfast.agent.settings import Signer, Tls
from holdfast.agent.tally import Tally
from holdfast.agent.tongue import NodeTalk, Tongue
from holdfast.core.refusal import Refused
from holdfast.spool import Spool, undelivered
from holdfast.spool.clock import SystemClock
from holdfast.spool.names import Place

RETRY_BASE_MS: Final = 100
RETRY_CAP_MS: Final = 5_000
_log = structlog.get_logger()


class Protocol(StrEnum):
    """Which service the receiver has."""

    HOLDFAST = "holdfast"
    """`holdfast.evidence.v1`: batches under a provider's key; the channel is the provider's id."""
    RETROVUE = "retrovue"
    """`retrovue.evidence.v1`: one record a message; any v0.1 receiver, or a node that lets such senders in."""


class _Clock(SystemClock):
    """The machine's, which can also be waited for."""

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class Shipping:
    """One channel on its way, until it is closed. The spool stays its user's: close it after this."""

    def __init__(self, spool: Spool, dial: Callable[[], Dial], tongue: Callable[[Dial], Tongue], still_ms: int) -> None:
        """Made by `ship`."""
        self.tally = Tally()
        self._spool, self._dial, self._tongue, self._still_ms = spool, dial, tongue, still_ms
        self._clock = _Clock()
        self._loop = asyncio.new_event_loop()
        self._live: Delivery | None = None
        self._ending, self._old_gone = asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipping", daemon=True)
        self._thread.start()

    # -------------------------------------------------------------------------------------------- the user's side

    @property
    def stuck(self) -> str:
        """Why the receiver cannot have the open session though it answers; empty where it can."""
        return self._live.stuck if self._live is not None else ""

    def wait(self, sequence: int, timeout_s: float | None = None) -> bool:
        """Block until the receiver has this record and that is stored here, too; False when time is up first."""
        return self._spool.keeper.acked.wait(sequence, timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Block until the receiver has all that is spooled now, older sessions included; False when time is up first.

        A session that is stuck was told in the log and is not waited for; it is tried again at the next start.
        """
        until = time.monotonic() + timeout_s
        is_acked = self.wait(self._spool.spooled_sequence, timeout_s)
        return self._old_gone.wait(max(0.0, until - time.monotonic())) and is_acked

    def close(self, flush_s: float = 0.0) -> bool:
        """End it, after a flush for as long as is said; whether all of the open session was acked."""
        if flush_s:
            self.flush(flush_s)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()
        return self._spool.acked_sequence >= self._spool.spooled_sequence

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._deliver())

    async def _deliver(self) -> None:
        dial, place = self._dial(), self._spool.place
        tongue = self._tongue(dial)

        def deliver(session: str, spool: Spool) -> Delivery:
            backoff = Backoff(RETRY_BASE_MS, RETRY_CAP_MS, secrets.randbelow)
            return Delivery(place.channel, session, spool, tongue, backoff, self.tally, self._still_ms)

        backlog = Backlog(place.folder.parent, place.channel, deliver, self._clock, None)
        self._live = deliver(place.session, self._spool)
        tasks = [
            asyncio.create_task(self._live.run(self._clock), name="live"),
            asyncio.create_task(self._deliver_old(backlog, place), name="old"),
        ]
        await self._ending.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await backlog.close()
        await dial.close()

    async def _deliver_old(self, backlog: Backlog, live: Place) -> None:
        try:
            left = await asyncio.to_thread(undelivered, live.folder.parent, live.channel)
        except OSError as fault:
            _log.error("old sessions cannot be found", channel=live.channel, because=str(fault))
            return
        for each in left:
            if each.place.session != live.session:
                await backlog.take_up(each.place.session)
        await backlog.run(lambda: live.session)
        self._old_gone.set()


def ship(
    spool: Spool,
    target: str,
    *,
    protocol: Protocol | str = Protocol.HOLDFAST,
    signer: Signer | None = None,
    tls: Tls | None = None,
    still_ms: int = STILL_MS,
) -> Shipping | Refused:
    """Begin to deliver: the open session, and what older sessions of its channel have left.

    `target` is HOST:PORT. Refused: a protocol that is none, or no key where the protocol needs one.
    """
    if protocol not in list(Protocol):
        return Refused("EVD-001", f"no protocol {str(protocol)[:40]!r}", " ".join(Protocol), "InvalidParams")
    if protocol == Protocol.HOLDFAST and signer is None:
        says = "holdfast.evidence.v1 is spoken under a provider's key"
        return Refused("EVD-001", says, "give `signer`, or protocol='retrovue'", "InvalidParams")

    def tongue(dial: Dial) -> Tongue:
        return (
            partial(LegacyTalk, dial) if signer is None or protocol == "retrovue" else partial(NodeTalk, dial, signer)
        )

    return Shipping(spool, partial(Dial, target, tls), tongue, still_ms)
