"""What can be asked of the chain and what then happened: the station's commands and events."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.core.event import Event
from holdfast.core.values import Digest, Height


class Seal(msgspec.Struct, frozen=True, gc=False):
    """Close the open block. The proposer's signature is a function handed in, as the time is: core holds no key."""

    proposer: bytes
    sign: Callable[[bytes], bytes]


class RollBack(msgspec.Struct, frozen=True, gc=False):
    """Take back the blocks above this height; on development networks."""

    height: Height


class BlockSealed(Event, frozen=True, tag=40):
    """The open block is closed. The rest of its header follows from the events before (CHN-006)."""

    height: Height
    hash: Digest
    time_ms: int
    proposer: bytes
    signature: bytes


class Release(msgspec.Struct, frozen=True, gc=False):
    """Let go of so many transactions of final blocks, and of the money that waits with them."""

    limit: int = 1_024


class BlocksFinal(Event, frozen=True, tag=124):
    """Blocks up to here are never taken back (CHN-005). So much was in them that it is let go in lots, by `Released`.

    Where little was, `Finalized` says both at once.
    """

    height: Height


class Released(Event, frozen=True, tag=125):
    """So many settlements of final blocks are available now, and so many of their transactions are history."""

    count: int


class BlockUndone(Event, frozen=True, tag=41):
    """The topmost block was taken back; its transactions wait for the next one (CHN-003, CHN-004).

    Where the hash is empty it was the open block, whose transactions move to a lower height.
    """

    height: Height
    hash: bytes


class Reincluded(Event, frozen=True, tag=42):
    """What was in blocks that are gone is in the open block now, in its old order (CHN-004)."""

    height: Height
    count: int
