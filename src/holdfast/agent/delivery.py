"""Delivering one session of evidence: hello, the node's mark, replay of all above it, then live (EVD-001).

Only records that are spooled are sent (SP-005), read back from the spool, never from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import structlog

from holdfast.agent.backoff import Backoff
from holdfast.agent.custody import Custody, begun
from holdfast.agent.dial import Broken, Fault, TurnedAway, refusal_of, said
from holdfast.agent.tally import Tally
from holdfast.agent.tongue import Hello, Mark, Talk, Tongue
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.ports import Clock
from holdfast.spool import Batch, Spool

STILL_MS: Final = 30_000
"""A stream whose acks stand still for this long, while something is on its way, is cut and dialled anew."""
FOR_GOOD: Final = frozenset({"SequenceConflict", "NotSpoken"})
"""Noes that no other try will change."""
MAY_PASS: Final = frozenset({"EvidenceGap", "ReceiverError"})
"""Noes that a reordering line can bring about …"""
NOES_MAX: Final = 5
"""… but not so often in a row, without an ack between: then the receiver has lost what it acked."""
_log = structlog.get_logger()


class Delivery:
    """One session on its way. Its stream is opened again and again until everything is acked or nothing is wanted."""

    def __init__(
        self,
        channel: str,
        session: str,
        spool: Spool,
        tongue: Tongue,
        backoff: Backoff,
        tally: Tally | None = None,
        still_ms: int = STILL_MS,
    ) -> None:
        self.channel, self.session, self.spool = channel, session, spool
        self.tally, self.still_ms = tally or Tally(), still_ms
        self._tongue, self._backoff = tongue, backoff
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._before = spool.spooled_sequence
        """What an earlier stream may have sent: an earlier process has told nobody how far it came."""
        self._noes = 0
        self.stuck = ""
        """Why the last try could not go on though the node answered; empty where it can."""
        self._told = ""
        """The same as it was last told: once is enough while nothing moves."""

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
                await self._once(clock, until_delivered=until_delivered)
            except (Fault, Broken, Unavailable) as fault:
                self._say_why(fault)
            except Corrupt as hole:
                self.tally.gaps += 1
                self._be_stuck(str(hole))
            except Exception:  # evidence is never given up because of a fault of ours
                _log.exception("evidence waits", session=self.session)
            if not (until_delivered and self.is_delivered):
                await self._backoff.pause(clock)

    # -------------------------------------------------------------------------------------------- failures

    def _say_why(self, fault: Fault | Broken | Unavailable) -> None:
        """Loud once in a row of failures; a no of the receiver is counted, and told as one where it will stay."""
        no = refusal_of(fault) if isinstance(fault, Fault) else getattr(fault, "no", None)
        if isinstance(no, Refused):
            self.tally.refused[no.name] += 1
            self.tally.gaps += no.name == "EvidenceGap"
            self._noes += no.name in MAY_PASS
            if no.name in FOR_GOOD or self._noes >= NOES_MAX:
                return self._be_stuck(str(no))
        loud = _log.error if isinstance(fault, TurnedAway) else _log.info
        say = _log.debug if self._backoff.failures else loud
        say("evidence waits", session=self.session, because=said(fault))
        return None

    def _be_stuck(self, why: str) -> None:
        if why != self._told:
            _log.error("evidence cannot be delivered", session=self.session, because=why)
        self.stuck = self._told = why

    # -------------------------------------------------------------------------------------------- one stream

    async def _once(self, clock: Clock, *, until_delivered: bool) -> None:
        talk = self._tongue()
        self.tally.streams += 1
        custody: Custody | None = None
        try:
            custody = await self._greeted(talk, clock)
            if custody is not None:
                await _Sending(self, talk, custody, clock).run(until_delivered=until_delivered)
        finally:
            if custody is not None:
                self._before = max(self._before, custody.sent)
            talk.end()

    async def _greeted(self, talk: Talk, clock: Clock) -> Custody | None:
        """EVD-001: hello, and the answer, where it can be true; None where that is an operator's matter."""
        spool = self.spool
        hello = Hello(self.channel, self.session, spool.first_available, spool.spooled_sequence)
        try:
            async with asyncio.timeout(self.still_ms / 1000):
                told = await talk.greet(hello)
        except TimeoutError:
            self.tally.stand_stills += 1
            raise Broken(f"no answer to the hello within {self.still_ms} ms") from None
        acked = spool.acked_sequence
        custody = begun(spool, told.acked, told.credit, self._before, clock.monotonic_ms())
        if isinstance(custody, Refused):
            self.tally.gaps += custody.name == "AckGap"
            self._be_stuck(str(custody))
            return None
        self.stuck = ""
        self.tally.replays += custody.sent < hello.last_spooled
        if spool.acked_sequence > acked:
            self._backoff.reset()  # the stream before got something through, only its ack was lost
        self._tell_waiting()
        return custody

    def take_ack(self, sequence: int) -> None:
        """The node has everything up to here; what was waited for is told, and failures are forgotten."""
        if sequence <= self.spool.acked_sequence:
            return  # SP-ACK-003: an ack that is not higher changes nothing
        stored = self.spool.ack(sequence)
        if isinstance(stored, Refused):
            raise TurnedAway(stored)
        self.tally.acks += 1
        self._noes, self.stuck, self._told = 0, "", ""
        self._backoff.reset()
        self._tell_waiting()

    def note_sent(self, first: int, records: int, size: int) -> None:
        self.tally.records += records
        self.tally.duplicates += max(0, min(records, self._before + 1 - first))
        self.tally.batch_records.add(records)
        self.tally.batch_bytes.add(size)

    def _tell_waiting(self) -> None:
        acked = self.spool.acked_sequence
        for sequence, arrival in self._waiting:
            if sequence <= acked and not arrival.done():
                arrival.set_result(None)
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]


