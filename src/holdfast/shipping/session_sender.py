"""Delivers one session of evidence: hello, the receiver's watermark, replay above it, then live (EVD-001).

Only spooled records are sent (SP-005), read from the spool, never from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import structlog

from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.ports import Clock
from holdfast.shipping.backoff import Backoff
from holdfast.shipping.evidence_transport import EvidenceStream, Hello, OpenStream, ReceiverAck
from holdfast.shipping.flow_control import SendWindow, open_window
from holdfast.shipping.node_connection import ProtocolError, RefusedByPeer, RpcFault, describe_fault, refusal_of
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.spool import RecordBatch, Spool

READ_INLINE_RECORDS: Final = 512
"""At most this number of records is read in the event loop; more are read in a thread."""
ACK_STALL_MS: Final = 30_000
"""A stream with records in flight whose acks do not advance for this long is closed and opened again."""
PERMANENT_REFUSALS: Final = frozenset({"SequenceConflict", "NotSpoken"})
"""Refusals that a retry does not change."""
OPERATOR_REFUSALS: Final = PERMANENT_REFUSALS | {"Forbidden", "NotFound"}
"""Those, and refusals that only a person changes: the channel is another's, or its provider is not registered."""
TRANSIENT_REFUSALS: Final = frozenset({"EvidenceGap", "ReceiverError"})
"""Refusals that a network which reorders messages can cause …"""
TRANSIENT_REFUSALS_MAX: Final = 5
"""… but not this often in a row without an ack: then the receiver has lost what it acked."""
_log = structlog.get_logger()


