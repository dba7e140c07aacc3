"""A journal on its way: exported as chapters with a manifest, imported where nothing is yet (ENG-003, ENG-004).

An export is also the backup: it is made beside a running node, and made again it adds only what is new. It is read
back and folded before the manifest says what it holds; an import folds it once more before it writes anything.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import law
from holdfast.core.event import Tip
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.state import State, digest
from holdfast.core.values import BatchNo, Digest
from holdfast.engine import snapshot
from holdfast.engine.chapters import Book, Entry, Progress, copy_entries, entries_of
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.payloads import not_there, spoken_of, without_hot
from holdfast.engine.project import drop_images
from holdfast.ports import Files

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export holds: where it ends, and the state that it folds to."""

    format: int = FORMAT
    batches: int
    events: int
    epoch: int
    time_ms: int
    hash: str
    digest: str

    def is_of(self, tip: Tip, state_digest: Digest) -> bool:
        return self == manifest_of(tip, state_digest)


def manifest_of(tip: Tip, state_digest: Digest) -> Manifest:
    return Manifest(
        batches=tip.number,
        events=tip.last,
        epoch=tip.epoch,
        time_ms=tip.time_ms,
        hash=tip.hash.hex(),
        digest=state_digest.hex(),
    )


async def read_manifest(files: Files) -> Manifest | Refused:
    raw = await files.read(MANIFEST)
    if raw is None:
        return Refused("ENG-004", f"no {MANIFEST} there", "not an export, or one that was never finished: run it again")
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Corrupt("ENG-004", f"{MANIFEST} is damaged: {fault}", _HINT) from fault
    if manifest.format != FORMAT:
        raise Corrupt("ENG-004", f"{MANIFEST} has format {manifest.format}, this program knows {FORMAT}", _HINT)
    return manifest


# ------------------------------------------------------------------------------------------------ out


async def export(
    journal: LongJournal, files: Files, policy: Policy, progress: Progress | None = None
) -> Manifest | Refused:
    """Bring the export up to the journal's end as it is now."""
    book, end = Book(files), await journal.tip()
    done = await book.tip()
    if no := await _why_not_go_on(journal, done, end):
        return no
    await copy_entries(journal.entries, book, end.number, progress)
    tip = await snapshot.make(files, book, policy, progress)  # folds what was written, from where the last export ended
    state, _ = await snapshot.load(files, snapshot.name_of(tip), policy)
    manifest = manifest_of(tip, digest(state))
    await files.replace(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


async def _why_not_go_on(journal: LongJournal, done: Tip, end: Tip) -> Refused | None:
    floor = await journal.floor()
    if end.number == 0:
        return Refused("ENG-004", "the journal is empty: there is nothing to export")
    if done.number < floor:
        says = f"batches {done.number + 1} to {floor} were deleted from the archive, an export needs them"
        return Refused("ENG-004", says, "go on with an export that has them, or bring the chapters back")
    if done.number and not await snapshot.is_in(journal, done):
        return Refused("ENG-004", "this folder holds the export of another journal", "choose another folder")
    return None


# ------------------------------------------------------------------------------------------------ in


async def import_(
    files: Files, journal: LongJournal, policy: Policy, progress: Progress | None = None
) -> Manifest | Refused:
    """Fill an empty journal; a prefix of the export, left by an import that was cut, is gone on from."""
    manifest = await read_manifest(files)
    if isinstance(manifest, Refused):
        return manifest
    if await journal.book.names():
        return Refused("ENG-004", "there is an archive already", "import into an empty folder")
    book, have = Book(files), await journal.own()
    if no := await _why_not_empty(book, have, manifest):
        return no
    end = BatchNo(manifest.batches)
    await _verify(book, manifest, policy, progress)
    async for entry in book.entries(have.number, end):
        await journal.append(entry.batch, entry.attachments)
        if progress is not None:
            progress(Tip(entry.batch.number, last=entry.batch.last))
    await _compare(book, journal, end)
    return manifest


async def _why_not_empty(book: Book, have: Tip, manifest: Manifest) -> Refused | None:
    if have.number == 0:
        return None
    if have.number <= manifest.batches and await snapshot.is_in(book, have):
        return None  # what an import that was cut has left
    says = f"the journal there holds {have.number} batches that are not the beginning of this export"
    return Refused("ENG-004", says, "an import fills an empty store; use another folder or schema")


async def _verify(book: Book, manifest: Manifest, policy: Policy, progress: Progress | None) -> None:
    """The export is whole and folds to what its manifest says; nothing is written before that."""
    state, tip = State(policy), Tip()
    async for entry in book.entries(BatchNo(0), BatchNo(manifest.batches)):
        tip = law.fold(state, tip, (entry.batch,))
        drop_images(state)
        _check_payloads(entry)
        if progress is not None:
            progress(tip)
    if not manifest.is_of(tip, digest(state)):
        raise Corrupt("ENG-003", "the chapters do not fold to what the manifest says", _HINT)


def _check_payloads(entry: Entry) -> None:
    """Outputs may be missing: retention lets them go while an export is made, and the disk has them (TIER-001)."""
    needed, _ = without_hot(spoken_of(entry.batch.first, law.unpack(entry.batch)), entry.attachments)
    for lost in not_there(needed, entry.attachments):
        raise Corrupt("ENG-007", f"{lost} in the export", _HINT)


async def _compare(book: Book, journal: LongJournal, end: BatchNo) -> None:
    """What the store gives back is what the export holds, batch by batch and byte by byte."""
    stored = entries_of(journal.store, BatchNo(0), end)
    async for entry in book.entries(BatchNo(0), end):
        there = await anext(stored, None)
        if there is None or there != entry:
            raise Corrupt("ENG-003", f"batch {entry.batch.number} reads back differently", "the disk may be failing")


_HINT: Final = "use another copy of this export"
