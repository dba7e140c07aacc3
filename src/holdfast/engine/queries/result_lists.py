"""Lists of results (RES-009): by resolved height, from the log of leaves, and of one caller, from the rows.

Both start in the middle without a search. A block says where its leaves begin; the rows of results are in the order of
their heights, so the first result of a block says after which row a caller's results of that height begin.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.values import AccountId, Digest, EventNo, Height, TaskId
from holdfast.core.result.model import Result
from holdfast.engine.queries.chain import GetChainHead
from holdfast.engine.queries.records import PAGE_MAX, block, leaves, page, result
from holdfast.engine.queries.source import Page, ReadSource


class HeightRange(msgspec.Struct, frozen=True):
    """From one height to another, both included."""

    first: Height = Height(1)
    last: Height | None = None

    def is_beyond(self, height: int) -> bool:
        return self.last is not None and height > self.last


class LoggedResult(msgspec.Struct, frozen=True):
    """What the log of all results has of one: it is public like the chain, and stays for ever."""

    leaf_index: int
    task_id: TaskId
    proof_nullifier: Digest
    result_digest: Digest
    result_size: int
    da_commitment: Digest | None
    height_resolved: Height


async def results_by_height(source: ReadSource, heights: HeightRange, cursor: int, limit: int) -> Page:
    """Results of sealed blocks in the order of the log; the cursor is the first place that is shown."""
    begin, end = await _places(source, heights.first)
    begin = max(begin, cursor)
    count = min(limit, PAGE_MAX, max(0, end - begin))
    rows = [_logged(index, raw) for index, raw in enumerate(await leaves(source, begin, count), begin)]
    wanted = [row for row in rows if not heights.is_beyond(row.height_resolved)]
    has_more = len(wanted) == count and begin + count < end
    return Page(wanted, source.replication_status().tip.last, begin + count if has_more else None)


async def results_of_caller(
    source: ReadSource, caller: AccountId, heights: HeightRange, cursor: int, limit: int
) -> Page:
    """A caller's results in the order of their proofs; the cursor is the event of the last one that was shown."""
    sealed = (await source.query_durable(GetChainHead())).block.height
    heights = HeightRange(heights.first, sealed if heights.last is None else min(heights.last, sealed))
    begin = await _event_before(source, heights.first)
    if begin is None:
        return Page([], source.replication_status().tip.last, None)
    found = await page(source, "result", {"caller": caller}, max(begin, cursor), limit)
    rows: list[Result] = found.rows
    wanted = [row for row in rows if row.height_resolved and not heights.is_beyond(row.height_resolved)]
    is_over = bool(rows) and heights.is_beyond(rows[-1].height_resolved)
    return Page(wanted, found.as_of, None if is_over else found.next_after)


async def _places(source: ReadSource, first: Height) -> tuple[int, int]:
    """Where the leaves of a height begin in the log, and where those of the last sealed block end."""
    end = (await source.query_durable(GetChainHead())).block.log_size
    if first <= 1:
        return 0, end
    begun = await block(source, first)
    return begun.log_size - begun.result_count if begun is not None else end, end


async def _event_before(source: ReadSource, first: Height) -> EventNo | None:
    """The event after which the results from a height on begin; None where there are none."""
    begin, end = await _places(source, first)
    if begin == 0:
        return EventNo(0)
    if begin >= end:
        return None
    (raw,) = await leaves(source, begin, 1)
    found = await result(source, _logged(begin, raw).task_id)
    return EventNo(found.event - 1) if found is not None else EventNo(0)


def _logged(index: int, raw: bytes) -> LoggedResult:
    fields: Any = decode_canonical(raw)
    task_id, nullifier, digest, size, commitment, height = fields
    return LoggedResult(
        leaf_index=index,
        task_id=task_id,
        proof_nullifier=nullifier,
        result_digest=digest,
        result_size=size,
        da_commitment=commitment,
        height_resolved=height,
    )