class SessionSender:
    """Sends one session. Its stream is opened again until everything is acked or the sender is stopped."""

    def __init__(
        self,
        *,
        channel: str,
        session: str,
        spool: Spool,
        open_stream: OpenStream,
        backoff: Backoff,
        metrics: SenderMetrics | None = None,
        ack_stall_ms: int = ACK_STALL_MS,
        gives_up_on: frozenset[str] = PERMANENT_REFUSALS,
    ) -> None:
        self.channel, self.session, self.spool = channel, session, spool
        self._gives_up_on = gives_up_on
        self.metrics, self.ack_stall_ms = metrics or SenderMetrics(), ack_stall_ms
        self._open_stream, self._backoff = open_stream, backoff
        self._ack_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._sent_before = spool.spooled_sequence
        """The last record that an earlier stream may have sent; how far an earlier process came is unknown."""
        self._transient_refusals = 0
        self.stuck_reason = ""
        """Why the session cannot be delivered though the receiver answers; empty where it can."""
        self._logged_reason = ""
        """The reason that was logged last: it is logged once while it stays the same."""

    @property
    def is_delivered(self) -> bool:
        return self.spool.acked_sequence >= self.spool.spooled_sequence

    async def wait_acked(self, sequence: int) -> None:
        """Return when the receiver has this record."""
        if self.spool.acked_sequence >= sequence:
            return
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ack_waiters.append((sequence, arrival))
        await arrival

    async def run(self, clock: Clock, *, until_delivered: bool = False) -> None:
        """For ever, or until everything is delivered or the session is stuck, which is logged for an operator."""
        while not (until_delivered and (self.is_delivered or self.stuck_reason)):
            try:
                await self._run_stream(clock, until_delivered=until_delivered)
            except (RpcFault, ProtocolError, Unavailable) as fault:
                self._log_failure(fault)
            except Corrupt as hole:
                self.metrics.gaps += 1
                self._mark_stuck(str(hole))
            except Exception:  # evidence is never given up because of a bug
                _log.exception("evidence_sender_error", session=self.session)
            if not (until_delivered and self.is_delivered):
                await self._backoff.pause(clock)

    # -------------------------------------------------------------------------------------------- failures

    def _log_failure(self, fault: RpcFault | ProtocolError | Unavailable) -> None:
        """Only the first of consecutive failures is logged above debug. Permanent refusals make the session stuck."""
        refusal = refusal_of(fault) if isinstance(fault, RpcFault) else getattr(fault, "refusal", None)
        if isinstance(refusal, Refused):
            self.metrics.refusals[refusal.name] += 1
            self.metrics.gaps += refusal.name == "EvidenceGap"
            self._transient_refusals += refusal.name in TRANSIENT_REFUSALS
            if refusal.name in self._gives_up_on or self._transient_refusals >= TRANSIENT_REFUSALS_MAX:
                return self._mark_stuck(str(refusal))
        first = _log.error if isinstance(fault, RefusedByPeer) else _log.info
        log = _log.debug if self._backoff.failures else first
        log("evidence_delivery_failed", session=self.session, reason=describe_fault(fault))
        return None

    def _mark_stuck(self, reason: str) -> None:
        if reason != self._logged_reason:
            _log.error("evidence_undeliverable", session=self.session, reason=reason)
        self.stuck_reason = self._logged_reason = reason

    # -------------------------------------------------------------------------------------------- one stream

    async def _run_stream(self, clock: Clock, *, until_delivered: bool) -> None:
        stream = self._open_stream()
        self.metrics.streams += 1
        window: SendWindow | None = None
        try:
            window = await self._handshake(stream, clock)
            if window is not None:
                await _StreamTasks(self, stream, window, clock).run(until_delivered=until_delivered)
        finally:
            if window is not None:
                self._sent_before = max(self._sent_before, window.sent)
            stream.end()

    async def _handshake(self, stream: EvidenceStream, clock: Clock) -> SendWindow | None:
        """EVD-001: send the hello and check the watermark; None where it needs an operator."""
        spool = self.spool
        hello = Hello(self.channel, self.session, spool.first_available, spool.spooled_sequence)
        try:
            async with asyncio.timeout(self.ack_stall_ms / 1000):
                ack = await stream.handshake(hello)
        except TimeoutError:
            self.metrics.ack_stalls += 1
            raise ProtocolError(f"no answer to the hello within {self.ack_stall_ms} ms") from None
        acked = spool.acked_sequence
        window = open_window(spool, ack.acked, ack.credit, self._sent_before, clock.monotonic_ms())
        if isinstance(window, Refused):
            self.metrics.gaps += window.name == "AckGap"
            self._mark_stuck(str(window))
            return None
        self.stuck_reason = ""
        self.metrics.replays += window.sent < hello.last_spooled
        if spool.acked_sequence > acked:
            self._backoff.reset()  # the last stream delivered records, only their ack was lost
        self._wake_ack_waiters()
        return window

    def on_ack(self, sequence: int) -> None:
        """The receiver has everything up to `sequence`: wake the waiters, and reset the back-off."""
        if sequence <= self.spool.acked_sequence:
            return  # SP-ACK-003: an ack that is not higher changes nothing
        stored = self.spool.ack(sequence)
        if isinstance(stored, Refused):
            raise RefusedByPeer(stored)
        self.metrics.acks += 1
        self._transient_refusals, self.stuck_reason, self._logged_reason = 0, "", ""
        self._backoff.reset()
        self._wake_ack_waiters()

    def count_sent(self, first: int, records: int, size: int) -> None:
        self.metrics.records += records
        self.metrics.duplicates += max(0, min(records, self._sent_before + 1 - first))
        self.metrics.batch_records.add(records)
        self.metrics.batch_bytes.add(size)

    def _wake_ack_waiters(self) -> None:
        acked = self.spool.acked_sequence
        for sequence, arrival in self._ack_waiters:
            if sequence <= acked and not arrival.done():
                arrival.set_result(None)
        self._ack_waiters = [entry for entry in self._ack_waiters if not entry[1].done()]


