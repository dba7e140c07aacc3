"""Snapshots (ENG-003): the projector writes them at its checkpoint, an operator folds one; never the running loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead, head_of
from holdfast.core.base.values import BatchNo
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.snapshots.state_snapshot import restore, snapshot
from holdfast.ports import Batches, Files, Journal

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
    """Fold what came after the newest good snapshot and store it. Snapshots of later batches are not touched."""
    end = (await journal.tip()).number if until is None else until
    state, base = await load_newest(files, journal, policy, end)
    if base.number == end:
        return base
    tip = base
    state.record_nothing()
    async for batch in journal.read(tip.number, end):
        tip = journal_codec.fold(state, tip, (batch,))
        if progress is not None:
            progress(tip)
    await store(files, state, tip, base)
    return tip


async def store(files: Files, state: State, tip: JournalHead, base: JournalHead) -> None:
    """Store a snapshot, read it back, and only then delete older ones.

    The good one it was folded from stays: should the newest be damaged, that one and the journal give the same state.
    """
    raw = snapshot(state, tip)
    await files.replace(file_name(tip), raw)
    if await files.read(file_name(tip)) != raw:
        raise Corrupt("ENG-003", f"snapshot {file_name(tip)} reads back differently", "the disk may be failing")
    for name in await list_names(files):
        if batch_number(name) < tip.number and name != file_name(base):
            await files.delete(name)


async def load_fold_start(
    journal: Journal, files: Files, policy: Policy, checkpoint: JournalHead
) -> tuple[State, JournalHead]:
    """Where folding must begin so that the tables miss no row; Corrupt where those batches are gone."""
    state, tip = await load_newest(files, journal, policy, checkpoint.number)
    trimmed_until = await journal.trimmed_until()
    if trimmed_until > tip.number:
        raise Corrupt(
            "ENG-003",
            f"batches {tip.number + 1} to {trimmed_until} are needed and neither journal nor archive has them",
            "restore the archive's segments, or the tables and snapshots that go with this journal",
        )
    return state, tip


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
