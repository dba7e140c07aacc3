"""All stored data compared with each other (ENG-001, 003, 004, 005, 007; TIER-001): `holdfast db check`.

It runs beside a node. The tables are read as of one moment and compared with the fold up to the batch of their
checkpoint; then the fold continues to the journal's end.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import msgspec

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.invariants import broken_invariants
from holdfast.core.policy import Policy
from holdfast.core.retention import Pass, is_dropped
from holdfast.history.archive_segments import ProgressCallback
from holdfast.history.full_journal import FullJournal
from holdfast.history.history_fold import HistoryFold, find_all_damage
from holdfast.history.table_diff import NAMED_MAX, NameSample
from holdfast.history.warm_check import check_outputs
from holdfast.ports import Blobs, Files, Tables

IRREPLACEABLE: Final = frozenset({"journal file", "history", "archive", "payloads", "ledger", "outputs"})
"""What nothing else can restore; snapshots and tables can be rebuilt."""


class CheckResult(msgspec.Struct, frozen=True):
    """One thing that was checked, whether it is good, and what to do if not."""

    name: str
    is_good: bool
    message: str
    hint: str = ""


async def check(
    journal: FullJournal,
    tables: Tables,
    files: Files,
    policy: Policy,
    progress: ProgressCallback | None = None,
    blobs: Blobs | None = None,
) -> list[CheckResult]:
    """All results, good and bad; only a store that cannot be read at all ends the check early.

    Outputs are checked where `blobs` has them.
    """
    journal_file = _file_result("journal file", await journal.faults(), _RESTORE)
    fold = HistoryFold(journal, files, policy, progress)
    await fold.begin()
    await fold.fold_until(await _checkpoint(tables))  # the long part, before the tables are read
    compared = await _tables(fold, journal, tables)
    fold.expected = None
    await fold.fold_until(None)
    return [
        journal_file,
        await _history(fold, journal),
        *await _archive(journal),
        _payloads(fold),
        _ledger(fold),
        _snapshots(fold),
        _file_result("tables file", await tables.faults(), _REBUILD),
        *compared,
        *([await _outputs(fold, tables, blobs)] if blobs is not None else []),
    ]


# ------------------------------------------------------------------------------------------------ journal


async def _history(fold: HistoryFold, journal: FullJournal) -> CheckResult:
    if fold.fault is None:
        begun = f"batch {fold.trimmed_until + 1}" if fold.trimmed_until else "the first batch"
        deleted = f"; the {fold.trimmed_until} before were deleted" if fold.trimmed_until else ""
        message = f"{fold.head.last} events in {fold.head.number} batches, an unbroken chain from {begun} on{deleted}"
        return CheckResult("history", True, message)
    names = NameSample()
    for damage in dict.fromkeys([fold.fault.message, *await find_all_damage(journal)]):
        names.add(damage)
    message = f"{names}; the fold stops at batch {fold.head.number}, event {fold.head.last}"
    return CheckResult("history", False, message, fold.fault.hint or _RESTORE)


async def _archive(journal: FullJournal) -> list[CheckResult]:
    """Segments of trimmed batches were folded as history; the others must agree with the store."""
    names = await journal.archive.names()
    if not names:
        return []
    try:
        if gaps := await journal.gaps():
            return [CheckResult("archive", False, "; ".join(gaps), _RESTORE)]
        await journal.check_overlap()
    except Corrupt as fault:
        return [CheckResult("archive", False, fault.message, fault.hint)]
    return [CheckResult("archive", True, f"{len(names)} segments, batches {names[0].first} to {names[-1].last}")]


def _payloads(fold: HistoryFold) -> CheckResult:
    lost = fold.payloads_lost
    for event in fold.hot_missing:
        if not is_dropped(fold.state, Pass.HOT, EventNo(event)):
            lost.add(f"the hot bytes of event {event} are missing")
    if lost.count:
        return CheckResult("payloads", False, f"{lost.count} of {fold.payload_count} large payloads: {lost}", _RESTORE)
    if gone := len(fold.hot_missing):
        message = f"{fold.payload_count - gone} large payloads, all stored; {gone} outputs were dropped by retention"
        return CheckResult("payloads", True, message)
    return CheckResult("payloads", True, f"{fold.payload_count} large payloads, all stored")


def _ledger(fold: HistoryFold) -> CheckResult:
    state = fold.state
    if broken := broken_invariants(state):
        return CheckResult(
            "ledger", False, f"does not hold: {'; '.join(broken)}", "stop the node and report this fault"
        )
    return CheckResult("ledger", True, f"balanced at event {state.last_event}")


async def _outputs(fold: HistoryFold, tables: Tables, blobs: Blobs) -> CheckResult:
    try:
        found = await check_outputs(fold, tables, blobs)
    except (Corrupt, Unavailable) as fault:
        return CheckResult("outputs", False, fault.message, fault.hint)
    wrong = {"damaged": found.damaged, "missing": found.missing}
    faults = [f"{names.count} {what}: {names}" for what, names in wrong.items() if names.count]
    if faults:
        return CheckResult("outputs", False, "; ".join(faults), "copy these files of warm/ from a backup")
    return CheckResult("outputs", True, f"{found.count} outputs of {found.bytes} bytes, all undamaged")


# ------------------------------------------------------------------------------------------------ snapshots and tables


def _snapshots(fold: HistoryFold) -> CheckResult:
    for number in fold.snapshots:
        reason = "history stops before it" if number > fold.head.number else "history before it was deleted"
        fold.snapshots_bad.add(f"batch {number} ({reason})")
    bad = fold.snapshots_bad
    if bad.count:
        return CheckResult(
            "snapshots", False, f"{bad.count} not usable: {bad}", "delete them; holdfast db snapshot makes one"
        )
    return CheckResult("snapshots", True, f"{fold.snapshots_good} equal to the fold")


async def _tables(fold: HistoryFold, journal: FullJournal, tables: Tables) -> list[CheckResult]:
    assert fold.expected is not None
    at: JournalHead | None = None
    try:
        async with aclosing(tables.dump()) as chunks:  # type: ignore[type-var]
            async for moment, table, rows in chunks:
                if at is None:
                    at = moment
                    if reason := await _why_not_compare(fold, journal, at):
                        return [CheckResult("tables", False, reason, _REBUILD)]
                    fold.expected.drop_expired_claims(at.time_ms)
                fold.expected.compare(table, rows)
    except (Corrupt, Unavailable) as fault:
        return [CheckResult("tables", False, fault.message, fault.hint)]
    assert at is not None
    return _table_results(fold, at)


async def _why_not_compare(fold: HistoryFold, journal: FullJournal, at: JournalHead) -> str | None:
    """Why the tables cannot be compared: the fold must reach exactly the batch of their checkpoint."""
    if at.number > (await journal.tip()).number:
        return f"they are at batch {at.number}, which the journal does not have"
    if at.number < fold.start.number:
        return f"they are at batch {at.number}, and history begins at batch {fold.start.number}"
    if at.number < fold.head.number:
        raise Unavailable("ENG-004", "the tables were emptied during the check", "check again")
    await fold.fold_until(at.number)
    if fold.fault is not None:
        return f"not compared: history cannot be folded up to their batch {at.number}"
    return None if fold.head == at else f"they are of another journal: its batch {at.number} differs"


def _table_results(fold: HistoryFold, at: JournalHead) -> list[CheckResult]:
    expected = fold.expected
    assert expected is not None
    wrong = {"missing": expected.missing(), "different": expected.different, "not in the journal": expected.extra}
    if fold.start.number:
        del wrong["not in the journal"]  # they may come from deleted batches
    faults = [f"{names.count} {what}: {names}" for what, names in wrong.items() if names.count]
    message = "; ".join(faults) or f"{expected.rows_compared} rows and ids equal to the fold at event {at.last}"
    twice = expected.claimed_twice
    unique = f"{twice.count} claimed more than once: {twice}" if twice.count else "each claimed once"
    return [
        CheckResult("tables", not faults, message, _REBUILD if faults else ""),
        CheckResult("ids", not twice.count, unique, "stop the node and report this fault" if twice.count else ""),
    ]


async def _checkpoint(tables: Tables) -> BatchNo:
    try:
        return (await tables.checkpoint()).number
    except (Corrupt, Unavailable):
        return BatchNo(0)


def _file_result(name: str, faults: list[str], hint: str) -> CheckResult:
    if not faults:
        return CheckResult(name, True, "undamaged, as far as the database can tell")
    more = f" and {len(faults) - NAMED_MAX} more" if len(faults) > NAMED_MAX else ""
    return CheckResult(name, False, "; ".join(faults[:NAMED_MAX]) + more, hint)


_RESTORE: Final = "restore a backup: holdfast db import"
_REBUILD: Final = "nothing is lost: stop the node and run holdfast db rebuild"
