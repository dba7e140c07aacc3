"""State from what is stored: the newest snapshot and the journal after it; the tables catch up with the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead
from holdfast.core.index.metrics import QueueMetrics
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine import snapshot
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.projector import Images, by_table, drop_images, take_images
from holdfast.engine.snapshot import is_in_journal
from holdfast.ports import Files, Journal, Tables


class Recovered(msgspec.Struct, frozen=True):
    """The state at the end of the journal; `images` are the rows that the tables do not have yet."""

    state: State
    tip: JournalHead
    checkpoint: JournalHead
    images: Images
    claim_index: ClaimIndex


class Standby(Protocol):
    """A node that has followed the journal so far (engine.follower)."""

    async def catch_up(self) -> Recovered | None:
        """Everything up to the end of the journal, without loading; None where that is not possible."""
        ...


async def recover(
    journal: Journal,
    tables: Tables,
    files: Files,
    policy: Policy,
    progress: Callable[[JournalHead], None] | None = None,
) -> Recovered:
    """ENG-003: fold a snapshot and the journal after it. ENG-004: drop tables that contradict the journal."""
    end = await journal.tip()
    checkpoint = await _checkpoint_of(journal, end, tables)
    state, tip = await load_fold_start(journal, files, policy, checkpoint)
    async for batch in journal.read(tip.number):
        state.claims.is_recording = batch.number > checkpoint.number
        tip = journal_codec.fold(state, tip, (batch,))
        if tip.number <= checkpoint.number:
            drop_images(state)
        elif sum(map(len, state.touched.values())) + len(state.claims.new_keys) >= policy.engine.projection_rows_max:
            checkpoint = await _project(tables, state, tip)
        if progress is not None:
            progress(tip)
    if tip.number < end.number:
        raise Corrupt(
            "ENG-001", f"the journal ends at batch {end.number} but cannot be read beyond {tip.number}", _LOST
        )
    if tip.number > checkpoint.number:
        checkpoint = await _project(tables, state, tip)
    state.claims.is_recording = True
    state.metrics = QueueMetrics()  # a replayed event did not happen in this process
    claim_index = ClaimIndex(tables)
    await claim_index.load_filter()
    return Recovered(state, tip, checkpoint, Images({}, []), claim_index)


def check_nothing_lost(head: JournalHead, confirmed: JournalHead) -> None:
    """Raise Corrupt where the journal lacks a batch that this owner confirmed before: it is never built upon."""
    if head.number < confirmed.number:
        raise Corrupt(
            "ENG-002",
            f"the journal ends at batch {head.number}, but batch {confirmed.number} was confirmed",
            "the disk or database lost a synced write: restore from a backup before starting again",
        )


async def load_fold_start(
    journal: Journal, files: Files, policy: Policy, checkpoint: JournalHead
) -> tuple[State, JournalHead]:
    """Where folding must begin so that the tables miss no row; Corrupt where those batches are gone."""
    state, tip = await snapshot.load_newest(files, journal, policy, checkpoint.number)
    trimmed_until = await journal.trimmed_until()
    if trimmed_until > tip.number:
        raise Corrupt(
            "ENG-003",
            f"batches {tip.number + 1} to {trimmed_until} are needed and neither journal nor archive has them",
            _GONE,
        )
    return state, tip


async def _checkpoint_of(journal: Journal, end: JournalHead, tables: Tables) -> JournalHead:
    """The checkpoint of the tables, after dropping them if they are ahead of the journal or belong to another one."""
    checkpoint = await tables.open()
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
    await tables.drop()
    return JournalHead()


async def _project(tables: Tables, state: State, tip: JournalHead) -> JournalHead:
    images = take_images(state)
    await tables.write(by_table(images.rows), images.claims, tip)
    state.claims.clear_recent()
    return tip


_LOST: Final = "the journal was lost or damaged: restore a backup; to start afresh, use an empty folder"
_GONE: Final = "restore the archive's segments, or the tables and snapshots that go with this journal"
