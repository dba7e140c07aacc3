"""The emitter's side: check, number, encode, hand over bytes. It touches no disk and waits for nobody (SP-PERF-001)."""

from __future__ import annotations

import threading
from collections import Counter, deque
from itertools import repeat
from typing import Final

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Refused
from holdfast.spool.clock import Clock
from holdfast.spool.record import (
    MARK_BYTES_MAX,
    RECORD_BYTES_MAX,
    SHALLOW_BYTES,
    Encoder,
    encode,
    is_too_much,
    why_not_payload,
)
from holdfast.spool.signal import Signal
from holdfast.spool.ticket import Progress, Ticket

QUEUE_FULL: Final = "QueueFull"
SPOOL_FULL: Final = "SpoolFull"
_BRACE: Final = ord("{")
_LINE_END: Final = ord("\n")
_popleft: Final = deque[bytes].popleft


class Outbox:
    """Lines that wait for the writer, and all that decides whether one more may be numbered.

    Emitters share one lock, for a microsecond each. The writer never takes it: it takes from the other end of the queue
    and publishes whole numbers.
    """

    def __init__(self, encoder: Encoder, policy: SpoolPolicy, clock: Clock, last: int, *, flush_records: int) -> None:
        self._encoder, self._types, self._clock = encoder, encoder.types, clock
        self._line, self._wall_ms = encoder.line, clock.wall_ms
        self.spooled = Progress(last, self.hurry)
        self._records_max, self._flush_records = policy.queue_records_max, flush_records
        self._lock = threading.Lock()
        self._queue: deque[bytes] = deque()
        self._next = last + 1
        self._no: Refused | None = None
        self.accepted = 0
        """Bytes ever accepted, each record with the largest mark it could get."""
        self.taken = 0
        """Of these, bytes that the writer has put into the file."""
        self.accept_until = 0
        """`accepted` may grow up to here: moved by whoever measured the channel's folder (SP-RET-003)."""
        self.since_ms = 0
        self.hurried_to = 0
        """Somebody waits for this sequence."""
        self.last_type = ""
        """The payload type of the last record."""
        self.refusals: Counter[str] = Counter()
        self.writer = Signal()
        self.keeper = Signal()

    def emit(self, payload_type: str, payload: object) -> Ticket | Refused:
        """Number the record and hand it over, or refuse it without any effect (SP-003). Written flat: the hot path."""
        kind = self._types.get(payload_type)
        if kind is None:
            known = self._encoder.type_of(payload_type)
            if isinstance(known, Refused):
                return self._refused(known)
            kind = known
        try:
            text = encode(payload)
        except Exception:
            text = b""
        # What is encoded here has no line end; what is handed in ready-made may, and would be two lines.
        if not text or text[0] != _BRACE or _LINE_END in text or (len(text) > SHALLOW_BYTES and is_too_much(text)):
            return self._refused(why_not_payload(payload))
        now_ms, queue = self._wall_ms(), self._queue
        with self._lock:
            waiting = len(queue)
            if self._no is not None:
                return self._refused(self._no)
            if waiting >= self._records_max:
                return self._refused(_queue_full(waiting))
            sequence = self._next
            line = self._line(sequence, now_ms, kind, text)
            accepted = self.accepted + len(line) + MARK_BYTES_MAX
            if accepted > self.accept_until:
                return self._refused(self._no_room(line))
            if not waiting:
                self.since_ms = self._clock.monotonic_ms()
            queue.append(line)
            self._next, self.accepted, self.last_type = sequence + 1, accepted, payload_type
        if self.writer.is_awaited and (waiting == 0 or waiting + 1 >= self._flush_records):
            self.writer.give()
        return Ticket(sequence, self.spooled)

    def _no_room(self, line: bytes) -> Refused:
        if len(line) > RECORD_BYTES_MAX:
            return Refused(
                "SEC-001", f"the record has {len(line)} bytes, at most {RECORD_BYTES_MAX}", "", "InvalidParams"
            )
        self.wanted_bytes = len(line) + MARK_BYTES_MAX
        self.keeper.give()
        hint = "what was acked is being reclaimed; deliver more, or raise spool.channel_bytes_max"
        return Refused("SP-RET-003", "the channel's folder has reached its cap", hint, SPOOL_FULL)

    wanted_bytes = 0
    """What the last refused record would have needed; 0 when the keeper has seen to it."""

    def _refused(self, no: Refused) -> Refused:
        self.refusals[no.name] += 1
        return no

    # -------------------------------------------------------------------------------------------- for the others

    def refuse_from_now_on(self, no: Refused | None) -> None:
        """Every emit is answered so (None: emits are welcome again)."""
        with self._lock:
            self._no = no

    def end_with(self, payload_type: str, payload: object, no: Refused) -> int:
        """Number one last record past the cap, for which the reserve has room, and refuse whatever comes after it."""
        kind = self._encoder.type_of(payload_type)
        assert isinstance(kind, str)
        with self._lock:
            self._no, self.last_type = no, payload_type
            sequence = self._next
            line = self._encoder.line(sequence, self._clock.wall_ms(), kind, encode(payload))
            self._queue.append(line)
            self._next, self.accepted = sequence + 1, self.accepted + len(line) + MARK_BYTES_MAX
        self.hurry(sequence)
        return sequence

    def hurry(self, sequence: int) -> None:
        """Somebody waits: commit without waiting for more."""
        self.hurried_to = max(self.hurried_to, sequence)
        self.writer.give()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def last(self) -> int:
        """The last sequence that was given out."""
        return self._next - 1

    def take(self, bytes_max: int) -> list[bytes]:
        """For the writer: what piled up, oldest first, as much as fits, at least one if there is any."""
        queue, count = self._queue, len(self._queue)
        if self.accepted - self.taken <= bytes_max:
            return list(map(_popleft, repeat(queue, count)))
        taken: list[bytes] = []
        total = 0
        while queue and (not taken or total + len(queue[0]) <= bytes_max):
            total += len(queue[0])
            taken.append(queue.popleft())
        return taken

    def first_bytes(self) -> int:
        """How large the next record is at most; 0 where none waits."""
        return len(self._queue[0]) + MARK_BYTES_MAX if self._queue else 0


def _queue_full(waiting: int) -> Refused:
    says = f"{waiting} records wait for the disk, no more fit into memory"
    return Refused("SP-PERF-001", says, "the disk is slower than the emitters or hangs; emit again later", QUEUE_FULL)
