"""What blocks do to the results of callers (EVT-002): readable, rolled back, included again, final.

The journal has events of blocks alone. What follows for each result is derived from them while they are read, so a
subscriber is told at least once; its cursor is `number.index`, the block's event and the place among what it derives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar, Final

import msgspec

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import Event
from holdfast.core.base.values import AccountId, EventNo, Height, TaskId
from holdfast.core.chain.messages import BlockRolledBack, BlockSealed, BlocksFinal
from holdfast.core.escrow.messages import Finalized
from holdfast.core.proof.messages import ProofAccepted
from holdfast.engine import queries
from holdfast.engine.queries.chain import GetChainHead


class ResultEvent(Event, frozen=True):
    """What happened to the block of a result."""

    task_id: TaskId
    caller: AccountId
    height: Height
    is_public: bool = False


class ResultReadable(ResultEvent, frozen=True, tag=900):
    """The block that resolved it is sealed."""

    public_name: ClassVar = "readable"


class ResultRolledBack(ResultEvent, frozen=True, tag=901):
    """Its block was rolled back: it is not readable until it is included again."""

    public_name: ClassVar = "rolledBack"


class ResultReincluded(ResultEvent, frozen=True, tag=902):
    """After a rollback it is in a sealed block again."""

    public_name: ClassVar = "reincluded"


class ResultFinal(ResultEvent, frozen=True, tag=903):
    """Its block is final."""

    public_name: ClassVar = "finalized"


DERIVED: tuple[type[ResultEvent], ...] = (ResultReadable, ResultRolledBack, ResultReincluded, ResultFinal)


class _Included(msgspec.Struct):
    task_id: TaskId
    caller: AccountId
    is_public: bool
    was_rolled_back: bool = False


DIGITS_MAX: Final = 20
EVENTS_PER_TURN: Final = 64
"""How many past events are folded before other tasks get a turn of the event loop."""


class Cursor(msgspec.Struct, frozen=True):
    """Everything up to `after` was seen, and of the event after it the first `index` that it derives (EVT-002)."""

    after: EventNo
    index: int = 0


def parse_cursor(text: str) -> Cursor | None:
    """`number`, or `number.index`; None where it is neither."""
    number, dot, index = text.partition(".")
    parts = (number, index) if dot else (number,)
    if not all(part.isascii() and part.isdigit() and len(part) <= DIGITS_MAX for part in parts):
        return None
    return Cursor(EventNo(max(0, int(number) - 1)), int(index)) if dot else Cursor(EventNo(int(number)))


class BlockFold:
    """Follows events from a block on that was final, or from the first event on."""

    def __init__(self) -> None:
        self._waiting: list[_Included] = []
        self._blocks: dict[Height, list[_Included]] = {}

    def add(self, event: Event) -> list[ResultEvent]:
        """What the next event of the journal means for results."""
        match event:
            case ProofAccepted():
                self._waiting.append(_Included(event.task_id, event.caller, event.is_public))
            case BlockSealed():
                return list(self._seal(event.height))
            case BlockRolledBack() if event.hash:
                return list(self._roll_back(event.height))
            case Finalized() | BlocksFinal():
                return list(self._finalize(event.height))
        return []

    def _seal(self, height: Height) -> Iterator[ResultEvent]:
        self._blocks[height], self._waiting = self._waiting, []
        for each in self._blocks[height]:
            if each.was_rolled_back:
                yield ResultReincluded(each.task_id, each.caller, height, each.is_public)
            yield ResultReadable(each.task_id, each.caller, height, each.is_public)

    def _roll_back(self, height: Height) -> Iterator[ResultEvent]:
        results = self._blocks.pop(height, [])
        self._waiting = results + self._waiting
        for each in results:
            each.was_rolled_back = True
            yield ResultRolledBack(each.task_id, each.caller, height, each.is_public)

    def _finalize(self, height: Height) -> Iterator[ResultEvent]:
        for final in [each for each in self._blocks if each <= height]:
            for each in self._blocks.pop(final):
                yield ResultFinal(each.task_id, each.caller, final, each.is_public)


async def fold_start(source: queries.ReadSource, after: EventNo) -> EventNo:
    """Where a fold must begin to know everything that is not final at this event: after a block that was final."""
    low, high = 0, int(source.query_undurable(GetChainHead()).block.height)
    while low < high:  # the highest block of the chain that was sealed by then
        middle = (low + high + 1) // 2
        block = await queries.block(source, Height(middle))
        low, high = (middle, high) if block is not None and block.event <= after else (low, middle - 1)
    # That block's own seal may be followed by the event that makes another one final.
    block = await queries.block(source, Height(low - source.policy.chain.finality_depth - 1))
    return EventNo(0) if block is None else block.last_event


async def primed_fold(source: queries.ReadSource, after: EventNo) -> BlockFold:
    """A fold that has seen all that counts up to this event; without its past where that was deleted."""
    fold = BlockFold()
    try:
        start = await fold_start(source, after)
        if start < after:
            async for stored in source.event_stream.follow(start):
                fold.add(stored.event)
                if stored.number >= after:
                    break
                if stored.number % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
    except Unavailable:
        return BlockFold()
    return fold
