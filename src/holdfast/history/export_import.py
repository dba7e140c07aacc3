"""Export and import of a journal: archive segments with a manifest (ENG-003, ENG-004).

An export is also the backup. It runs beside a node, and the next export into the same folder adds only new batches.
It is read back and folded before its manifest is written; an import folds it again before it writes anything.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo, Digest
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.payloads import missing_payloads, referenced_payloads, split_missing_hot
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import (
    ArchiveEntry,
    ProgressCallback,
    SegmentFolder,
    copy_entries,
    journal_entries,
)
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Files

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an export, and the digest of the state that it folds to."""

    format: int = FORMAT
    batches: int
    events: int
    term: int
    time_ms: int
    hash: str
    digest: str

    def matches(self, head: JournalHead, state_digest: Digest) -> bool:
        return self == make_manifest(head, state_digest)


def make_manifest(head: JournalHead, state_digest: Digest) -> ExportManifest:
    return ExportManifest(
        batches=head.number,
        events=head.last,
        term=head.term,
        time_ms=head.time_ms,
        hash=head.hash.hex(),
        digest=state_digest.hex(),
    )


async def read_manifest(files: Files) -> ExportManifest | Refused:
    raw = await files.read(MANIFEST)
    if raw is None:
        return Refused(
            "ENG-004", f"there is no {MANIFEST}", "this is not an export, or it did not finish: export again"
        )
    try:
        manifest = msgspec.json.decode(raw, type=ExportManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Corrupt("ENG-004", f"{MANIFEST} is damaged: {fault}", _HINT) from fault
    if manifest.format != FORMAT:
        raise Corrupt("ENG-004", f"{MANIFEST} has format {manifest.format}, this version reads {FORMAT}", _HINT)
    return manifest


# ------------------------------------------------------------------------------------------------ export


async def export_journal(
    journal: FullJournal, files: Files, policy: Policy, progress: ProgressCallback | None = None
) -> ExportManifest | Refused:
    """Bring the export up to the journal's current end."""
    folder, end = SegmentFolder(files), await journal.tip()
    if refusal := await _why_not_continue(journal, await folder.tip(), end):
        return refusal
    await copy_entries(journal.entries, folder, end.number, progress)
    head = await snapshot_files.make(files, folder, policy, progress)  # folds the new segments alone
    state, _ = await snapshot_files.load(files, snapshot_files.file_name(head), policy)
    manifest = make_manifest(head, digest(state))
    await files.replace(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


async def _why_not_continue(journal: FullJournal, exported: JournalHead, end: JournalHead) -> Refused | None:
    trimmed = await journal.trimmed_until()
    if end.number == 0:
        return Refused(
            "ENG-004", "the journal is empty: there is nothing to export", "start the node once: holdfast up"
        )
    if exported.number < trimmed:
        message = f"batches {exported.number + 1} to {trimmed} were deleted from the archive, an export needs them"
        return Refused("ENG-004", message, "continue an export that has them, or bring the segments back")
    if exported.number and not await snapshot_files.is_in_journal(journal, exported):
        return Refused("ENG-004", "this folder holds the export of another journal", "choose another folder")
    return None


# ------------------------------------------------------------------------------------------------ import


async def import_journal(
    files: Files, journal: FullJournal, policy: Policy, progress: ProgressCallback | None = None
) -> ExportManifest | Refused:
    """Fill an empty journal; an interrupted import of the same export is continued."""
    manifest = await read_manifest(files)
    if isinstance(manifest, Refused):
        return manifest
    if await journal.archive.names():
        return Refused("ENG-004", "there is already an archive", "import into an empty folder")
    folder, have = SegmentFolder(files), await journal.acquire()
    if refusal := await _why_not_import(folder, have, manifest):
        return refusal
    end = BatchNo(manifest.batches)
    await _verify_export(folder, manifest, policy, progress)
    async for entry in folder.entries(have.number, end):
        await journal.append(entry.batch, entry.attachments)
        if progress is not None:
            progress(JournalHead(entry.batch.number, last=entry.batch.last))
    await _compare_stored(folder, journal, end)
    return manifest


async def _why_not_import(folder: SegmentFolder, have: JournalHead, manifest: ExportManifest) -> Refused | None:
    if have.number == 0:
        return None
    if have.number <= manifest.batches and await snapshot_files.is_in_journal(folder, have):
        return None  # left by an interrupted import
    message = f"the journal already holds {have.number} batches that are not the beginning of this export"
    return Refused("ENG-004", message, "an import fills an empty store; use another folder or schema")


async def _verify_export(
    folder: SegmentFolder, manifest: ExportManifest, policy: Policy, progress: ProgressCallback | None
) -> None:
    """Corrupt where the export is damaged or does not fold to its manifest; nothing is written before this."""
    state, head = State(policy), JournalHead()
    state.record_nothing()
    async for entry in folder.entries(BatchNo(0), BatchNo(manifest.batches)):
        head = journal_codec.fold(state, head, (entry.batch,))
        _check_payloads(entry)
        if progress is not None:
            progress(head)
    if not manifest.matches(head, digest(state)):
        raise Corrupt("ENG-003", "the segments do not fold to the state in the manifest", _HINT)


def _check_payloads(entry: ArchiveEntry) -> None:
    """Outputs may be missing: retention may drop them during an export, and the disk has them (TIER-001)."""
    needed, _ = split_missing_hot(
        referenced_payloads(entry.batch.first, journal_codec.unpack(entry.batch)), entry.attachments
    )
    for lost in missing_payloads(needed, entry.attachments):
        raise Corrupt("ENG-007", f"{lost} in the export", _HINT)


async def _compare_stored(folder: SegmentFolder, journal: FullJournal, end: BatchNo) -> None:
    """Corrupt where the store reads back anything else than the bytes of the export."""
    stored = journal_entries(journal.store, BatchNo(0), end)
    async for entry in folder.entries(BatchNo(0), end):
        if await anext(stored, None) != entry:
            raise Corrupt("ENG-003", f"batch {entry.batch.number} reads back differently", "the disk may be failing")


_HINT: Final = "use another copy of this export"
