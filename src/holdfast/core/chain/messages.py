"""Commands and events of the chain."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Digest, EventNo, Height


class SealBlock(Command, frozen=True):
    """Seal the open block. `sign` is an argument, as time is: core has no key, and the hash is computed here."""

    proposer: bytes
    sign: Callable[[bytes], bytes]


class RollBackBlocks(Command, frozen=True):
    """Roll back the blocks above this height; on development networks."""

    height: Height
    at_once_max: int = 512
    """The most transactions that one decision rolls back; with more of them it only starts, and steps follow."""


class ContinueRollback(Command, frozen=True):
    """The next step of the rollback that is under way: up to `limit` transactions with an effect."""

    limit: int = 512


class BlockSealed(Event, frozen=True, tag=40):
    """The open block is sealed. The rest of its header follows from the events before (CHN-006)."""

    height: Height
    hash: Digest
    time_ms: int
    proposer: bytes
    signature: bytes


class FinalizeSettlements(Command, frozen=True):
    """Make up to `limit` settlements of final blocks available."""

    limit: int = 1_024


class EvictFinalTxs(Command, frozen=True):
    """Evict up to `limit` transactions and as many settlements of final blocks that the tables hold."""

    as_of: EventNo
    """The event up to which the tables are complete: nothing that became final later is evicted (ENG-004)."""
    limit: int = 1_024


class BlocksFinal(Event, frozen=True, tag=124):
    """Blocks up to here are final (CHN-005). `SettlementsFinalized` makes their money available in steps.

    With few settlements, `Finalized` does both at once.
    """

    height: Height


class FinalTxsEvicted(Event, frozen=True, tag=125):
    """The next `count` transactions of final blocks left memory, and as many settlements with their jobs."""

    count: int
    as_of: EventNo = EventNo(0)
    """The tables were complete up to this event: only what had become final by then left memory."""


class SettlementsFinalized(Event, frozen=True, tag=126):
    """The next `count` settlements of final blocks are available (ESC-002)."""

    count: int


class BlockRolledBack(Event, frozen=True, tag=41):
    """The head was rolled back; its transactions wait to be included again (CHN-003, CHN-004).

    An empty hash stands for the open block: its transactions move to a lower height.
    """

    height: Height
    hash: bytes


class TransactionsReincluded(Event, frozen=True, tag=42):
    """The transactions of orphaned blocks are in the open block, in their old order (CHN-004).

    In steps these are the next `count` of them.
    """

    height: Height
    count: int


class RollbackStarted(Event, frozen=True, tag=43):
    """The block of this height is the head again (CHN-003): no result above it is readable from here on.

    The blocks above it are rolled back in steps. Until the end no block is sealed (CHN-004).
    """

    height: Height


class TransactionsUnlinked(Event, frozen=True, tag=44):
    """The last `count` transactions and settlements of the block that was rolled back last were undone (RES-006)."""

    count: int


class RollbackFinished(Event, frozen=True, tag=45):
    """All transactions of the orphaned blocks are in the open block, which can be sealed (CHN-004)."""

    height: Height
