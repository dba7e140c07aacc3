"""Append loops over 300-byte records: C, Python, SQLite, LMDB, persist-queue, NATS and the spool, taking turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import apsw

from bench.measure import Table, Turn, at_least, interleave, ratios_of, table
from bench.peer_modules import PYTHON, why_not_installed
from holdfast.spool import Spool, SpoolPolicy, Ticket

BYTES = 300
C_APPEND, C_SEGMENT = "C, append + fdatasync", "C, preallocated segment"
BY_PYTHON, SQLITE = "Python, append + fdatasync", "SQLite WAL FULL"
PLAIN, SEGMENTS = "spool, plain", "spool, segments"
STREAMED, WAITS, ALONE = ", as they pile up", ", waits for each commit", ", in one thread"
LIMITS = {PLAIN: 0.95, SEGMENTS: 1.7}
PEERS = {"lmdb": "LMDB", "persist-queue": "persist-queue", "nats": "NATS JetStream, sync always"}
MODULES = {"lmdb": ["lmdb"], "persist-queue": ["persistqueue"], "nats": ["nats"]}
POLICY = SpoolPolicy(channel_bytes_max=64 << 30, queue_records_max=1 << 20)
HERE = Path(__file__).parent
Loop = Callable[[Path, int, int], float]
"""Folder, records, records per commit → seconds."""


def payload_for(channel: str, session: str) -> dict[str, str]:
    """So long that the record's line has 300 bytes."""
    from holdfast.spool.files.record import Encoder  # noqa: PLC0415 - only here

    line = Encoder(channel, session, bytes(16)).line(10_000, 1_771_000_000_123, '"BLOCK_START"', b'{"x":""}')
    return {"x": "x" * (BYTES - len(line))}


def open_spool(root: Path, *, segment_bytes: int | None, threads: bool = True) -> Spool:
    spool = Spool.open("bench", "s", root=root, policy=POLICY, segment_bytes=segment_bytes, threads=threads)
    assert isinstance(spool, Spool), spool
    return spool


# ------------------------------------------------------------------------------------------------ the loops


def compile_c(folder: Path) -> Path | None:
    """The C program, made now; None where there is no compiler."""
    if shutil.which("gcc") is None:
        print("gcc is missing: THE C LOOPS ARE NOT MEASURED, and nothing is compared with them", file=sys.stderr)
        return None
    program = folder / "append"
    subprocess.run(["gcc", "-O2", "-Wall", "-o", program, HERE / "append.c"], check=True)
    return program


def by_c(program: Path, kind: str) -> Loop:
    def loop(folder: Path, records: int, per_commit: int) -> float:
        command = [str(program), str(folder / "log"), str(records), str(per_commit), str(BYTES), kind]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return loop


def by_python(folder: Path, records: int, per_commit: int) -> float:
    file = os.open(folder / "log", os.O_CREAT | os.O_WRONLY, 0o600)
    tail, offset = b'"%s"}\n' % (b"x" * (BYTES - 40)), 0
    began = time.perf_counter()
    for done in range(0, records, per_commit):
        chunk = b"".join([b'{"sequence":%010d,"payload":' % (done + each) + tail for each in range(per_commit)])
        os.pwrite(file, chunk, offset)
        os.fdatasync(file)
        offset += len(chunk)
    took = time.perf_counter() - began
    os.close(file)
    return took


def by_sqlite(folder: Path, records: int, per_commit: int) -> float:
    db = apsw.Connection(str(folder / "log.sqlite"))
    db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE record (sequence INTEGER PRIMARY KEY, line BLOB NOT NULL)")
    line = b"x" * BYTES
    began = time.perf_counter()
    for done in range(0, records, per_commit):
        with db:
            db.executemany(
                "INSERT INTO record VALUES (?, ?)", [(each, line) for each in range(done + 1, done + per_commit + 1)]
            )
    took = time.perf_counter() - began
    db.close()
    return took


def by_spool(*, is_segmented: bool, threads: bool) -> Loop:
    """Emit as many as a commit is to hold, wait, again; without threads the emitter itself takes the writer's step.

    The first segment is made while opening, and large enough, as it is for C.
    """

    def loop(folder: Path, records: int, per_commit: int) -> float:
        size = records * BYTES * 2 if is_segmented else None
        spool = open_spool(folder, segment_bytes=size, threads=threads)
        payload, emit, ticket = payload_for("bench", "s"), spool.emit, None
        began = time.perf_counter()
        for _ in range(0, records, per_commit):
            for _ in range(per_commit):
                ticket = emit("BLOCK_START", payload)
            assert isinstance(ticket, Ticket), ticket
            if threads:
                ticket.wait()
            else:
                spool.writer.step()
        took = time.perf_counter() - began
        assert spool.spooled_sequence == records
        spool.close()
        return took

    return loop


