"""Which sorted runs of claims are merged, on every store: few runs to search, and each claim is rewritten rarely."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from holdfast.core.base.errors import Corrupt

RUNS_PER_MERGE: Final = 8
RUN_SIZE_MAX: Final = 1 << 17
"""A run of this size is not merged: merging eight of them would block the projection for many seconds."""

KEY_MIN, KEY_MAX = -(2**63), 2**63 - 1
SortedRun = tuple[int, int]
"""Number and size."""


def runs_to_merge(runs: Sequence[SortedRun]) -> list[SortedRun]:
    """The first eight small runs of about one size (within a factor of eight); none if there are fewer."""
    sizes: dict[int, list[SortedRun]] = {}
    for run, size in runs:
        if size >= RUN_SIZE_MAX:
            continue
        alike = sizes.setdefault(size.bit_length() // 3, [])
        alike.append((run, size))
        if len(alike) == RUNS_PER_MERGE:
            return alike
    return []


async def iter_run_keys(
    list_runs: Callable[[], Awaitable[Sequence[SortedRun]]],
    read_keys: Callable[[int, int], Awaitable[Sequence[int]]],
) -> AsyncIterator[Sequence[int]]:
    """The keys of all runs in chunks. Runs may be merged meanwhile: new ones are read as well, so no key is missing.

    The keys of a run that disappears are in a new one by then. Numbers only grow; a key may come twice.
    """
    seen: set[int] = set()
    while unseen := [run for run, _ in await list_runs() if run not in seen]:
        for run in unseen:
            seen.add(run)
            first = KEY_MIN
            while first <= KEY_MAX and (chunk := await read_keys(run, first)):
                if chunk[-1] < first:  # a damaged tree could be read in circles
                    raise Corrupt("ENG-004", f"the ids of run {run} are out of order", "run holdfast db rebuild")
                yield chunk
                first = chunk[-1] + 1
