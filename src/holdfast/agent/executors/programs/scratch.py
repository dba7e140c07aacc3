"""The folder in which a piece of work runs, removed afterwards, and the output that it leaves there."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import stat
import tarfile
from pathlib import Path
from typing import Final

from holdfast.agent.executors.contract import WorkFailed

STDOUT: Final = "stdout"
OUTPUT: Final = "output"
FILES_MAX: Final = 10_000


class Scratch:
    """One folder for one piece of work."""

    def __init__(self, root: Path) -> None:
        self.folder = root / secrets.token_hex(8)
        self.work, self.output, self.stdout = self.folder / "work", self.folder / OUTPUT, self.folder / STDOUT

    def make(self) -> None:
        for folder in (self.folder, self.work, self.output):
            folder.mkdir(mode=0o700, parents=True)

    def remove(self) -> None:
        """Also where the work took rights away from its own folders."""
        for folder, names, _ in os.walk(self.folder):
            for name in names:
                if not os.path.islink(os.path.join(folder, name)):  # noqa: PTH114, PTH118 - as os.walk gives them
                    os.chmod(os.path.join(folder, name), 0o700)  # noqa: PTH101, PTH118
        shutil.rmtree(self.folder, ignore_errors=True)

    def read_output(self, bytes_max: int) -> bytes:
        """Files of the output folder instead of standard output: one is its bytes, several are a tar archive."""
        files = _regular_files(self.output)
        total = sum(size for _, size in files)
        if total > bytes_max:
            raise WorkFailed(f"OUTPUT_TOO_LARGE: {total} bytes, at most {bytes_max}")
        if not files:
            return _read(self.stdout)
        return _read(files[0][0]) if len(files) == 1 else _archive(self.output, [path for path, _ in files])


def _regular_files(folder: Path) -> list[tuple[Path, int]]:
    """Links are refused: they could lead to files of the agent."""
    found: list[tuple[Path, int]] = []
    for parent, names, files in os.walk(folder):
        for name in (*names, *files):
            path = Path(parent, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found.append((path, status.st_size))
            elif not stat.S_ISDIR(status.st_mode):
                raise WorkFailed(f"OUTPUT_INVALID: {path.relative_to(folder)} is not a regular file")
        if len(found) > FILES_MAX:
            raise WorkFailed(f"OUTPUT_TOO_LARGE: more than {FILES_MAX} files")
    return found


def _archive(folder: Path, paths: list[Path]) -> bytes:
    """Equal files give equal bytes: sorted by name, without times, owners and rights."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in paths):
            raw, entry = _read(path), tarfile.TarInfo(name)
            entry.size, entry.mode = len(raw), 0o644
            try:
                archive.addfile(entry, io.BytesIO(raw))
            except ValueError as fault:
                raise WorkFailed(f"OUTPUT_INVALID: {name!r:.80}: {fault}") from fault
    return buffer.getvalue()


def _read(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
        return file.read()
