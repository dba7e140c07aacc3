"""State from what is stored: the newest snapshot, the journal after it, and the tables brought up to the journal."""

from __future__ import annotations

import msgspec

from holdfast.core import law
from holdfast.core.event import Tip, tip_of
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine import snapshot
from holdfast.engine.project import by_table, take_images
from holdfast.ports import Files, Journal, Tables


class Recovered(msgspec.Struct, frozen=True):
    """State and journal end agree; the tables are complete up to it."""

    state: State
    tip: Tip


async def recover(journal: Journal, tables: Tables, files: Files, policy: Policy) -> Recovered:
    """ENG-003: the fold of a snapshot and the journal after it. ENG-004: tables that the journal contradicts go."""
    checkpoint = await _checkpoint_of(journal, tables)
    state, tip = await snapshot.newest(files, journal, policy, checkpoint.number)
    async for batch in journal.read(tip.number):
        tip = law.fold(state, tip, (batch,))
        if tip.number <= checkpoint.number:
            _forget(state)
        elif len(state.touched) + len(state.claims.fresh) >= policy.engine.projection_rows_max:
            checkpoint = await _project(tables, state, tip)
    if tip.number > checkpoint.number:
        await _project(tables, state, tip)
    return Recovered(state, tip)


async def _checkpoint_of(journal: Journal, tables: Tables) -> Tip:
    """Where the tables stand, after emptying them if they are ahead of the journal or of another one."""
    checkpoint = await tables.open()
    if checkpoint.number == 0:
        return checkpoint
    async for batch in journal.read(type(checkpoint.number)(checkpoint.number - 1), checkpoint.number):
        if tip_of(batch) == checkpoint:
            return checkpoint
    await tables.drop()
    return Tip()


async def _project(tables: Tables, state: State, tip: Tip) -> Tip:
    images = take_images(state)
    await tables.write(by_table(images.rows), images.claims, tip)
    state.claims.recent.clear()
    return tip


def _forget(state: State) -> None:
    """What the tables hold already need not be written again."""
    state.touched.clear()
    state.claims.fresh.clear()
    state.claims.recent.clear()
