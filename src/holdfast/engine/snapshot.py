"""Snapshots (ENG-003): folded from the one before and the journal by another process, never by the running loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.core import law
from holdfast.core.event import Tip, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt
from holdfast.core.state import State, restore, snapshot
from holdfast.core.values import BatchNo, EventNo
from holdfast.engine.project import drop_images
from holdfast.ports import Batches, Files

_NAME: Final = re.compile(r"\d{16}\.snapshot")


def name_of(tip: Tip) -> str:
    return f"{tip.number:016d}.snapshot"


async def newest(files: Files, journal: Batches, policy: Policy, until: int) -> tuple[State, Tip]:
    """The state of the newest good snapshot not above batch `until`, else the empty state before the first batch."""
    for name in sorted(await names(files), reverse=True):
        if number_of(name) > until:
            continue
        try:
            state, tip = await load(files, name, policy)
        except Corrupt:
            continue  # a damaged snapshot is worth nothing, and nothing is lost with it: the journal has it all
        if await is_in(journal, tip):
            return state, tip
    return State(policy), Tip()


async def good(files: Files, journal: Batches, policy: Policy) -> list[Tip]:
    """Where all snapshots stand that a start could use, oldest first."""
    found = []
    for name in sorted(await names(files)):
        with suppress(Corrupt):
            _, tip = await load(files, name, policy)
            found += [tip] if await is_in(journal, tip) else []
    return found


async def last_event(files: Files, journal: Batches) -> EventNo:
    """Up to which event the newest snapshot of this journal goes, as its name says; none is opened for it."""
    end = (await journal.tip()).number
    number = max((found for name in await names(files) if (found := number_of(name)) <= end), default=0)
    async for batch in journal.read(BatchNo(number - 1), BatchNo(number)):
        return batch.last
    return EventNo(0)


async def load(files: Files, name: str, policy: Policy) -> tuple[State, Tip]:
    """One snapshot; Corrupt where it is damaged, gone, or not what its name says."""
    state, tip = restore(await files.read(name) or b"", policy)
    if name_of(tip) != name:
        raise Corrupt("ENG-003", f"snapshot {name} is of batch {tip.number}: files were exchanged")
    return state, tip


async def make(
    files: Files,
    journal: Batches,
    policy: Policy,
    progress: Callable[[Tip], None] | None = None,
    until: BatchNo | None = None,
) -> Tip:
    """Fold what came after the newest good snapshot, store it, read it back, and only then let go of older ones.

    The one it was folded from stays: should the newest be damaged, that one and the journal give the same state.
    What is damaged or of another journal is no second one, and what lies above is not ours to judge.
    """
    end = (await journal.tip()).number if until is None else until
    state, base = await newest(files, journal, policy, end)
    if base.number == end:
        return base
    tip = base
    async for batch in journal.read(tip.number, end):
        tip = law.fold(state, tip, (batch,))
        drop_images(state)
        if progress is not None:
            progress(tip)
    raw = snapshot(state, tip)
    await files.replace(name_of(tip), raw)
    if await files.read(name_of(tip)) != raw:
        raise Corrupt("ENG-003", f"snapshot {name_of(tip)} reads back differently", "the disk may be failing")
    for name in await names(files):
        if number_of(name) < tip.number and name != name_of(base):
            await files.delete(name)
    return tip


async def names(files: Files) -> list[str]:
    return [name for name in await files.names() if _NAME.fullmatch(name)]


def number_of(name: str) -> int:
    return int(name.partition(".")[0])


async def is_in(journal: Batches, tip: Tip) -> bool:
    """Whether the journal's chain passes through this very batch: what is of another journal does not count.

    The batch itself may have been trimmed away; then the one after it names it by hash.
    """
    async for batch in journal.read(BatchNo(tip.number - 1), BatchNo(tip.number + 1)):
        if batch.number == tip.number:
            return tip_of(batch) == tip
        return (batch.parent, batch.first - 1) == (tip.hash, tip.last)
    return False
