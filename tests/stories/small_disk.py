"""A file system of a few megabytes for a test, which can be filled and given room again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


class SmallDisk:
    """Mounted at its folder; in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Until not a byte is left; what is there stays as it is."""
        with (self.folder / FILLER).open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4_096))
            except OSError:
                pass

    def empty(self) -> None:
        """The room that `fill` took is free again."""
        (self.folder / FILLER).unlink(missing_ok=True)

    def resize(self, mib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={mib}m", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[SmallDisk]:
    """Where nothing can be mounted the test is skipped, and says so."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "holdfast-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small file system can be mounted here: THE FULL DISK IS NOT TESTED")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