def append_streamed(sizes: list[float], *, is_segmented: bool) -> Loop:
    """Emit without waiting for anything but the end: a commit begins with 50 records and takes what piled up."""

    def loop(folder: Path, records: int, _per_commit: int) -> float:
        spool = open_spool(folder, segment_bytes=records * BYTES * 2 if is_segmented else None)
        payload, emit, ticket = payload_for("bench", "s"), spool.emit, None
        began = time.perf_counter()
        for _ in range(records):
            ticket = emit("BLOCK_START", payload)
        assert isinstance(ticket, Ticket), ticket
        ticket.wait()
        took = time.perf_counter() - began
        sizes.append(records / spool.metrics().commits)
        spool.close()
        return took

    return loop


# ------------------------------------------------------------------------------------------------ the peers


def peers() -> tuple[Mapping[str, Loop], list[str]]:
    """Those that are installed, and what the table says of the others."""
    found, missing = dict[str, Loop](), []
    for name, modules in MODULES.items():
        if (reason := why_not_installed(*modules)) is not None:
            missing.append(f"{PEERS[name]}: {reason}")
        else:
            found[PEERS[name]] = _peer(name)
    return found, missing


def _peer(name: str) -> Loop:
    def loop(folder: Path, records: int, per_commit: int) -> float:
        script, spot = str(HERE / "peer_process.py"), str(folder / "peer")
        command = [str(PYTHON), script, name, spot, str(records), str(per_commit)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return loop


# ------------------------------------------------------------------------------------------------ the table


def turn(folder: Path, name: str, loop: Loop, records: int, per_commit: int) -> Turn:
    async def run(number: int) -> Mapping[str, float]:
        spot = folder / f"{name.replace(' ', '-').replace(',', '')}-{per_commit}-{number}"
        spot.mkdir()
        try:
            return {name: records / loop(spot, records, per_commit)}
        finally:
            shutil.rmtree(spot)

    return run


async def appends(folder: Path, per_commit: int, rounds: int, seconds: float) -> Table:
    """All loops with the same number of records per commit; slow peers write fewer records."""
    program, sizes = compile_c(folder), list[float]()
    loops: dict[str, Loop] = {}
    if program is not None:
        loops |= {C_APPEND: by_c(program, "append"), C_SEGMENT: by_c(program, "segment")}
    others, missing = peers()
    loops |= {BY_PYTHON: by_python, SQLITE: by_sqlite, **others, **ours(sizes, per_commit)}
    whole = per_commit * commits_of(folder, per_commit, seconds)
    slow = {PEERS["nats"]: 20, PEERS["persist-queue"]: 20} if per_commit > 1 else {}
    turns = [
        turn(folder, name, loop, whole // slow.get(name, 1) // 50 * 50, per_commit) for name, loop in loops.items()
    ]
    figures = await interleave(turns, rounds)
    baseline = C_APPEND if program is not None else BY_PYTHON
    title = f"Append {BYTES}-byte records, {per_commit} per commit"
    found = table(f"spool-append-{per_commit}", title, "records/s", figures, list(loops), baseline)
    found.not_measured = missing
    for layout, limit in LIMITS.items():
        for name in (row for row in loops if row.startswith(layout)):
            found.goals.append(at_least(f"{name} to {baseline}", ratios_of(figures[name], figures[baseline]), limit))
    found.notes.append(
        "the spool numbers, encodes and sums each record; C and Python fill in the sequence, others copy"
    )
    if sizes:
        found.notes.append(f"{STREAMED[2:]}: {median(sizes):.0f} records a commit, all others {per_commit}")
    return found


def commits_of(folder: Path, per_commit: int, seconds: float) -> int:
    """How many commits take about so long on this disk, now: a slow one is measured with fewer."""
    spot = folder / f"pace-{per_commit}"
    spot.mkdir()
    a_commit = by_python(spot, 100 * per_commit, per_commit) / 100
    shutil.rmtree(spot)
    return 50 * min(80, max(1, round(seconds / a_commit / 50)))


def ours(sizes: list[float], per_commit: int) -> dict[str, Loop]:
    """The spool's rows; where commits take what piles up, only once: its commits have the size they have."""
    rows: dict[str, Loop] = {}
    for layout in LIMITS:
        is_segmented = layout == SEGMENTS
        if per_commit > 1:
            rows[layout + STREAMED] = append_streamed(sizes, is_segmented=is_segmented)
        rows[layout + WAITS] = by_spool(is_segmented=is_segmented, threads=True)
        rows[layout + ALONE] = by_spool(is_segmented=is_segmented, threads=False)
    return rows
