"""Delivering one session of evidence: hello, the node's mark, replay of all above it, then live (EVD-001).

Only records that are spooled are sent (SP-005), read back from the spool, never from memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import structlog

from holdfast.agent.backoff import Backoff
from holdfast.agent.dial import Broken, Dial, Fault, read_from, said, write_to
from holdfast.agent.settings import Signer
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.ports import Clock
from holdfast.spool import Batch, Spool
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb

PIECE_BYTES_MAX: Final = 1 << 20
"""One message holds no more than this."""
_log = structlog.get_logger()


class Delivery:
    """One session on its way. Its stream is opened again and again until everything is acked or nothing is wanted."""

    def __init__(self, channel: str, session: str, spool: Spool, dial: Dial, signer: Signer, backoff: Backoff) -> None:
        self.channel, self.session, self.spool = channel, session, spool
        self._dial, self._signer, self._backoff = dial, signer, backoff
        self._news = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.stuck = ""
        """Why the last try could not go on though the node answered; empty where it can."""

    def wake(self) -> None:
        """Something was spooled."""
        self._news.set()

    @property
    def is_delivered(self) -> bool:
        return self.spool.acked_sequence >= self.spool.spooled_sequence

    async def acked(self, sequence: int) -> None:
        """Return when the node has this record."""
        if self.spool.acked_sequence >= sequence:
            return
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, arrival))
        await arrival

    async def run(self, clock: Clock, *, until_delivered: bool = False) -> None:
        """For ever, or until everything is delivered or the session is stuck: that is told once and left to people."""
        while not (until_delivered and (self.is_delivered or self.stuck)):
            try:
                await self._once(until_delivered=until_delivered)
            except (Fault, Broken, Unavailable) as fault:
                say = _log.debug if self._backoff.failures else _log.info  # once in a row of failures
                say("evidence waits", session=self.session, because=said(fault))
            except Corrupt as hole:
                self._be_stuck(str(hole))
            except Exception:  # evidence is never given up because of a fault of ours
                _log.exception("evidence waits", session=self.session)
            if not (until_delivered and self.is_delivered):
                await self._backoff.pause(clock)

    def _be_stuck(self, why: str) -> None:
        if why != self.stuck:
            _log.error("evidence cannot be delivered", session=self.session, because=why)
        self.stuck = why

    # -------------------------------------------------------------------------------------------- one stream

    async def _once(self, *, until_delivered: bool) -> None:
        call = self._dial.evidence.Stream()
        try:
            first = await read_from(call)
            if first.WhichOneof("message") != "challenge":
                raise Broken("the node did not begin with a challenge")
            await write_to(call, pb.StreamRequest(hello=self._hello(first.challenge.nonce)))
            begin = self._begin(_ack_in(await read_from(call)))
            if begin is not None:
                await _Sending(self, call, *begin).run(until_delivered=until_delivered)
        finally:
            call.cancel()

    def _hello(self, nonce: bytes) -> pb.Hello:
        spool = self.spool
        signature = self._signer.sign(acts.to_sign_hello(nonce, self.channel, self.session))
        return pb.Hello(
            channel_id=self.channel,
            session_id=self.session,
            first_sequence_available=spool.first_available,
            last_sequence_emitted=spool.spooled_sequence,
            public=self._signer.public,
            signature=signature,
        )

    def _begin(self, told: pb.Ack) -> tuple[int, int] | None:
        """SP-ACK-004: the node's mark is where to go on, if it can be true and we still have what follows it."""
        after = self.spool.agree(told.acked_sequence)
        if isinstance(after, Refused):
            self._be_stuck(str(after))
            return None
        self.stuck = ""
        self._tell_waiting()
        return after, told.credit_bytes

    def take_ack(self, sequence: int) -> None:
        """The node has everything up to here; what was waited for is told, and failures are forgotten."""
        if sequence <= self.spool.acked_sequence:
            return  # SP-ACK-003: an ack that is not higher changes nothing
        stored = self.spool.ack(sequence)
        if isinstance(stored, Refused):
            raise Broken(str(stored))
        self._backoff.reset()
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        acked = self.spool.acked_sequence
        for sequence, arrival in self._waiting:
            if sequence <= acked and not arrival.done():
                arrival.set_result(None)
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]

    async def news(self) -> None:
        await self._news.wait()
        self._news.clear()


class _Sending:
    """The part of a stream after the node's first mark: one task sends within the credit, one hears acks."""

    def __init__(self, delivery: Delivery, call: Any, after: int, credit: int) -> None:
        self._delivery, self._call = delivery, call
        self._sent = self._heard = after
        self._credit = credit
        self._flying: deque[tuple[int, int]] = deque()
        """Last sequence and bytes of what is on its way."""
        self._room = asyncio.Event()

    async def run(self, *, until_delivered: bool) -> None:
        sending = asyncio.create_task(self._send_forever(), name="evidence")
        hearing = asyncio.create_task(self._hear(until_delivered=until_delivered), name="acks")
        try:
            done, _ = await asyncio.wait({sending, hearing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            sending.cancel()
            hearing.cancel()
            await asyncio.gather(sending, hearing, return_exceptions=True)

    async def _send_forever(self) -> None:
        spool = self._delivery.spool
        while True:
            batches = spool.batches(self._sent)
            while (batch := await asyncio.to_thread(_next, batches)) is not None:
                for first, lines in pieces(batch, min(PIECE_BYTES_MAX, self._credit)):
                    await self._send(first, lines)
            if self._sent >= spool.spooled_sequence:
                await self._delivery.news()

    async def _send(self, first: int, lines: list[bytes]) -> None:
        size = sum(map(len, lines))
        while not self._may_fly(size):
            self._room.clear()
            await self._room.wait()
        self._sent = first + len(lines) - 1
        self._flying.append((self._sent, size))
        await write_to(self._call, pb.StreamRequest(records=pb.Records(first_sequence=first, lines=lines)))

    def _may_fly(self, size: int) -> bool:
        """Within the credit; alone also beyond it, since a record that is larger would never get through."""
        if not self._flying:
            return self._credit > 0
        return sum(flying for _, flying in self._flying) + size <= self._credit

    async def _hear(self, *, until_delivered: bool) -> None:
        while not (until_delivered and self._delivery.is_delivered):
            told = _ack_in(await read_from(self._call))
            if told.acked_sequence > self._sent:
                raise Broken(f"SP-ACK-004: the node acked {told.acked_sequence}, only {self._sent} were sent")
            self._delivery.take_ack(told.acked_sequence)
            self._credit, self._heard = told.credit_bytes, max(self._heard, told.acked_sequence)
            while self._flying and self._flying[0][0] <= self._heard:
                self._flying.popleft()
            self._room.set()


def _next(batches: Iterator[Batch]) -> Batch | None:
    return next(batches, None)


def pieces(batch: Batch, bytes_max: int) -> Iterator[tuple[int, list[bytes]]]:
    """The batch in messages of at most so many bytes or one record, each with its first sequence."""
    first, lines, size = batch.first, list[bytes](), 0
    for line in batch.lines:
        if lines and size + len(line) > bytes_max:
            yield first, lines
            first, lines, size = first + len(lines), [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield first, lines


def _ack_in(message: pb.StreamResponse) -> pb.Ack:
    kind = message.WhichOneof("message")
    if kind == "refusal":
        no = message.refusal
        raise Broken(str(Refused(no.rule, no.says, no.hint, no.name)))
    if kind != "ack":
        raise Broken(f"the node said {kind} where an ack was due")
    return message.ack
