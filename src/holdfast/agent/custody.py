"""Custody of what is on its way on one stream: what may be sent, which ack can be true, whether acks stand still.

Decisions only (EVD-001, SP-ACK-001): no clock, no wire, no disk, so that a simulated world can drive them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from holdfast.core.refusal import Refused

PIECE_BYTES_MAX: Final = 1 << 20
"""One message holds no more than this."""


class Kept(Protocol):
    """What is asked of the spool."""

    def agree(self, told: int | None) -> int | Refused: ...


class Custody:
    """From the node's first mark to the end of the stream."""

    def __init__(self, after: int, credit: int, before: int, now_ms: int) -> None:
        """`before` is the last record that an earlier stream of this session may have sent."""
        self.sent = self.heard = after
        self._before, self._credit = max(after, before), credit
        self._flying: deque[tuple[int, int]] = deque()
        """Last sequence and bytes of what is on its way."""
        self._flying_bytes = 0
        self._moved_ms = now_ms

    # -------------------------------------------------------------------------------------------- sending

    @property
    def piece_bytes_max(self) -> int:
        return max(1, min(PIECE_BYTES_MAX, self._credit))

    @property
    def ceiling(self) -> int:
        """The last record that the node can have by anything that was sent to it."""
        return max(self.sent, self._before)

    def may_send(self, size: int) -> bool:
        """Within the credit; alone also beyond it, since a record that is larger would never get through."""
        if not self._flying:
            return self._credit > 0
        return self._flying_bytes + size <= self._credit

    def send(self, last: int, size: int, now_ms: int) -> None:
        """Records up to `last` go out, the first of them right behind what was sent before."""
        if not self._flying:
            self._moved_ms = now_ms
        self.sent = last
        self._flying.append((last, size))
        self._flying_bytes += size

    def go_on(self) -> int:
        """After which record to go on reading: what the node has said that it has may be gone from here."""
        self.sent = max(self.sent, self.heard)
        return self.sent

    def passes_over(self, last: int) -> bool:
        """The node has said meanwhile that it has all of these: they need not be sent."""
        if last > self.heard:
            return False
        self.sent = max(self.sent, last)
        return True

    # -------------------------------------------------------------------------------------------- hearing

    def hear(self, acked: int, credit: int, now_ms: int) -> Refused | None:
        """SP-ACK-001: an ack of what was never sent cannot be true; one that is not higher moves nothing."""
        if acked > self.ceiling:
            says = f"the node acked {acked}, only {self.ceiling} were sent"
            return Refused("SP-ACK-001", says, "a protocol error of the receiver: the ack is not stored", "AckAhead")
        self._credit = credit
        if acked > self.heard:
            self.heard, self._moved_ms = acked, now_ms
        while self._flying and self._flying[0][0] <= self.heard:
            self._flying_bytes -= self._flying.popleft()[1]
        return None

    @property
    def is_flying(self) -> bool:
        return bool(self._flying)

    def still_ms(self, now_ms: int) -> int:
        """For how long something has been on its way without an ack that moved; 0 where nothing is."""
        return max(0, now_ms - self._moved_ms) if self._flying else 0


def begun(spool: Kept, told: int | None, credit: int, before: int, now_ms: int) -> Custody | Refused:
    """SP-ACK-004: the receiver's mark is where to go on, if it can be true and we still have what follows it."""
    after = spool.agree(told)
    return after if isinstance(after, Refused) else Custody(after, credit, before, now_ms)
