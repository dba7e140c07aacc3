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


async def results_by_height(
    source: ReadSource, heights: HeightRange, cursor: int, limit: int, *, is_newest_first: bool = False
) -> Page:
    """Results of sealed blocks in the order of the log; the cursor is the first place that is shown.

    Newest first: the cursor is the place below which it goes on, 0 for the first page.
    """
    begin, end = await _places(source, heights)
    count_max = min(limit, PAGE_MAX)
    if is_newest_first:
        stop = min(end, cursor or end)
        start = max(begin, stop - count_max)
        next_after = start if start > begin else None
    else:
        start = max(begin, cursor)
        stop = min(end, start + count_max)
        next_after = stop if stop < end else None
    rows = [_logged(at, raw) for at, raw in enumerate(await leaves(source, start, max(0, stop - start)), start)]
    return Page(rows[::-1] if is_newest_first else rows, source.replication_status().tip.last, next_after)


async def results_of_caller(
    source: ReadSource,
    caller: AccountId,
    heights: HeightRange,
    cursor: int,
    limit: int,
    *,
    is_newest_first: bool = False,
) -> Page:
    """A caller's results in the order of their proofs; the cursor is the event of the last one that was shown."""
    sealed = (await source.query_durable(GetChainHead())).block.height
    last_height = sealed if heights.last is None else min(heights.last, sealed)
    heights = HeightRange(heights.first, last_height)
    begin = await _event_before(source, heights.first)
    if begin is None:
        return Page([], source.replication_status().tip.last, None)
    after = cursor if is_newest_first else max(begin, cursor)
    if is_newest_first and not cursor and last_height < sealed:
        above = await _event_before(source, Height(last_height + 1))
        after = above + 1 if above else 0
    found = await page(source, "result", {"caller": caller}, after, limit, is_newest_first=is_newest_first)
    rows: list[Result] = found.rows
    wanted = [
        row for row in rows if row.event > begin and row.height_resolved and not heights.is_beyond(row.height_resolved)
    ]
    last = rows[-1] if rows else None
    is_below = is_newest_first and last is not None and last.event <= begin
    is_above = not is_newest_first and last is not None and heights.is_beyond(last.height_resolved)
    return Page(wanted, found.as_of, None if is_below or is_above else found.next_after)


async def _places(source: ReadSource, heights: HeightRange) -> tuple[int, int]:
    """Where the leaves of the first height begin in the log, and where those of the last one that is sealed end."""
    head = (await source.query_durable(GetChainHead())).block
    begin, end = 0, head.log_size
    if heights.first > 1:
        first = await block(source, heights.first)
        begin = first.log_size - first.result_count if first is not None else end
    if heights.last is not None and heights.last < head.height:
        last = await block(source, heights.last)
        end = last.log_size if last is not None else 0
    return begin, end


async def _event_before(source: ReadSource, first: Height) -> EventNo | None:
    """The event after which the results from a height on begin; None where there are none."""
    begin, end = await _places(source, HeightRange(first))
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
