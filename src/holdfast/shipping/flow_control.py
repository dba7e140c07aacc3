"""Flow control of one stream: what may be sent, which acks are plausible, and for how long acks do not advance.

Decisions only (EVD-001, SP-ACK-001): no clock, no network, no disk, so that a simulation can drive them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from holdfast.core.base.errors import Refused

BATCH_BYTES_MAX: Final = 1 << 20
"""The most bytes of records in one message."""


class AckReconciler(Protocol):
    """The part of the spool that is needed."""

    def reconcile_ack(self, receiver_ack: int | None) -> int | Refused: ...


class SendWindow:
    """The records in flight, from the receiver's first watermark to the end of the stream."""

    def __init__(self, after: int, credit: int, sent_before: int, now_ms: int) -> None:
        """`sent_before` is the last record that an earlier stream of this session may have sent."""
        self.sent = self.acked = after
        self._sent_before, self._credit = max(after, sent_before), credit
        self._in_flight: deque[tuple[int, int]] = deque()
        """Last sequence and bytes of each batch in flight."""
        self._in_flight_bytes = 0
        self._progress_ms = now_ms

    # -------------------------------------------------------------------------------------------- sending

    @property
    def batch_bytes_max(self) -> int:
        return max(1, min(BATCH_BYTES_MAX, self._credit))

    @property
    def ack_max(self) -> int:
        """The last record that the receiver can have."""
        return max(self.sent, self._sent_before)

    def may_send(self, size: int) -> bool:
        """Within the credit. A single batch may exceed it: a larger record could never be sent otherwise."""
        if not self._in_flight:
            return self._credit > 0
        return self._in_flight_bytes + size <= self._credit

    def record_sent(self, last: int, size: int, now_ms: int) -> None:
        """Records up to `last` are being sent, right behind those sent before."""
        if not self._in_flight:
            self._progress_ms = now_ms
        self.sent = last
        self._in_flight.append((last, size))
        self._in_flight_bytes += size

    def resume_after(self) -> int:
        """The record after which to continue reading: what is acked may be deleted here."""
        self.sent = max(self.sent, self.acked)
        return self.sent

    def skip_if_acked(self, last: int) -> bool:
        """Records up to `last` were acked meanwhile, and need not be sent."""
        if last > self.acked:
            return False
        self.sent = max(self.sent, last)
        return True

    # -------------------------------------------------------------------------------------------- receiving

    def on_ack(self, acked: int, credit: int, now_ms: int) -> Refused | None:
        """SP-ACK-001: an ack of what was never sent is refused; one that is not higher changes nothing."""
        if acked > self.ack_max:
            message = f"the node acked {acked}, only {self.ack_max} were sent"
            hint = "a protocol error of the receiver: the ack is not stored"
            return Refused("SP-ACK-001", message, hint, "AckAhead")
        self._credit = credit
        if acked > self.acked:
            self.acked, self._progress_ms = acked, now_ms
        while self._in_flight and self._in_flight[0][0] <= self.acked:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        return None

    @property
    def has_in_flight(self) -> bool:
        return bool(self._in_flight)

    def ack_stall_ms(self, now_ms: int) -> int:
        """For how long records are in flight and acks have not advanced; 0 where nothing is in flight."""
        return max(0, now_ms - self._progress_ms) if self._in_flight else 0


def open_window(
    spool: AckReconciler, receiver_ack: int | None, credit: int, sent_before: int, now_ms: int
) -> SendWindow | Refused:
    """SP-ACK-004: continue behind the receiver's watermark, if it is plausible and the next record is still here."""
    after = spool.reconcile_ack(receiver_ack)
    return after if isinstance(after, Refused) else SendWindow(after, credit, sent_before, now_ms)
