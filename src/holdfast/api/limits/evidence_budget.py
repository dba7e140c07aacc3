"""Budgets of evidence in bytes (SEC-002): over its budget a sender waits for its acks, and is never refused.

Who has a stake has a budget of its own. Those without one have a small budget each, and share another: registering
again and again makes it no larger. Dead letters have a budget of their own; beyond it their digest, their size and
their beginning are kept.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.limits.rate_limit import TokenBuckets
from holdfast.core.evidence.messages import RejectedRecord
from holdfast.ports import Clock

BRIEF_BYTES: Final = 256
"""What is kept of a dead letter over budget, beside its digest and size."""
_KIB: Final = 1_024
_EVERYBODY: Final = "all without a stake"


class EvidenceBudget:
    """The budgets of all senders of a server, in KiB."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._clock = clock
        own = settings.evidence_kib_per_s, settings.evidence_kib_burst
        small = settings.unstaked_kib_per_s, settings.unstaked_kib_burst
        self._staked = (TokenBuckets(clock, *own), own[1])
        self._unstaked = (TokenBuckets(clock, *small), small[1])
        self._shared = (TokenBuckets(clock, *(SHARED_BY * each for each in small)), SHARED_BY * small[1])
        self._dead_letters = TokenBuckets(clock, *small)

    async def wait_turn(self, sender: str, size: int, *, is_staked: bool) -> None:
        """Return once these bytes are within the budget; until then nothing is stored and no ack is sent."""
        budgets = [(self._staked, sender)] if is_staked else [(self._unstaked, sender), (self._shared, _EVERYBODY)]
        for (buckets, burst), name in budgets:
            left = -(-size // _KIB)
            while left:
                part = min(left, burst)
                while wait_ms := buckets.take(name, part):
                    await self._clock.sleep(wait_ms)
                left -= part

    def shorten(self, sender: str, rejected: RejectedRecord) -> RejectedRecord:
        """The dead letter as it is kept: whole within the budget."""
        if len(rejected.raw) <= BRIEF_BYTES or not self._dead_letters.take(sender, -(-len(rejected.raw) // _KIB)):
            return rejected
        return msgspec.structs.replace(rejected, raw=rejected.raw[:BRIEF_BYTES])


SHARED_BY: Final = 16
"""The number of senders without a stake that can use their whole budgets at a time."""
