"""The output bytes of the warm tier, read and hashed, and compared with the results that need them (TIER-001, RET-002).

It runs beside a node. What results need is read before the files are listed, since bytes are durable before their
result; what is missing then may have been dropped meanwhile, which the rest of the journal tells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, EventNo
from holdfast.core.result.model import Result
from holdfast.core.retention import Pass, is_dropped
from holdfast.core.tables import record_from_row
from holdfast.history.history_fold import HistoryFold
from holdfast.history.table_diff import NameSample
from holdfast.ports import SCAN_END, Blobs, Tables

PAGE: Final = 500
ANY_AGE_MS: Final = 1 << 62


class WarmFindings(msgspec.Struct):
    """What a look at all output bytes has found."""

    count: int = 0
    bytes: int = 0
    damaged: NameSample = msgspec.field(default_factory=NameSample)
    missing: NameSample = msgspec.field(default_factory=NameSample)


async def check_outputs(fold: HistoryFold, tables: Tables, blobs: Blobs) -> WarmFindings:
    """Every copy that is held is read; what a result needs must be held."""
    needed, findings = await _needed(fold, tables), WarmFindings()
    async for digest, size, is_damaged in _read_all(blobs):
        needed.pop(digest, None)
        findings.count += 1
        findings.bytes += size
        if is_damaged:
            findings.damaged.add(digest.hex())
    await fold.fold_until(None)
    for digest, events in needed.items():
        if not all(is_dropped(fold.state, Pass.WARM, event) for event in events):
            findings.missing.add(digest.hex())
    return findings


async def _needed(fold: HistoryFold, tables: Tables) -> dict[Digest, list[EventNo]]:
    """The digests of results whose bytes were not dropped; none where the tables cannot say."""
    needed: dict[Digest, list[EventNo]] = {}
    after: object = -1
    try:
        while after is not None:
            rows, _ = await tables.page("result", {}, after, PAGE)
            for result in (record_from_row(Result, row) for row in rows):
                if not is_dropped(fold.state, Pass.WARM, result.event):
                    needed.setdefault(result.result_digest, []).append(result.event)
            after = rows[-1][0] if len(rows) == PAGE else None
    except (Corrupt, Unavailable, msgspec.ValidationError):
        return {}  # the check of the tables names what is wrong with them
    return needed


async def _read_all(blobs: Blobs) -> AsyncIterator[tuple[Digest, int, bool]]:
    position = 0
    while position < SCAN_END:
        listed, position = await blobs.list_aged(ANY_AGE_MS, position, PAGE)
        damaged = set(await blobs.find_damaged([digest for digest, _ in listed]))
        for digest, size in listed:
            yield digest, size, digest in damaged
