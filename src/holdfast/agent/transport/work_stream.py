"""The work stream: answers the node's challenge, receives offers, and sends signed acts (PRV-003)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, Protocol

import msgspec

from holdfast.ports import Signer
from holdfast.shipping.node_connection import NodeConnection, ProtocolError, read_message, write_message
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.signed_messages import AgentAct

ACTS_MAX: Final = 512
"""How many acts have one signature at most."""


class ActResult(msgspec.Struct, frozen=True):
    """The outcome of an act: done, or the refusal."""

    is_done: bool
    name: str = ""
    rule: str = ""
    message: str = ""


class WorkStreamListener(Protocol):
    """Receives the node's messages. Its methods must not wait: the next message is read after they return."""

    def on_welcome(self, stream: WorkStream, welcome: pb.Welcome) -> None: ...
    def on_offers(self, offers: Sequence[pb.Offer]) -> None: ...
    def on_lost(self, lease_id: bytes, reason: str) -> None: ...
    def on_verdict(self, lease_id: bytes, is_accepted: bool, reason: str) -> None: ...
    def on_progress(self) -> None:
        """The node has sent updates on this stream."""
        ...

    def on_node_draining(self) -> None: ...


class WorkStream:
    """One stream, from its opening to its end. Acts without an answer by then are cancelled; callers repeat them."""

    def __init__(
        self,
        connection: NodeConnection,
        signer: Signer,
        provider_id: bytes,
        listener: WorkStreamListener,
        instance: bytes = b"",
    ) -> None:
        self._connection, self._signer, self._id, self._listener = connection, signer, provider_id, listener
        self._instance = instance
        self._nonce = b""
        self._waiting: list[tuple[AgentAct, asyncio.Future[ActResult]]] = []
        self._sent: dict[int, list[asyncio.Future[ActResult]]] = {}
        self._has_acts = asyncio.Event()
        self._count = 0
        self.is_open = False

    def send(self, act: AgentAct) -> asyncio.Future[ActResult]:
        """Queue an act; queued acts share one signature. The future is cancelled where the stream ends first."""
        answer: asyncio.Future[ActResult] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            answer.cancel()
            return answer
        self._waiting.append((act, answer))
        self._has_acts.set()
        return answer

    async def run(self) -> None:
        """Until the stream ends; raises gRPC's error or ProtocolError."""
        call = self._connection.provider.Work()
        sending: asyncio.Task[None] | None = None
        try:
            await self._open(call)
            sending = asyncio.create_task(self._send_forever(call), name="acts")
            while True:
                self._dispatch(await read_message(call))
        finally:
            self.is_open = False
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            call.cancel()
            self._cancel_pending()

    async def _open(self, call: Any) -> None:
        first = await read_message(call)
        if first.WhichOneof("message") != "challenge":
            raise ProtocolError("the node did not begin with a challenge")
        self._nonce = first.challenge.nonce
        signature = self._signer.sign(signed_messages.to_sign_open(self._nonce, self._id, self._instance))
        opened = pb.Open(public=self._signer.public, signature=signature, instance=self._instance)
        await write_message(call, pb.WorkRequest(open=opened))

    async def _send_forever(self, call: Any) -> None:
        while True:
            await self._has_acts.wait()
            self._has_acts.clear()
            batch, self._waiting = self._waiting[:ACTS_MAX], self._waiting[ACTS_MAX:]
            if not batch:
                continue
            if self._waiting:
                self._has_acts.set()
            self._count += 1
            self._sent[self._count] = [answer for _, answer in batch]
            body = signed_messages.pack_message(
                signed_messages.ActBatch(self._nonce, self._count, [act for act, _ in batch])
            )
            signature = self._signer.sign(signed_messages.to_sign_acts(body))
            await write_message(call, pb.WorkRequest(acts=pb.SignedActs(body=body, signature=signature)))

    def _dispatch(self, message: pb.WorkResponse) -> None:
        listener = self._listener
        match message.WhichOneof("message"):
            case "welcome":
                self.is_open = True
                listener.on_welcome(self, message.welcome)
            case "updates":
                listener.on_progress()
                self._dispatch_updates(message.updates)
            case "draining":
                listener.on_node_draining()
            case _:  # from a newer node (CAN-005)
                return

    def _dispatch_updates(self, updates: pb.Updates) -> None:
        """In this order: what is over frees its slot before an offer needs it, and answers to acts come last."""
        listener = self._listener
        for lost in updates.lost:
            listener.on_lost(lost.lease_id, lost.reason)
        for verdict in updates.verdicts:
            listener.on_verdict(verdict.lease_id, verdict.is_accepted, verdict.reason)
        if updates.offers:
            listener.on_offers(updates.offers)
        for done in updates.acts_done:
            self._resolve_acts(done)

    def _resolve_acts(self, done: pb.ActsDone) -> None:
        answers = self._sent.pop(done.count, [])
        if len(answers) != len(done.outcomes):
            raise ProtocolError(f"the node answered {len(done.outcomes)} of {len(answers)} acts")
        for answer, outcome in zip(answers, done.outcomes, strict=True):
            if not answer.done():
                answer.set_result(ActResult(outcome.is_done, outcome.name, outcome.rule, outcome.message))

    def _cancel_pending(self) -> None:
        for answer in chain((answer for _, answer in self._waiting), *self._sent.values()):
            answer.cancel()
        self._waiting, self._sent = [], {}
