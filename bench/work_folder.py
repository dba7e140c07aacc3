"""Where the measured files rest: a temporary folder on a real disk, and how fast that disk syncs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

OUT = Path(__file__).parent / "out"
MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


@contextmanager
def work_folder(parent: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards; refused where files would only be in memory."""
    parent = (parent or OUT).resolve()
    parent.mkdir(parents=True, exist_ok=True)
    if (kind := filesystem(parent)) in MEMORY:
        raise SystemExit(f"{parent} is on {kind}: a sync costs nothing there; choose another with --folder")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


def filesystem(path: Path) -> str:
    """The type of the file system that holds `path`."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(len(at), kind) for at, kind in mounts if path.is_relative_to(at)]
    return max(holding)[1] if holding else "unknown"


def describe(folder: Path) -> str:
    """File system and the cost of appending 4 KiB and syncing it, so that a reader can judge the figures."""
    times = sorted(_syncs(folder / "sync", 200))
    at_99 = quantiles(times, n=100)[98]
    return (
        f"{filesystem(folder)}, 4 KiB append + fdatasync {median(times) * 1e6:.0f} µs median, {at_99 * 1e6:.0f} µs p99"
    )


def _syncs(path: Path, count: int) -> Iterator[float]:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(file, bytes(4096))
            os.fdatasync(file)
            yield time.perf_counter() - began
    finally:
        os.close(file)
        path.unlink()
