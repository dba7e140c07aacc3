"""The emitter's side: check, number and queue records, their payloads as bytes. It uses no disk and does not wait
(SP-PERF-001)."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.policy import SpoolPolicy
from holdfast.spool.clock import SpoolClock
from holdfast.spool.files.record import (
    DURABLE_FIELD_BYTES_MAX,
    RECORD_BYTES_MAX,
    SHALLOW_BYTES,
    Encoder,
    encode,
    is_too_large,
    why_not_payload,
)
from holdfast.spool.record_queue import QueuedLines, RecordQueue
from holdfast.spool.ticket import SequenceProgress, Ticket
from holdfast.spool.wakeup import Wakeup

QUEUE_FULL: Final = "QueueFull"
SPOOL_FULL: Final = "SpoolFull"
_BRACE: Final = ord("{")
_LINE_END: Final = ord("\n")


class Outbox:
    """Records that wait for the writer, and what decides whether one more is accepted.

    Emitters share one lock, for a microsecond each. The writer never takes it: it pops from the other end of the queue
    and publishes integers.
    """

    def __init__(
        self, encoder: Encoder, policy: SpoolPolicy, clock: SpoolClock, last: int, *, flush_records: int
    ) -> None:
        self._encoder, self._types, self._clock = encoder, encoder.types, clock
        self._record_bytes = encoder.line_bytes_max + DURABLE_FIELD_BYTES_MAX
        self.spooled = SequenceProgress(last, self.request_flush)
        self._records_max, self._flush_records = policy.queue_records_max, flush_records
        self.flush_interval_ms = policy.flush_interval_ms
        self._lock = threading.Lock()
        self._queue = RecordQueue(encoder, last)
        self._next = last + 1
        self._refusal: Refused | None = None
        self.accepted_bytes = 0
        """Bytes ever accepted, each record with the longest line that it could get."""
        self.written_bytes = 0
        """Of these, bytes that the writer has written."""
        self.accept_bytes_until = 0
        """`accepted_bytes` may grow up to here. The writer sets it when it has measured the folder (SP-RET-003)."""
        self.waiting_since_ms = 0
        self.flush_requested_to = 0
        """The highest sequence that a caller waits for."""
        self.last_type = ""
        """The payload type of the last record."""
        self.refusals: Counter[str] = Counter()
        self.writer_wakeup = Wakeup()
        self.maintainer_wakeup = Wakeup()

    def emit(self, payload_type: str, payload: object) -> Ticket | Refused:
        """Number the record and queue it, or refuse it without any effect (SP-003). One function: the hot path."""
        kind = self._types.get(payload_type)
        if kind is None:
            encoded = self._encoder.encode_type(payload_type)
            if isinstance(encoded, Refused):
                return self._count_refusal(encoded)
            kind = encoded
        try:
            text = encode(payload)
        except Exception:
            text = b""
        # A msgspec.Raw payload may contain a line end, which would split the record.
        if not text or text[0] != _BRACE or _LINE_END in text or (len(text) > SHALLOW_BYTES and is_too_large(text)):
            return self._count_refusal(why_not_payload(payload))
        now_ms, size, queue = self._clock.wall_ms(), self._record_bytes + len(kind) + len(text), self._queue
        with self._lock:
            if self._refusal is not None:
                return self._count_refusal(self._refusal)
            sequence = self._next
            waiting = sequence - queue.next
            if waiting >= self._records_max:
                return self._count_refusal(_refuse_queue_full(waiting))
            accepted = self.accepted_bytes + size
            if accepted > self.accept_bytes_until:
                return self._count_refusal(self._refuse_no_space(size))
            if not waiting:
                self.waiting_since_ms = self._clock.monotonic_ms()
            queue.append(now_ms, kind, text)
            self._next, self.accepted_bytes, self.last_type = sequence + 1, accepted, payload_type
        wakeup = self.writer_wakeup  # a notification is a system call: there is one for a commit, or none
        if wakeup.is_waiting and (waiting + 1 == self._flush_records or (waiting == 0 and wakeup.is_idle)):
            wakeup.notify()
        elif queue.must_ask:
            queue.must_ask = False
            self.maintainer_wakeup.notify()
        return Ticket(sequence, self.spooled)

    def _refuse_no_space(self, size: int) -> Refused:
        if size - self._record_bytes > RECORD_BYTES_MAX:
            return Refused("SEC-001", f"the record has {size} bytes, at most {RECORD_BYTES_MAX}", "", "InvalidParams")
        self.wanted_bytes = size
        self.maintainer_wakeup.notify()
        if self.is_disk_the_limit:
            hint = "free some space on the disk; what was acked is being reclaimed"
            return Refused("SP-RET-003", "the disk has no room for the record", hint, SPOOL_FULL)
        hint = "what was acked is being reclaimed; deliver more, or raise spool.channel_bytes_max"
        return Refused("SP-RET-003", "the channel's folder has reached its cap", hint, SPOOL_FULL)

    is_disk_the_limit = False
    """The disk, not the cap, decides how much is accepted. The writer sets it when it has measured the folder."""
    wanted_bytes = 0
    """What the last refused record would have needed; 0 when the maintainer has handled it."""

    def _count_refusal(self, refusal: Refused) -> Refused:
        self.refusals[refusal.name] += 1
        return refusal

    # -------------------------------------------------------------------------------------------- for the other threads

    def refuse_all(self, refusal: Refused | None) -> None:
        """Refuse every emit with this; None accepts records again."""
        with self._lock:
            self._refusal = refusal

    def append_last(self, payload_type: str, payload: object, refusal: Refused) -> int:
        """Queue one last record above the cap, in the space of the reserve, and refuse everything after it."""
        kind = self._encoder.encode_type(payload_type)
        assert isinstance(kind, bytes)
        with self._lock:
            self._refusal, self.last_type = refusal, payload_type
            sequence, text = self._next, encode(payload)
            self._queue.append(self._clock.wall_ms(), kind, text)
            self._next = sequence + 1
            self.accepted_bytes += self._record_bytes + len(kind) + len(text)
        self.request_flush(sequence)
        return sequence

    def request_flush(self, sequence: int) -> None:
        """A caller waits for this sequence: commit without waiting for more records."""
        self.flush_requested_to = max(self.flush_requested_to, sequence)
        self.writer_wakeup.notify()

    @property
    def waiting(self) -> int:
        return self._next - self._queue.next

    @property
    def last_sequence(self) -> int:
        """The last sequence that was assigned."""
        return self._next - 1

    def take(self, bytes_max: int, durable: int) -> QueuedLines:
        """For the writer: the lines of what waits, oldest first, as many as fit, at least one if there is any."""
        return QueuedLines(self._queue, self.waiting, bytes_max, durable)

    def next_record_bytes(self) -> int:
        """The size of the next record at most; 0 where none waits."""
        return self._queue.next_bytes() + DURABLE_FIELD_BYTES_MAX if self.waiting else 0

    @property
    def needs_memory(self) -> bool:
        return self._queue.needs_spares

    def prepare_memory(self) -> None:
        """For a thread that may wait: have memory ready for the lines to come."""
        self._queue.prepare_spares()


def _refuse_queue_full(waiting: int) -> Refused:
    message = f"{waiting} records wait for the disk, the queue in memory is full"
    return Refused(
        "SP-PERF-001", message, "the disk is slower than the emitters or hangs; emit again later", QUEUE_FULL
    )
