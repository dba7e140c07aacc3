"""Snapshots (ENG-003): another process folds them from the last one and the journal, never the running loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead, head_of
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.state_snapshot import restore, snapshot
from holdfast.engine.projector import drop_images
from holdfast.ports import Batches, Files

_NAME: Final = re.compile(r"\d{16}\.snapshot")


def file_name(tip: JournalHead) -> str:
    return f"{tip.number:016d}.snapshot"


async def load_newest(files: Files, journal: Batches, policy: Policy, until: int) -> tuple[State, JournalHead]:
    """The state of the newest good snapshot not above batch `until`, else the empty state before the first batch."""
    for name in sorted(await list_names(files), reverse=True):
        if batch_number(name) > until:
            continue
        try:
            state, tip = await load(files, name, policy)
        except Corrupt:
            continue  # a damaged snapshot is skipped, and nothing is lost: the journal has everything
        if await is_in_journal(journal, tip):
            return state, tip
    return State(policy), JournalHead()


async def list_usable(files: Files, journal: Batches, policy: Policy) -> list[JournalHead]:
    """The journal head of every snapshot that a start could use, oldest first."""
    heads = []
    for name in sorted(await list_names(files)):
        with suppress(Corrupt):
            _, tip = await load(files, name, policy)
            heads += [tip] if await is_in_journal(journal, tip) else []
    return heads


async def newest_event(files: Files, journal: Batches) -> EventNo:
    """The last event of the newest snapshot, by its file name; no snapshot is opened."""
    end = (await journal.tip()).number
    number = max((each for name in await list_names(files) if (each := batch_number(name)) <= end), default=0)
    async for batch in journal.read(BatchNo(number - 1), BatchNo(number)):
        return batch.last
    return EventNo(0)


async def load(files: Files, name: str, policy: Policy) -> tuple[State, JournalHead]:
    """One snapshot; Corrupt where it is damaged, gone, or not what its name says."""
    state, tip = restore(await files.read(name) or b"", policy)
    if file_name(tip) != name:
        raise Corrupt("ENG-003", f"snapshot {name} is of batch {tip.number}: files were exchanged")
    return state, tip


async def make(
    files: Files,
    journal: Batches,
    policy: Policy,
    progress: Callable[[JournalHead], None] | None = None,
    until: BatchNo | None = None,
) -> JournalHead:
    """Fold what came after the newest good snapshot, store it, read it back, and only then delete older ones.

    The one it was folded from stays: should the newest be damaged, that one and the journal give the same state.
    Snapshots of later batches are not touched.
    """
    end = (await journal.tip()).number if until is None else until
    state, base = await load_newest(files, journal, policy, end)
    if base.number == end:
        return base
    tip = base
    async for batch in journal.read(tip.number, end):
        tip = journal_codec.fold(state, tip, (batch,))
        drop_images(state)
        if progress is not None:
            progress(tip)
    raw = snapshot(state, tip)
    await files.replace(file_name(tip), raw)
    if await files.read(file_name(tip)) != raw:
        raise Corrupt("ENG-003", f"snapshot {file_name(tip)} reads back differently", "the disk may be failing")
    for name in await list_names(files):
        if batch_number(name) < tip.number and name != file_name(base):
            await files.delete(name)
    return tip


async def list_names(files: Files) -> list[str]:
    return [name for name in await files.names() if _NAME.fullmatch(name)]


def batch_number(name: str) -> int:
    return int(name.partition(".")[0])


async def is_in_journal(journal: Batches, tip: JournalHead) -> bool:
    """Whether this very batch is in the hash chain of the journal, not in that of another one.

    The batch itself may have been trimmed; then the next batch names it by its hash.
    """
    async for batch in journal.read(BatchNo(tip.number - 1), BatchNo(tip.number + 1)):
        if batch.number == tip.number:
            return head_of(batch) == tip
        return (batch.parent, batch.first - 1) == (tip.hash, tip.last)
    return False
