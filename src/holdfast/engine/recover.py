"""State from what is stored: the newest snapshot, the journal after it, and the tables brought up to the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.core import law
from holdfast.core.event import Tip
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt
from holdfast.core.state import State
from holdfast.core.tally import Tally
from holdfast.engine import snapshot
from holdfast.engine.history import History
from holdfast.engine.project import Images, by_table, drop_images, take_images
from holdfast.engine.snapshot import is_in
from holdfast.ports import Files, Journal, Tables


class Recovered(msgspec.Struct, frozen=True):
    """State and journal end agree; `images` is what the tables do not have yet."""

    state: State
    tip: Tip
    checkpoint: Tip
    images: Images
    history: History


async def recover(
    journal: Journal, tables: Tables, files: Files, policy: Policy, progress: Callable[[Tip], None] | None = None
) -> Recovered:
    """ENG-003: the fold of a snapshot and the journal after it. ENG-004: tables that the journal contradicts go."""
    end = await journal.tip()
    checkpoint = await _checkpoint_of(journal, end, tables)
    state, tip = await start_of(journal, files, policy, checkpoint)
    async for batch in journal.read(tip.number):
        state.claims.is_kept = batch.number > checkpoint.number
        tip = law.fold(state, tip, (batch,))
        if tip.number <= checkpoint.number:
            drop_images(state)
        elif sum(map(len, state.touched.values())) + len(state.claims.fresh) >= policy.engine.projection_rows_max:
            checkpoint = await _project(tables, state, tip)
        if progress is not None:
            progress(tip)
    if tip.number < end.number:
        raise Corrupt(
            "ENG-001", f"the journal ends at batch {end.number} but cannot be read beyond {tip.number}", _LOST
        )
    if tip.number > checkpoint.number:
        checkpoint = await _project(tables, state, tip)
    state.claims.is_kept = True
    state.tally = Tally()  # what was only folded again did not happen now
    history = History(tables)
    await history.load()
    return Recovered(state, tip, checkpoint, Images({}, []), history)


async def start_of(journal: Journal, files: Files, policy: Policy, checkpoint: Tip) -> tuple[State, Tip]:
    """Where folding can begin without missing a row that the tables lack; Corrupt where that part is gone."""
    state, tip = await snapshot.newest(files, journal, policy, checkpoint.number)
    floor = await journal.floor()
    if floor > tip.number:
        raise Corrupt(
            "ENG-003",
            f"batches {tip.number + 1} to {floor} are needed and neither journal nor archive has them",
            _GONE,
        )
    return state, tip


async def _checkpoint_of(journal: Journal, end: Tip, tables: Tables) -> Tip:
    """Where the tables stand, after emptying them if they are ahead of the journal or of another one."""
    checkpoint = await tables.open()
    if end.number == 0 < checkpoint.number:
        raise Corrupt("ENG-003", f"the journal is empty, but the tables have seen batch {checkpoint.number}", _LOST)
    if checkpoint.number == 0 or await is_in(journal, checkpoint):
        return checkpoint
    if floor := await journal.floor():
        raise Corrupt(
            "ENG-004", f"the tables are not this journal's, and batches 1 to {floor} to remake them are gone", _GONE
        )
    await tables.drop()
    return Tip()


async def _project(tables: Tables, state: State, tip: Tip) -> Tip:
    images = take_images(state)
    await tables.write(by_table(images.rows), images.claims, tip)
    state.claims.forget()
    return tip


_LOST: Final = "the journal was lost or damaged: restore a backup; to begin anew, use an empty folder"
_GONE: Final = "restore the archive's chapters, or the tables and snapshots that go with this journal"
