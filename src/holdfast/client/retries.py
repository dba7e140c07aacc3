"""When a call is repeated: the node did not answer, or says that a later try may succeed."""

from __future__ import annotations

import time
from typing import Final

from holdfast.client.errors import NodeRefused, NodeUnreachable

TRANSIENT: Final = frozenset({"Unavailable", "RollbackRunning", "RateLimited"})
"""Refusals of a moment: every call is repeated after them."""
FULL: Final = frozenset({"QueueFull", "BackPressure"})
"""Refusals of back-pressure: jobs of a bulk request wait for room; a single job is refused at once."""
_FIRST_S, _MAX_S = 0.02, 1.0


class RetryDelay:
    """Growing pauses until the time is over."""

    def __init__(self, node: str, timeout_s: float) -> None:
        self._node, self._timeout_s, self._pause_s = node, timeout_s, _FIRST_S
        self._end_s = time.monotonic() + timeout_s

    def next_s(self, fault: Exception) -> float:
        """How long to pause before the next try; raises where the time is over."""
        if time.monotonic() + self._pause_s > self._end_s:
            if isinstance(fault, NodeRefused):
                raise fault
            reason = str(fault) or type(fault).__name__
            raise NodeUnreachable(f"no answer from {self._node} for {self._timeout_s:g} s: {reason}") from fault
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _MAX_S)
        return pause_s

    def reset(self) -> None:
        """There was an answer: the next trouble begins anew."""
        self._pause_s, self._end_s = _FIRST_S, time.monotonic() + self._timeout_s


def is_transient(refusal: NodeRefused) -> bool:
    """Whether the same request may succeed in a moment."""
    return refusal.name in TRANSIENT
