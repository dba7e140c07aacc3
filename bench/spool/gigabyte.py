"""A spool of one gigabyte: opened to its first unacked record, verified, replayed."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from bench.measure import Table, at_least, at_most, interleave, table
from bench.spool.append import BYTES, open_spool, payload_for
from holdfast.spool import Spool, Ticket
from holdfast.spool.files.verify import verify

OPEN, COLD, VERIFY, VERIFY_1, READ = (
    "open, to the first unacked record",
    "the same, file not in memory",
    "verify, two processes",
    "verify, one process",
    "reading the file, nothing else",
)
VERIFY_CPU = "verify, two processes, processor time of both"
REPLAY, REPLAY_LINES = "replay, in batches", "replay, line by line"
REPLAY_CPU = "replay, in batches, a second of processor time"


async def compare_gigabyte(folder: Path, rounds: int, size: int) -> list[Table]:
    """Seconds for opening and verifying, records per second for replaying."""
    root = folder / "gigabyte"
    records = _fill(root, size)
    path = root / "bench" / "s.spool.jsonl"

    async def openings(_: int) -> Mapping[str, float]:
        warm = _open(root, records // 3)
        _drop_page_cache(path)
        return {OPEN: warm * 1e3, COLD: _open(root, records // 3) * 1e3}

    async def verifying(_: int) -> Mapping[str, float]:
        found = {READ: _took(lambda: _read(path)), VERIFY_1: _took(lambda: verify(path, processes=1))}
        before = _processor_s()
        return found | {VERIFY: _took(lambda: verify(path)), VERIFY_CPU: _processor_s() - before}

    async def replaying(_: int) -> Mapping[str, float]:
        before = _processor_s()
        found = {REPLAY: records / _replay(root, records), REPLAY_CPU: records / (_processor_s() - before)}
        return found | {REPLAY_LINES: records / _line_by_line(root, records)}

    figures = await interleave((openings, verifying, replaying), rounds)
    shutil.rmtree(root)
    what = f"of {size / 2**30:.3g} GiB, {records} records of {BYTES} bytes"
    opening = table("spool-open", f"Open a spool {what}", "ms", figures, [OPEN, COLD], None)
    opening.goals.append(at_most(OPEN, figures[OPEN], 10, " ms"))
    checking = table("spool-verify", f"Verify a spool {what}", "s", figures, [READ, VERIFY_1, VERIFY, VERIFY_CPU], READ)
    checking.goals.append(at_most(VERIFY, figures[VERIFY], 2 * size / 2**30, " s"))
    replay = table(
        "spool-replay", f"Replay a spool {what}", "records/s", figures, [REPLAY, REPLAY_LINES, REPLAY_CPU], None
    )
    replay.goals.append(at_least(REPLAY, figures[REPLAY], 1_000_000, "/s"))
    return [opening, checking, replay]


def _fill(root: Path, size: int) -> int:
    """A third of it is acked: so little that it is not worth a compaction."""
    records = size // BYTES
    spool = open_spool(root, segment_bytes=None, threads=False)
    payload = payload_for("bench", "s")
    for number in range(1, records + 1):
        assert isinstance(spool.emit("BLOCK_START", payload), Ticket)
        if number % 500 == 0:
            spool.writer.step()
    while spool.writer.step():
        pass
    assert isinstance(spool.ack(records // 3), Ticket)
    spool.close()
    return records


def _open(root: Path, acked: int) -> float:
    began = time.perf_counter()
    spool = open_spool(root, segment_bytes=None, threads=False)
    first = next(spool.replay())
    took = time.perf_counter() - began
    assert b'"sequence":%d,' % (acked + 1) in first
    spool.close()
    return took


def _drop_page_cache(path: Path) -> None:
    """Ask the machine to drop the file from memory."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def _took(work: object) -> float:
    assert callable(work)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _processor_s() -> float:
    """What this process and its ended children have used: it says the same on a busy machine."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 22):
            pass


def _replay(root: Path, records: int) -> float:
    spool = open_spool(root, segment_bytes=None, threads=False)
    took = _took(lambda: _count(spool, records))
    spool.close()
    return took


def _count(spool: Spool, records: int) -> None:
    assert sum(len(batch.lines) for batch in spool.batches(0)) == records


def _line_by_line(root: Path, records: int) -> float:
    spool = open_spool(root, segment_bytes=None, threads=False)
    began = time.perf_counter()
    count = 0
    for _ in spool.replay(0):
        count += 1
    took = time.perf_counter() - began
    assert count == records
    spool.close()
    return took
