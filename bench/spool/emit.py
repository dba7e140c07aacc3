"""How long `emit` takes, under load and while one fdatasync hangs, and what a delivering spool drains."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
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
PAUSE_S = 1e-4
TURN_CALLS = 20
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
    """Emits at a steady rate, each of them timed. All cases take turns of a few emits: noise hits them alike."""

    async def turn(number: int) -> Mapping[str, float]:
        return _percentiles(_timed(folder / f"emit-{number}", min(HANG_S, seconds)))

    figures = await interleave((turn,), rounds)
    order = [f"{case}, {part}" for case in (ENCODING_ONLY, *CASES) for part, _ in PARTS]
    title = f"emit, one emitter that sleeps {PAUSE_S * 1e6:.0f} µs after each"
    found = table("spool-emit", title, "µs", figures, order, None)
    floor = figures[f"{ENCODING_ONLY}, p99.9"]
    for case in CASES:
        ratios = ratios_of(figures[f"{case}, p99.9"], floor)
        found.goals.append(at_most(f"{case}, p99.9 beside the floor of its round", ratios, FLOOR_RATIO, "×"))
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


def _percentiles(took: Mapping[str, list[float]]) -> Mapping[str, float]:
    cuts = {case: quantiles(each, n=1_000) for case, each in took.items()}
    return {f"{case}, {part}": cuts[case][index] for case in took for part, index in PARTS}


def _timed(root: Path, hang_s: float) -> Mapping[str, list[float]]:
    """Microseconds of each emit until the sync of one of the spools has hung so long."""
    disk = HangingDisk()
    steady, hung = _open_warm(root / "steady", RealDisk()), _open_warm(root / "hung", disk)
    cases = (_encode_only(), *(_emits_to(spool) for spool in (steady, hung)))
    names, turns = (ENCODING_ONLY, *CASES), [(call, list[float]()) for call in cases]
    gc.collect()
    disk.hang_s = hang_s
    hung.writer.spooled.wait(_emit(hung), 0)
    disk.is_hanging.wait()
    while disk.is_hanging.is_set():
        turns.append(turns.pop(0))
        for call, took in turns:
            _time_calls(call, took)
    steady.close()
    hung.close()
    return {name: took for name, case in zip(names, cases, strict=True) for call, took in turns if call is case}


def _time_calls(call: Callable[[], object], took: list[float]) -> None:
    clock = time.perf_counter_ns
    for _ in range(TURN_CALLS):
        began = clock()
        call()
        took.append((clock() - began) / 1_000)
        time.sleep(PAUSE_S)


def _open_warm(root: Path, disk: RealDisk) -> Spool:
    spool = Spool.open("bench", "s", root=root, policy=POLICY, disk=disk)
    assert isinstance(spool, Spool)
    for _ in range(1_000):
        last = _emit(spool)
    spool.writer.spooled.wait(last, None)
    return spool


def _emit(spool: Spool) -> int:
    ticket = spool.emit("BLOCK_START", payload_for("bench", "s"))
    assert isinstance(ticket, Ticket), ticket
    return ticket.sequence


def _emits_to(spool: Spool) -> Callable[[], object]:
    payload = payload_for("bench", "s")
    return lambda: spool.emit("BLOCK_START", payload)


def _encode_only() -> Callable[[], object]:
    """The lower bound: a record is encoded and thrown away, without threads, locks and disk."""
    encoder, payload, sequences = Encoder("bench", "s", bytes(16)), payload_for("bench", "s"), count(1)
    return lambda: encoder.line(next(sequences), time.time_ns() // 1_000_000, '"BLOCK_START"', encode(payload))


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
