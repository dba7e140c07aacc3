"""Snapshots (ENG-003): folded from the one before and the journal by another process, never by the running loop."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import law
from holdfast.core.event import Tip
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt
from holdfast.core.state import State, restore, snapshot
from holdfast.core.values import BatchNo
from holdfast.engine.project import drop_images
from holdfast.ports import Files, Journal

KEEP = 2
"""The newest and the one before it: should the newest be damaged, the other and the journal give the same state."""


def name_of(tip: Tip) -> str:
    return f"{tip.number:016d}.snapshot"


async def newest(files: Files, journal: Journal, policy: Policy, until: int) -> tuple[State, Tip]:
    """The state of the newest good snapshot not above batch `until`, else the empty state before the first batch."""
    for name in sorted(await _snapshots(files), reverse=True):
        if int(name.split(".")[0]) > until:
            continue
        raw = await files.read(name)
        if raw is None:
            continue
        try:
            state, tip = restore(raw, policy)
        except Corrupt:
            continue  # a damaged snapshot is worth nothing, and nothing is lost with it: the journal has it all
        if await _is_in(journal, tip):
            return state, tip
    return State(policy), Tip()


async def make(files: Files, journal: Journal, policy: Policy, progress: Callable[[Tip], None] | None = None) -> Tip:
    """Fold what came after the newest snapshot, store it, read it back, and only then let go of the oldest."""
    end = await journal.tip()
    state, tip = await newest(files, journal, policy, end.number)
    if tip.number == end.number:
        return tip
    async for batch in journal.read(tip.number, end.number):
        tip = law.fold(state, tip, (batch,))
        drop_images(state)
        if progress is not None:
            progress(tip)
    raw = snapshot(state, tip)
    await files.replace(name_of(tip), raw)
    if await files.read(name_of(tip)) != raw:
        raise Corrupt("ENG-003", f"snapshot {name_of(tip)} reads back differently", "the disk may be failing")
    for name in sorted(await _snapshots(files))[:-KEEP]:
        await files.delete(name)
    return tip


async def _snapshots(files: Files) -> list[str]:
    return [name for name in await files.names() if name.endswith(".snapshot")]


async def _is_in(journal: Journal, tip: Tip) -> bool:
    """Whether the journal's chain passes through this very batch: a snapshot of another journal does not count.

    The batch itself may have been trimmed away; then the one after it names it by hash.
    """
    async for batch in journal.read(BatchNo(tip.number - 1), BatchNo(tip.number + 1)):
        return (batch.hash if batch.number == tip.number else batch.parent) == tip.hash
    return False