class _Sending:
    """The part of a stream after the node's first mark: one task sends within the credit, one hears, one watches."""

    def __init__(self, delivery: Delivery, talk: Talk, custody: Custody, clock: Clock) -> None:
        self._delivery, self._talk, self._custody, self._clock = delivery, talk, custody, clock
        self._room, self._flight = asyncio.Event(), asyncio.Event()

    async def run(self, *, until_delivered: bool) -> None:
        works = self._send_forever(), self._hear(until_delivered=until_delivered), self._watch()
        tasks = {asyncio.create_task(work, name="evidence") for work in works}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_forever(self) -> None:
        spool, custody = self._delivery.spool, self._custody
        while True:
            try:
                await self._send_all(spool.batches(custody.go_on()))
            except Corrupt:
                if custody.sent >= custody.heard:
                    await self._landed()
                    raise
                continue  # acked and let go of, while we were about to read it: there is no hole
            if custody.sent >= spool.spooled_sequence:
                await self._news()

    async def _send_all(self, batches: Iterator[Batch]) -> None:
        custody = self._custody
        while (batch := await asyncio.to_thread(_next, batches)) is not None:
            for first, lines in pieces(batch, custody.piece_bytes_max):
                if not custody.passes_over(first + len(lines) - 1):
                    await self._send(first, lines)

    async def _news(self) -> None:
        """Until something more is spooled (SP-005); since somebody waits, the writer does not wait for company."""
        try:
            await self._delivery.spool.writer.spooled.arrival(self._custody.sent + 1)
        except Unavailable:  # nothing more will come, who emitted it is told; but acks do
            await asyncio.get_running_loop().create_future()

    async def _landed(self) -> None:
        """What stands before a hole is on its way: the stream is not cut before the node has it."""
        while self._custody.is_flying:
            self._room.clear()
            await self._room.wait()

    async def _send(self, first: int, lines: list[bytes]) -> None:
        size, custody = sum(map(len, lines)), self._custody
        if not custody.may_send(size):
            self._delivery.tally.credit_stalls += 1
        while not custody.may_send(size):
            self._room.clear()
            await self._room.wait()
        custody.send(first + len(lines) - 1, size, self._clock.monotonic_ms())
        self._flight.set()
        self._delivery.note_sent(first, len(lines), size)
        await self._talk.say(first, lines)

    async def _hear(self, *, until_delivered: bool) -> None:
        while not (until_delivered and self._delivery.is_delivered):
            self._take(await self._talk.hear())

    def _take(self, told: Mark) -> None:
        acked = told.acked or 0
        if no := self._custody.hear(acked, told.credit, self._clock.monotonic_ms()):
            raise TurnedAway(no)
        self._delivery.take_ack(acked)
        self._room.set()

    async def _watch(self) -> None:
        """Nothing ticks while nothing is on its way: an idle stream costs nothing."""
        still_ms = self._delivery.still_ms
        while True:
            await self._flight.wait()
            self._flight.clear()
            while self._custody.is_flying:
                left_ms = still_ms - self._custody.still_ms(self._clock.monotonic_ms())
                if left_ms <= 0:
                    self._delivery.tally.stand_stills += 1
                    raise Broken(f"acks stand still at {self._custody.heard} for {still_ms} ms")
                await self._clock.sleep(left_ms)


def _next(batches: Iterator[Batch]) -> Batch | None:
    return next(batches, None)


def pieces(batch: Batch, bytes_max: int) -> Iterator[tuple[int, list[bytes]]]:
    """The batch in messages of at most so many bytes or one record, each with its first sequence."""
    if sum(map(len, batch.lines)) <= bytes_max:
        yield batch.first, batch.lines
        return
    first, lines, size = batch.first, list[bytes](), 0
    for line in batch.lines:
        if lines and size + len(line) > bytes_max:
            yield first, lines
            first, lines, size = first + len(lines), [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield first, lines
