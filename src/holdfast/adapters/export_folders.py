"""The folder of scheduled exports: one folder each, named by its time; an unfinished one is continued, old ones go.

    {root}/2026-11-18T060000Z/      an export: segments, a snapshot, manifest.json
    {root}/unfinished/              the one that is being made

A new export begins with links to the segments of the newest one: they never change, so they take no space twice. It
gets its name when it is complete, and its manifest is the first file of it that is deleted: a folder with a time and a
manifest is whole, whenever a crash comes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.files import AtomicFolder
from holdfast.core.base.errors import Refused
from holdfast.system.durable_files import FOLDER_MODE, sync_folder

MANIFEST: Final = "manifest.json"
UNFINISHED: Final = "unfinished"
_LINKING: Final = "linking"
"""Becomes `unfinished` when every link is there."""
_TIME: Final = "%Y-%m-%dT%H%M%SZ"
_SECOND_MS: Final = 1_000
_RULE: Final = "ENG-004"


class FinishedExport(msgspec.Struct, frozen=True, order=True):
    """One export that is whole."""

    batches: int
    """How much history it has. It comes before the time in their order: clocks are set back, history is not."""
    at_ms: int
    """When it was begun."""
    name: str


class _ManifestSize(msgspec.Struct, frozen=True):
    batches: int


class ExportFolders:
    """Scheduled exports below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the root against a second schedule; Unavailable where there is one."""
        with AtomicFolder(self.root).exclusive():
            yield

    async def why_not(self) -> Refused | None:
        """A root that is itself an export is not for schedules."""
        if not (self.root / MANIFEST).exists():
            return None
        return Refused(_RULE, f"{self.root} is an export itself", "choose another folder for scheduled exports")

    async def finished(self) -> list[FinishedExport]:
        """Every whole export, the one with the least history first."""
        return await run_file_io(_RULE, self._finished)

    async def begin(self) -> Path:
        """The folder to export into: the unfinished one, or a new one with the segments of the newest export."""
        return await run_file_io(_RULE, self._begin)

    async def finish(self, at_ms: int) -> str:
        """Give the unfinished export its name, durable when this returns."""
        return await run_file_io(_RULE, self._finish, at_ms)

    async def delete_old(self, keep: int) -> list[str]:
        """Delete all but the newest `keep`, and what an interrupted deletion left; the names of what was deleted."""
        return await run_file_io(_RULE, self._delete_old, keep)

    def _finished(self) -> list[FinishedExport]:
        return sorted(export for name, at_ms in self._dated() if (export := self._read(name, at_ms)) is not None)

    def _dated(self) -> list[tuple[str, int]]:
        """Every folder that has a time for a name."""
        if not self.root.exists():
            return []
        times = ((entry.name, _time_of(entry.name)) for entry in self.root.iterdir() if entry.is_dir())
        return [(name, at_ms) for name, at_ms in times if at_ms is not None]

    def _read(self, name: str, at_ms: int) -> FinishedExport | None:
        try:
            raw = (self.root / name / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return FinishedExport(msgspec.json.decode(raw, type=_ManifestSize).batches, at_ms, name)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return FinishedExport(0, at_ms, name)  # damaged: it counts as the oldest

    def _begin(self) -> Path:
        unfinished, linking = self.root / UNFINISHED, self.root / _LINKING
        if unfinished.exists():
            return unfinished
        if linking.exists():
            shutil.rmtree(linking)
        linking.mkdir(mode=FOLDER_MODE)
        if finished := self._finished():
            newest = self.root / finished[-1].name
            for file in sorted(newest.iterdir()):
                if file.name != MANIFEST and not file.name.startswith("."):
                    _link_or_copy(file, linking / file.name)
        sync_folder(linking)
        linking.rename(unfinished)
        sync_folder(self.root)
        return unfinished

    def _finish(self, at_ms: int) -> str:
        while (self.root / _name_of(at_ms)).exists():  # the clock was set back
            at_ms += _SECOND_MS
        (self.root / UNFINISHED).rename(self.root / _name_of(at_ms))
        sync_folder(self.root)
        return _name_of(at_ms)

    def _delete_old(self, keep: int) -> list[str]:
        kept = {export.name for export in self._finished()[-keep:]}
        doomed = sorted(name for name, _ in self._dated() if name not in kept)
        for name in doomed:
            (self.root / name / MANIFEST).unlink(missing_ok=True)
            sync_folder(self.root / name)
            shutil.rmtree(self.root / name)
        return doomed


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def _name_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // _SECOND_MS, UTC).strftime(_TIME)


def _time_of(name: str) -> int | None:
    """The time that a folder's name says; None where it is another folder."""
    try:
        when = datetime.strptime(name, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(when.timestamp()) * _SECOND_MS if when.strftime(_TIME) == name else None