class _StreamTasks:
    """A stream after its handshake: one task sends within the credit, one receives acks, one detects a stall."""

    def __init__(self, sender: SessionSender, stream: EvidenceStream, window: SendWindow, clock: Clock) -> None:
        self._sender, self._stream, self._window, self._clock = sender, stream, window, clock
        self._window_open, self._in_flight = asyncio.Event(), asyncio.Event()

    async def run(self, *, until_delivered: bool) -> None:
        loops = self._send_forever(), self._receive_acks(until_delivered=until_delivered), self._watch_for_stall()
        tasks = {asyncio.create_task(loop, name="evidence") for loop in loops}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_forever(self) -> None:
        spool, window = self._sender.spool, self._window
        while True:
            try:
                await self._send_all(spool.batches(window.resume_after()))
            except Corrupt:
                if window.sent >= window.acked:
                    await self._wait_all_acked()
                    raise
                continue  # acked and deleted just before it was read: not a hole
            if window.sent >= spool.spooled_sequence:
                await self._wait_for_records()

    async def _send_all(self, batches: Iterator[RecordBatch]) -> None:
        window = self._window
        while (batch := await self._next_batch(batches)) is not None:
            for first, lines in split_batch(batch, window.batch_bytes_max):
                if not window.skip_if_acked(first + len(lines) - 1):
                    await self._send(first, lines)

    async def _next_batch(self, batches: Iterator[RecordBatch]) -> RecordBatch | None:
        """A few records that were just written are in the system's cache: a hand-over would take longer than that."""
        if self._sender.spool.spooled_sequence - self._window.sent <= READ_INLINE_RECORDS:
            return next(batches, None)
        return await asyncio.to_thread(_next_batch, batches)

    async def _wait_for_records(self) -> None:
        """Until more is spooled (SP-005). Waiting makes the writer commit at once."""
        try:
            await self._sender.spool.writer.spooled.wait_async(self._window.sent + 1)
        except Unavailable:  # nothing more will be spooled, but acks still arrive
            await asyncio.get_running_loop().create_future()

    async def _wait_all_acked(self) -> None:
        """The records before a hole are in flight: the stream is not closed before they are acked."""
        while self._window.has_in_flight:
            self._window_open.clear()
            await self._window_open.wait()

    async def _send(self, first: int, lines: list[bytes]) -> None:
        size, window = sum(map(len, lines)), self._window
        if not window.may_send(size):
            self._sender.metrics.credit_stalls += 1
        while not window.may_send(size):
            self._window_open.clear()
            await self._window_open.wait()
        window.record_sent(first + len(lines) - 1, size, self._clock.monotonic_ms())
        self._in_flight.set()
        self._sender.count_sent(first, len(lines), size)
        await self._stream.send(first, lines)

    async def _receive_acks(self, *, until_delivered: bool) -> None:
        while not (until_delivered and self._sender.is_delivered):
            self._on_ack(await self._stream.receive())

    def _on_ack(self, ack: ReceiverAck) -> None:
        acked = ack.acked or 0
        if refusal := self._window.on_ack(acked, ack.credit, self._clock.monotonic_ms()):
            raise RefusedByPeer(refusal)
        self._sender.on_ack(acked)
        self._window_open.set()

    async def _watch_for_stall(self) -> None:
        """There is no timer while nothing is in flight: an idle stream costs nothing."""
        stall_ms = self._sender.ack_stall_ms
        while True:
            await self._in_flight.wait()
            self._in_flight.clear()
            while self._window.has_in_flight:
                left_ms = stall_ms - self._window.ack_stall_ms(self._clock.monotonic_ms())
                if left_ms <= 0:
                    self._sender.metrics.ack_stalls += 1
                    raise ProtocolError(f"acks have not advanced from {self._window.acked} for {stall_ms} ms")
                await self._clock.sleep(left_ms)


def _next_batch(batches: Iterator[RecordBatch]) -> RecordBatch | None:
    return next(batches, None)


def split_batch(batch: RecordBatch, bytes_max: int) -> Iterator[tuple[int, list[bytes]]]:
    """The batch as messages of at most `bytes_max` bytes or one record, each with its first sequence."""
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
