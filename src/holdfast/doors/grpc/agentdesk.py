"""What all calls of agents need: the owner, the place for bytes, a pool for signatures, and word of the closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import grpc
import structlog

from holdfast.core.provider.record import holder_of, why_not_key
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.values import ProviderId
from holdfast.doors.attesting import BUILT_IN, Attestor, refused
from holdfast.doors.desk import Desk
from holdfast.doors.grpc.handling import Context
from holdfast.doors.grpc.limiting import Pace
from holdfast.doors.grpc.taken import Taken
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Phase
from holdfast.ports import Blobs
from holdfast.wire.acts import Attestation

POOL_THREADS: Final = 2
NONCE_BYTES: Final = 32
ANSWER_S: Final = 10.0
"""How long an agent may take to answer the challenge that a stream begins with."""
ATTEST_S: Final = 30.0
"""How long a plug-in may take to judge an attestation."""
Verify = Callable[[bytes, bytes, bytes], bool]
"""Public key, message, signature."""
T = TypeVar("T")
_log = structlog.get_logger()


class AgentDesk:
    """One for all services of agents at one door. It belongs to one event loop."""

    def __init__(
        self,
        desk: Desk,
        engine: Engine,
        blobs: Blobs,
        verify: Verify,
        pace: Pace,
        attestors: Mapping[str, Attestor] = BUILT_IN,
    ) -> None:
        self.desk, self.engine, self.blobs, self.verify, self.pace = desk, engine, blobs, verify, pace
        self.attestors, self.taken = attestors, Taken()
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="signatures")
        self._plugged = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="attestors")
        self._closing: asyncio.Event | None = None
        self._open: dict[object, Callable[[], None]] = {}
        self._waiting: asyncio.Task[None] | None = None

    def check_owner(self) -> None:
        """Agents speak with the owner: a standby decides nothing and does not know what is on its way."""
        if self.desk.hand_on is not None or self.engine.phase is not Phase.RUNNING:
            hint = "connect to the owner of the journal, or again in a moment"
            raise Unavailable("ENG-006", "this node does not own the journal", hint)

    async def in_pool(self, work: Callable[..., T], *args: object) -> T:
        """Signatures and long parsing: off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def why_not_signed(self, public: bytes, message: bytes, signature: bytes) -> Refused | None:
        """PRV-003: what an agent says, its key has signed, and it is still its key."""
        if await self.in_pool(self.verify, public, message, signature):
            return why_not_key(self.engine.state, self.holder(public), public)
        return Refused("PRV-003", "the signature does not fit", "sign with the provider's key", "Unauthorized")

    async def why_not_vouched(self, shown: Attestation) -> Refused | None:
        """PRV-001: what its verifier says. One that hangs holds up no signature, and its own trouble is no verdict."""
        pool = self._pool if shown.verifier in BUILT_IN else self._plugged
        judge = self.attestors[shown.verifier]
        try:
            async with asyncio.timeout(ATTEST_S):
                says = await asyncio.get_running_loop().run_in_executor(pool, judge, shown, self.verify)
        except Exception as fault:
            _log.warning("an attestor failed", attestor=shown.verifier, because=repr(fault))
            says = f"the attestor {shown.verifier!r:.40} did not answer"
            raise Unavailable("PRV-001", says, "register again in a moment") from fault
        return refused(says) if says else None

    def holder(self, public: bytes) -> ProviderId:
        """Whose key this is; one that changed its key is who it was (PRV-003)."""
        return holder_of(self.engine.state, public)

    # ------------------------------------------------------------------------------------ closing

    def leave_with(self, closing: asyncio.Event) -> None:
        """Open streams end when the door begins to close: `GrpcDoor.closing`."""
        self._closing = closing

    @contextmanager
    def until_closing(self, tell: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `tell` is called when the door begins to close; one task waits for all streams."""
        key = object()
        self._open[key] = tell
        if self._waiting is None and self._closing is not None:
            self._waiting = asyncio.create_task(self._tell_all(self._closing), name="closing of agents' streams")
        try:
            yield
        finally:
            del self._open[key]
            if not self._open and self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

    async def _tell_all(self, closing: asyncio.Event) -> None:
        await closing.wait()
        for tell in list(self._open.values()):
            tell()


# ------------------------------------------------------------------------------------------------ streams


def not_registered(id_: ProviderId) -> Refused:
    return Refused("PRV-001", f"no provider {id_.hex()}", "register first", "NotFound")


async def first_of(context: Context) -> Any:
    """The answer to the challenge; None where none came in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            request = await context.read()
    except TimeoutError:
        return None
    return None if request is grpc.aio.EOF else request  # type: ignore[attr-defined]


async def requests_of(context: Context) -> AsyncIterator[Any]:
    """What comes in until the other side has said all."""
    while True:
        request = await context.read()
        if request is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        yield request
