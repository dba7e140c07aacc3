"""The work stream: answers the node's challenge, hears offers, and signs what the agent does (PRV-003)."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any, Final, Protocol

import msgspec

from holdfast.agent.dial import Broken, Dial, read_from, write_to
from holdfast.agent.settings import Signer
from holdfast.wire import acts
from holdfast.wire.acts import Act
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

ACTS_MAX: Final = 512
"""Under one signature."""


class Answer(msgspec.Struct, frozen=True):
    """What became of an act."""

    is_done: bool
    name: str = ""
    rule: str = ""
    says: str = ""


class Listener(Protocol):
    """Who hears what the node says. None of it may wait: the next message is read after it returns."""

    def welcomed(self, stream: WorkStream, welcome: pb.Welcome) -> None: ...
    def offered(self, offer: pb.Offer) -> None: ...
    def lost(self, lease_id: bytes, reason: str) -> None: ...
    def judged(self, lease_id: bytes, is_accepted: bool, reason: str) -> None: ...
    def progressed(self) -> None:
        """The node has answered something on this stream."""
        ...

    def draining(self) -> None: ...


class WorkStream:
    """One stream, from its opening to its end. Acts that were not answered by then are forgotten: who said them asks
    again on the next one."""

    def __init__(self, dial: Dial, signer: Signer, provider_id: bytes, listener: Listener) -> None:
        self._dial, self._signer, self._id, self._listener = dial, signer, provider_id, listener
        self._nonce = b""
        self._waiting: list[tuple[Act, asyncio.Future[Answer]]] = []
        self._sent: dict[int, list[asyncio.Future[Answer]]] = {}
        self._news = asyncio.Event()
        self._count = 0
        self.is_open = False

    def say(self, act: Act) -> asyncio.Future[Answer]:
        """Queue an act; all that piled up goes under one signature. Cancelled where the stream ends first."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            answer.cancel()
            return answer
        self._waiting.append((act, answer))
        self._news.set()
        return answer

    async def run(self) -> None:
        """Until the stream ends; raises gRPC's error or Broken."""
        call = self._dial.provider.Work()
        sending: asyncio.Task[None] | None = None
        try:
            await self._open(call)
            sending = asyncio.create_task(self._send_forever(call), name="acts")
            while True:
                self._hear(await read_from(call))
        finally:
            self.is_open = False
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            call.cancel()
            self._forget()

    async def _open(self, call: Any) -> None:
        first = await read_from(call)
        if first.WhichOneof("message") != "challenge":
            raise Broken("the node did not begin with a challenge")
        self._nonce = first.challenge.nonce
        signature = self._signer.sign(acts.to_sign_open(self._nonce, self._id))
        await write_to(call, pb.WorkRequest(open=pb.Open(public=self._signer.public, signature=signature)))

    async def _send_forever(self, call: Any) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            taken, self._waiting = self._waiting[:ACTS_MAX], self._waiting[ACTS_MAX:]
            if not taken:
                continue
            if self._waiting:
                self._news.set()
            self._count += 1
            self._sent[self._count] = [answer for _, answer in taken]
            body = acts.pack(acts.Acts(self._nonce, self._count, [act for act, _ in taken]))
            signature = self._signer.sign(acts.to_sign_acts(body))
            await write_to(call, pb.WorkRequest(acts=pb.SignedActs(body=body, signature=signature)))

    def _hear(self, message: pb.WorkResponse) -> None:
        listener = self._listener
        match message.WhichOneof("message"):
            case "welcome":
                self.is_open = True
                listener.welcomed(self, message.welcome)
            case "offer":
                listener.progressed()
                listener.offered(message.offer)
            case "lost":
                listener.lost(message.lost.lease_id, message.lost.reason)
            case "verdict":
                told = message.verdict
                listener.judged(told.lease_id, told.is_accepted, told.reason)
            case "acts_done":
                listener.progressed()
                self._answered(message.acts_done)
            case "draining":
                listener.draining()
            case _:  # from a newer node (CAN-005)
                return

    def _answered(self, done: pb.ActsDone) -> None:
        answers = self._sent.pop(done.count, [])
        if len(answers) != len(done.outcomes):
            raise Broken(f"the node answered {len(done.outcomes)} of {len(answers)} acts")
        for answer, told in zip(answers, done.outcomes, strict=True):
            if not answer.done():
                answer.set_result(Answer(told.is_done, told.name, told.rule, told.says))

    def _forget(self) -> None:
        for answer in chain((answer for _, answer in self._waiting), *self._sent.values()):
            answer.cancel()
        self._waiting, self._sent = [], {}
