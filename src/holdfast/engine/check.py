"""Everything that is stored, held against everything else (ENG-001, 003, 004, 005, 007): `holdfast db check`.

It reads beside a running node. The tables are looked at as they are in one moment, and compared with the fold up to
the batch that they claim for that moment; then the fold goes on to the journal's end.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import msgspec

from holdfast.core.escrow.books import broken_laws
from holdfast.core.event import Tip
from holdfast.core.lease.laws import broken_laws as of_leases
from holdfast.core.policy import Policy
from holdfast.core.queue.books import broken_laws as of_queue
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.retention import Pass, is_dropped
from holdfast.core.values import BatchNo, EventNo
from holdfast.engine.chapters import Progress
from holdfast.engine.compare import NAMED_MAX, Names
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.walk import Walk, each_damage
from holdfast.ports import Files, Tables

TRUTH: Final = frozenset({"journal file", "history", "archive", "payloads", "ledger"})
"""What nothing else can bring back; snapshots and tables can be made again."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, whether it is as it should be, and what to do if not."""

    name: str
    is_good: bool
    says: str
    hint: str = ""


async def check(
    journal: LongJournal, tables: Tables, files: Files, policy: Policy, progress: Progress | None = None
) -> list[Finding]:
    """All findings, good and bad; it ends early for nothing but a store that cannot be had at all."""
    journal_file = _file("journal file", await journal.faults(), _RESTORE)
    walk = Walk(journal, files, policy, progress)
    await walk.begin()
    await walk.on_to(await _checkpoint(tables))  # the long part, before the tables' moment is held
    compared = await _tables(walk, journal, tables)
    walk.expected = None
    await walk.on_to(None)
    return [
        journal_file,
        await _history(walk, journal),
        *await _archive(journal),
        _payloads(walk),
        _ledger(walk),
        _snapshots(walk),
        _file("tables file", await tables.faults(), _REBUILD),
        *compared,
    ]


# ------------------------------------------------------------------------------------------------ the truth


async def _history(walk: Walk, journal: LongJournal) -> Finding:
    if walk.broken is None:
        begun = f"batch {walk.floor + 1}" if walk.floor else "the first batch"
        gone = f"; the {walk.floor} before were deleted" if walk.floor else ""
        says = f"{walk.tip.last} events in {walk.tip.number} batches, an unbroken chain from {begun} on{gone}"
        return Finding("history", True, says)
    names = Names()
    for damage in dict.fromkeys([walk.broken.says, *await each_damage(journal)]):
        names.add(damage)
    says = f"{names}; what could be folded ends at batch {walk.tip.number}, event {walk.tip.last}"
    return Finding("history", False, says, walk.broken.hint or _RESTORE)


async def _archive(journal: LongJournal) -> list[Finding]:
    """Chapters below the floor are history and were folded; those above it must say what the store says."""
    names = await journal.book.names()
    if not names:
        return []
    try:
        if gaps := await journal.gaps():
            return [Finding("archive", False, "; ".join(gaps), _RESTORE)]
        await journal.check_overlap()
    except Corrupt as fault:
        return [Finding("archive", False, fault.says, fault.hint)]
    return [Finding("archive", True, f"{len(names)} chapters, batches {names[0].first} to {names[-1].last}")]


def _payloads(walk: Walk) -> Finding:
    lost = walk.payloads_lost
    for event in walk.hot_missing:
        if not is_dropped(walk.state, Pass.HOT, EventNo(event)):
            lost.add(f"the hot bytes of event {event} are missing")
    if lost.count:
        return Finding("payloads", False, f"{lost.count} of {walk.payloads} large payloads: {lost}", _RESTORE)
    if gone := len(walk.hot_missing):
        says = f"{walk.payloads - gone} large payloads, all there; {gone} outputs were let go by retention"
        return Finding("payloads", True, says)
    return Finding("payloads", True, f"{walk.payloads} large payloads, all there")


def _ledger(walk: Walk) -> Finding:
    state = walk.state
    if broken := [*broken_laws(state.ledger), *of_queue(state.queue, state.ledger), *of_leases(state)]:
        return Finding("ledger", False, f"does not hold: {'; '.join(broken)}", "stop the node and report this fault")
    return Finding("ledger", True, f"balanced at event {state.last_event}")


# ------------------------------------------------------------------------------------------------ what can be remade


def _snapshots(walk: Walk) -> Finding:
    for number in walk.snapshots:
        why = "history stops before it" if number > walk.tip.number else "history before it was deleted"
        walk.snapshots_bad.add(f"batch {number} ({why})")
    bad = walk.snapshots_bad
    if bad.count:
        return Finding(
            "snapshots", False, f"{bad.count} not usable: {bad}", "delete them; holdfast db snapshot makes one"
        )
    return Finding("snapshots", True, f"{walk.snapshots_good} equal to the fold")


async def _tables(walk: Walk, journal: LongJournal, tables: Tables) -> list[Finding]:
    assert walk.expected is not None
    at: Tip | None = None
    try:
        async with aclosing(tables.dump()) as chunks:  # type: ignore[type-var]
            async for moment, table, rows in chunks:
                if at is None:
                    at = moment
                    if why := await _why_not_compare(walk, journal, at):
                        return [Finding("tables", False, why, _REBUILD)]
                walk.expected.compare(table, rows)
    except (Corrupt, Unavailable) as fault:
        return [Finding("tables", False, fault.says, fault.hint)]
    assert at is not None
    return _compared(walk, at)


async def _why_not_compare(walk: Walk, journal: LongJournal, at: Tip) -> str | None:
    """The fold must come to the very batch that the tables claim."""
    if at.number > (await journal.tip()).number:
        return f"they claim batch {at.number}, which the journal does not have"
    if at.number < walk.start.number:
        return f"they stand at batch {at.number}, and history begins at batch {walk.start.number}"
    if at.number < walk.tip.number:
        raise Unavailable("ENG-004", "the tables were emptied while they were looked at", "check again")
    await walk.on_to(at.number)
    if walk.broken is not None:
        return f"not compared: history cannot be folded up to their batch {at.number}"
    return None if walk.tip == at else f"they are of another journal: its batch {at.number} differs"


def _compared(walk: Walk, at: Tip) -> list[Finding]:
    expected = walk.expected
    assert expected is not None
    wrong = {"missing": expected.missing(), "different": expected.different, "not in the journal": expected.extra}
    if walk.start.number:
        del wrong["not in the journal"]  # deleted batches may have made them
    found = [f"{names.count} {what}: {names}" for what, names in wrong.items() if names.count]
    says = "; ".join(found) or f"{expected.rows} rows and ids as the fold gives them at event {at.last}"
    twice = expected.twice
    unique = f"{twice.count} claimed more than once: {twice}" if twice.count else "each claimed once"
    return [
        Finding("tables", not found, says, _REBUILD if found else ""),
        Finding("ids", not twice.count, unique, "stop the node and report this fault" if twice.count else ""),
    ]


async def _checkpoint(tables: Tables) -> BatchNo:
    try:
        return (await tables.checkpoint()).number
    except (Corrupt, Unavailable):
        return BatchNo(0)


def _file(name: str, faults: list[str], hint: str) -> Finding:
    if not faults:
        return Finding(name, True, "whole, as far as the store can tell")
    more = f" and {len(faults) - NAMED_MAX} more" if len(faults) > NAMED_MAX else ""
    return Finding(name, False, "; ".join(faults[:NAMED_MAX]) + more, hint)


_RESTORE: Final = "restore a backup: holdfast db import"
_REBUILD: Final = "nothing is lost: stop the node and run holdfast db rebuild"
