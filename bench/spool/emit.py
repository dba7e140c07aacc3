"""How long `emit` takes, under load and while one fdatasync hangs, and what a delivering spool drains."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from statistics import quantiles

from bench.measure import Table, Turn, at_least, at_most, interleave, ratios_of, table
from bench.spool.append import POLICY, open_spool, payload_for
from holdfast.spool import Refused, Spool, Ticket
from holdfast.spool.files.disk import Handle, RealDisk
from holdfast.spool.files.record import Encoder, encode

HANG_S = 5.0
FLOOR_RATIO = 1.3
FAULT_RECORDS = 5_000
PER_SECOND = 10_000
ENCODING_ONLY = "encoding alone, no spool"
CASES = ("steady load", "while one fdatasync hangs")
PARTS = (("p50", 499), ("p99", 989), ("p99.9", 998))


class HangingDisk(RealDisk):
    """A disk whose next sync hangs when asked to."""

    def __init__(self) -> None:
        self.hang_s = 0.0
        self.is_hanging = threading.Event()

    def sync(self, handle: Handle) -> None:
        hang_s, self.hang_s = self.hang_s, 0.0
        if hang_s:
            self.is_hanging.set()
            time.sleep(hang_s)
            self.is_hanging.clear()
        super().sync(handle)


async def compare_latencies(folder: Path, rounds: int, seconds: float) -> Table:
    """Emits at a steady rate, each of them timed."""

    async def steady(number: int) -> Mapping[str, float]:
        return _named(CASES[0], _timed(folder / f"steady-{number}", seconds, 0.0))

    async def hung(number: int) -> Mapping[str, float]:
        return _named(CASES[1], _timed(folder / f"hung-{number}", seconds, min(HANG_S, seconds)))

    async def encoding_only(_: int) -> Mapping[str, float]:
        return _named(ENCODING_ONLY, _timed_encoding(seconds))

    figures = await interleave((encoding_only, steady, hung), rounds)
    order = [f"{case}, {part}" for case in (ENCODING_ONLY, *CASES) for part, _ in PARTS]
    title = f"emit at {PER_SECOND} records/s, one emitter"
    found = table("spool-emit", title, "µs", figures, order, None)
    floor = figures[f"{ENCODING_ONLY}, p99.9"]
    for case in CASES:
        ratios = ratios_of(figures[f"{case}, p99.9"], floor)
        found.goals.append(at_most(f"{case}, p99.9 beside the floor of its round", ratios, FLOOR_RATIO, "×"))
    found.notes.append("the emitter sleeps between its emits; GOALS asks this of a quiet machine")
    found.notes.append(f"{ENCODING_ONLY}: what this machine does with the same lines and no spool, the floor")
    for case, faults in _page_faults(folder).items():
        found.notes.append(f"page faults of the emitting thread, {case}: {faults} in {FAULT_RECORDS} emits")
    return found


def _page_faults(folder: Path) -> Mapping[str, int]:
    """Faults of the emitting thread while a sync hangs: each costs as much as an emit."""
    disk = HangingDisk()
    spool = Spool.open("bench", "faults", root=folder, policy=POLICY, disk=disk)
    assert isinstance(spool, Spool)
    payload, disk.hang_s = payload_for("bench", "faults"), 1.0
    ticket = spool.emit("BLOCK_START", payload)
    assert isinstance(ticket, Ticket)
    spool.writer.spooled.wait(ticket.sequence, 0)
    disk.is_hanging.wait()
    before = getrusage(RUSAGE_THREAD).ru_minflt
    for _ in range(FAULT_RECORDS):
        spool.emit("BLOCK_START", payload)
    found = getrusage(RUSAGE_THREAD).ru_minflt - before
    spool.close()
    return {CASES[1]: found}


def _named(case: str, took: list[float]) -> Mapping[str, float]:
    cuts = quantiles(took, n=1_000)
    return {f"{case}, {part}": cuts[index] for part, index in PARTS}


def _timed_encoding(seconds: float) -> list[float]:
    """The lower bound: a record is encoded at the same rate and thrown away, without threads, locks and disk."""
    encoder, payload, took, clock = (
        Encoder("bench", "s", bytes(16)),
        payload_for("bench", "s"),
        [],
        time.perf_counter_ns,
    )
    until, sequence = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        sequence += 1
        began = clock()
        encoder.line(sequence, time.time_ns() // 1_000_000, '"BLOCK_START"', encode(payload))
        took.append((clock() - began) / 1_000)
        time.sleep(1 / PER_SECOND)
    return took


def _timed(root: Path, seconds: float, hang_s: float) -> list[float]:
    """Microseconds of each emit; where the sync is to hang, only of those that were made meanwhile."""
    disk = HangingDisk()
    spool = Spool.open("bench", "s", root=root, policy=POLICY, disk=disk)
    assert isinstance(spool, Spool)
    payload, took, clock = payload_for("bench", "s"), [], time.perf_counter_ns
    for _ in range(1_000):
        spool.emit("BLOCK_START", payload)
    disk.hang_s = hang_s
    gc.collect()
    if hang_s:
        spool.emit("BLOCK_START", payload)
        disk.is_hanging.wait()
    until = time.monotonic() + seconds
    while time.monotonic() < until and (not hang_s or disk.is_hanging.is_set()):
        began = clock()
        answer = spool.emit("BLOCK_START", payload)
        took.append((clock() - began) / 1_000)
        assert not isinstance(answer, Refused), answer
        time.sleep(1 / PER_SECOND)
    spool.close()
    return took


async def compare_draining(folder: Path, rounds: int, records: int) -> Table:
    """One thread emits as fast as it can; the other one replays what is spooled, and acks it."""

    def turn(name: str, size: int | None) -> Turn:
        async def run(number: int) -> Mapping[str, float]:
            before = time.process_time()
            took = _drained(folder / f"{name}-{number}", records, size)
            row, used = f"{name}, emitted, replayed and acked", time.process_time() - before
            return {row: records / took, f"{row}, a second of processor time": records / used}

        return run

    figures = await interleave((turn("plain", None), turn("segments", 8 << 20)), rounds)
    found = table("spool-drain", "Drained while acks and replay run", "records/s", figures, list(figures), None)
    for name, values in figures.items():
        if "processor" not in name:
            found.goals.append(at_least(name, values, 250_000, "/s"))
    found.notes.append("emitter, writer, keeper and receiver are threads of one Python process")
    return found


def _drained(root: Path, records: int, segment_bytes: int | None) -> float:
    spool = open_spool(root, segment_bytes=segment_bytes)
    payload = payload_for("bench", "s")

    def emit() -> None:
        for _ in range(records):
            while isinstance(spool.emit("BLOCK_START", payload), Refused):
                time.sleep(0.001)

    emitter = threading.Thread(target=emit)
    began = time.perf_counter()
    emitter.start()
    done = 0
    while done < records:
        before = done
        for batch in spool.batches(done):
            done = batch.first + len(batch.lines) - 1
        if done > before:
            spool.ack(done)
        else:
            Ticket(done + 1, spool.writer.spooled).wait(1)
    took = time.perf_counter() - began
    emitter.join()
    spool.close()
    return took
