"""Distinct types for distinct numbers and ids, so that a height is never taken for an event number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NewType, TypeVar

T = TypeVar("T")
ChainId = NewType("ChainId", int)
Height = NewType("Height", int)
"""Height of a block."""
EventNo = NewType("EventNo", int)
"""Number of an event: 1, 2, 3 … without gaps; 0 is before the first."""
BatchNo = NewType("BatchNo", int)
"""Number of a journal batch: 1, 2, 3 …; 0 is before the first."""
Term = NewType("Term", int)
"""How often ownership of the journal was taken."""
Amount = NewType("Amount", int)
"""Money in the smallest unit."""

VerifySignature = Callable[[bytes, bytes, bytes], bool]
"""Whether a signature is valid: (public key, message, signature)."""

Digest = NewType("Digest", bytes)
TaskId = NewType("TaskId", bytes)
LeaseId = NewType("LeaseId", bytes)
ProviderId = NewType("ProviderId", bytes)
Seed = NewType("Seed", bytes)
ReservationId = NewType("ReservationId", bytes)
"""Names one reservation of money for ever; for a job's money it is the job's task id."""
AccountId = NewType("AccountId", str)
KeyId = NewType("KeyId", str)
"""Names an API key; not its secret."""

U64_MAX: Final = 2**64 - 1
I64_MAX: Final = 2**63 - 1
"""What a signed 64-bit column of a table can hold."""
PPM: Final = 1_000_000
"""One whole in parts per million."""
ACCOUNT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")
"""How an account may be named."""
ZERO_DIGEST: Final = Digest(bytes(32))


class Kind(StrEnum):
    """The kind of work that a job needs."""

    AI = "AI"
    QUANTUM = "QUANTUM"
    COMPUTE = "COMPUTE"


KIND_NAMES: Final = {kind: kind.value for kind in Kind}
"""As plain text: an enum's `value` is a call, and the hot path needs it often."""


class Tier(StrEnum):
    """The subscription of a requester."""

    FREE = "FREE"
    PRO = "PRO"
    PREMIUM = "PREMIUM"


class Network(StrEnum):
    """Where the node runs: only a development network mints money and rolls back on demand."""

    DEVELOPMENT = "development"
    PRODUCTION = "production"


def tally(items: Iterable[T]) -> dict[T, int]:
    """How often each occurs, in the order of first occurrence; for the few of a run quicker than a Counter."""
    counts: dict[T, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts


def add_count(counts: dict[T, int], item: T, by: int) -> None:
    """Change how often an item is counted; at zero it is deleted."""
    if left := counts.get(item, 0) + by:
        counts[item] = left
    else:
        del counts[item]
