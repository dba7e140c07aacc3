"""State from what is stored: the newest snapshot and the journal after it; the tables follow on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.metrics.event_metrics import EventMetrics
from holdfast.engine.projection.payload_cache import PayloadCache, keep_payloads
from holdfast.engine.projection.projector import Projector
from holdfast.engine.snapshots.snapshot_files import is_in_journal, load_fold_start
from holdfast.ports import Files, Journal, Tables, TableWriter

Progress = Callable[[JournalHead], None]


class Recovered(msgspec.Struct, frozen=True):
    """The state at the end of the journal; claims and payloads after `checkpoint`, which the tables have reached."""

    state: State
    tip: JournalHead
    checkpoint: JournalHead
    claim_index: ClaimIndex
    payloads: PayloadCache


class Standby(Protocol):
    """A node that has followed the journal so far (engine.follower)."""

    async def catch_up(self) -> Recovered | None:
        """Everything up to the end of the journal, without loading; None where that is not possible."""
        ...


async def recover(
    journal: Journal,
    tables: TableWriter,
    files: Files,
    policy: Policy,
    progress: Progress | None = None,
) -> Recovered:
    """ENG-003: fold a snapshot and the journal after it. ENG-004: drop tables that contradict the journal."""
    end = await journal.tip()
    checkpoint = await _usable_checkpoint(journal, end, tables)
    if checkpoint is None or end.last - checkpoint.last > policy.engine.tables_lag_events_max:
        checkpoint = await rebuild_tables(journal, tables, files, policy, is_dropped=checkpoint is None)
    state, tip = await load_fold_start(journal, files, policy, checkpoint)
    payloads = keep_payloads(state)
    async for batch in journal.read(tip.number):
        state.claims.is_recording = batch.number > checkpoint.number
        tip = journal_codec.fold(state, tip, (batch,))
        if progress is not None:
            progress(tip)
    if tip.number < end.number:
        raise Corrupt(
            "ENG-001", f"the journal ends at batch {end.number} but cannot be read beyond {tip.number}", _LOST
        )
    payloads.drop_until(checkpoint.last)
    state.claims.is_recording = True
    state.observer = EventMetrics()  # a replayed event did not happen in this process
    state.result_counts.clear()
    claim_index = ClaimIndex(tables)
    if checkpoint.number:
        await claim_index.load_filter()
    return Recovered(state, tip, checkpoint, claim_index, payloads)


def check_nothing_lost(head: JournalHead, confirmed: JournalHead) -> None:
    """Raise Corrupt where the journal lacks a batch that this owner confirmed before: it is never built upon."""
    if head.number < confirmed.number:
        raise Corrupt(
            "ENG-002",
            f"the journal ends at batch {head.number}, but batch {confirmed.number} was confirmed",
            "the disk or database lost a synced write: restore from a backup before starting again",
        )


async def rebuild_tables(
    journal: Journal,
    tables: TableWriter,
    files: Files,
    policy: Policy,
    progress: Progress | None = None,
    *,
    is_dropped: bool,
) -> JournalHead:
    """Write the tables up to the end of the journal, after emptying them where asked to; then give their lock back.

    Only an owner in recovery and `holdfast db rebuild` do this. It keeps a start from holding in memory the claims of
    all of history.
    """
    try:
        if is_dropped:
            await tables.drop()  # also where they are damaged and cannot be opened
        projector = Projector(journal, tables, files, policy)
        await projector.load()
        await projector.catch_up((await journal.tip()).number, progress)
        return projector.checkpoint
    finally:
        await tables.release()


async def read_checkpoint(tables: Tables) -> JournalHead:
    """How far the tables are; nowhere where they do not exist yet or cannot be read now."""
    try:
        return await tables.checkpoint()
    except Unavailable:
        return JournalHead()


async def _checkpoint_of_existing(tables: TableWriter) -> JournalHead:
    """The checkpoint. Tables that do not exist are made here: readers need them before the projector is up."""
    try:
        return await tables.checkpoint()
    except Unavailable:
        checkpoint = await tables.open()
        await tables.release()
        return checkpoint


async def _usable_checkpoint(journal: Journal, end: JournalHead, tables: TableWriter) -> JournalHead | None:
    """The checkpoint of the tables; None where they are ahead of the journal or belong to another one."""
    checkpoint = await _checkpoint_of_existing(tables)
    if end.number == 0 < checkpoint.number:
        raise Corrupt("ENG-003", f"the journal is empty, but the tables have seen batch {checkpoint.number}", _LOST)
    if checkpoint.number == 0 or await is_in_journal(journal, checkpoint):
        return checkpoint
    if trimmed_until := await journal.trimmed_until():
        raise Corrupt(
            "ENG-004",
            f"the tables belong to another journal, and batches 1 to {trimmed_until} to rebuild them are gone",
            _GONE,
        )
    return None


_LOST: Final = "the journal was lost or damaged: restore a backup; to start afresh, use an empty folder"
_GONE: Final = "restore the archive's segments, or the tables and snapshots that go with this journal"
