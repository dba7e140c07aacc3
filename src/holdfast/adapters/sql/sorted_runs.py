"""Sorted runs of claims, on every store: which ones are merged, what a merged one holds, and when one is over.

Few runs to search, and each claim is rewritten rarely. Claims that count for a while have runs of their own: merging
leaves out what has expired, and a run whose last claim has expired is deleted as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

from holdfast.adapters.sql.claim_rows import (
    ID_BYTES,
    ClaimPage,
    make_pages,
    page_prefixes,
    split_pages,
    until_of,
)
from holdfast.core.base.errors import Corrupt

RUNS_PER_MERGE: Final = 8
RUN_SIZE_MAX: Final = 1 << 17
"""A run of this size is not merged: merging eight of them would block the projection for many seconds."""

SortedRun = tuple[int, int, int]
"""Number, size, and until when the last of its claims counts (0: for ever)."""
PAGES_PER_READ: Final = 100


def runs_to_merge(runs: Sequence[SortedRun]) -> list[int]:
    """The first eight small runs of about one size (within a factor of eight) and one kind; none if there are fewer."""
    alike: dict[tuple[int, bool], list[int]] = {}
    for run, size, until_ms in runs:
        if size >= RUN_SIZE_MAX:
            continue
        found = alike.setdefault((size.bit_length() // 3, bool(until_ms)), [])
        found.append(run)
        if len(found) == RUNS_PER_MERGE:
            return found
    return []


def runs_over(runs: Sequence[SortedRun], now_ms: int) -> list[int]:
    """Those whose last claim has expired; never the newest, so that a number is not used again."""
    newest = max((run for run, *_ in runs), default=0)
    return [run for run, _, until_ms in runs if until_ms and until_ms <= now_ms and run != newest]


def make_run(records: Iterable[bytes], now_ms: int) -> tuple[list[ClaimPage], int, int]:
    """The pages of a run without what has expired by now, their number of claims, and until when the last counts."""
    kept = sorted(records)
    if not kept or not until_of(kept[0]):  # a run is of one kind: these count for ever
        return list(make_pages(kept)), len(kept), 0
    kept = list({record[:ID_BYTES]: record for record in kept if until_of(record) > now_ms}.values())
    return list(make_pages(kept)), len(kept), max(map(until_of, kept), default=0)  # of two of one id the later counts


def merge_pages(pages: Iterable[bytes], now_ms: int) -> tuple[list[ClaimPage], int, int]:
    """The same of several runs."""
    return make_run(split_pages(pages), now_ms)


async def iter_run_keys(
    list_runs: Callable[[], Awaitable[Sequence[SortedRun]]],
    read_pages: Callable[[int, bytes], Awaitable[Sequence[bytes]]],
) -> AsyncIterator[Sequence[int]]:
    """The keys of all runs in chunks. Runs may be merged meanwhile: new ones are read as well, so no key is missing.

    The keys of a run that disappears are in a new one by then. Numbers only grow; a key may come twice.
    """
    seen: set[int] = set()
    while unseen := [run for run, *_ in await list_runs() if run not in seen]:
        for run in unseen:
            seen.add(run)
            after = b""
            while pages := await read_pages(run, after):
                yield [prefix for page in pages for prefix in page_prefixes(page)]
                first = pages[-1][:ID_BYTES]
                if first <= after:  # a damaged tree could be read in circles
                    raise Corrupt("ENG-004", f"the ids of run {run} are out of order", "run holdfast db rebuild")
                after = first
