"""Everything at once: emitters, a receiver that acks, replay and compaction, in threads, on a real disk."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage

import msgspec
import pytest
from msgspec import UNSET
from tests.counts import counts
from tests.spool.spools import CHANNEL, SESSION, Fault, FaultyDisk, sequences, spool_files, stored_bytes

from holdfast.spool import Refused, Spool, SpoolPolicy, Ticket, Unavailable
from holdfast.spool import maintainer as keeping
from holdfast.spool.files.record import DURABLE_FIELD_BYTES_MAX, Encoder, Record, encode
from holdfast.spool.record_queue import BLOCK_BYTES, QueuedLines, RecordQueue


@pytest.mark.rule("SP-005", "SP-RET-002")
@pytest.mark.parametrize("segment_bytes", [None, 1 << 17])
def test_a_receiver_gets_every_record_once_in_order_while_all_goes_on(
    tmp_path: Path, segment_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "COMPACT_BYTES", 1 << 16)
    whole = counts(20_000, 200_000)
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, policy=SpoolPolicy(), segment_bytes=segment_bytes)
    assert isinstance(spool, Spool)

    def emit(name: str) -> None:
        done = 0
        while done < whole // 4:
            answer = spool.emit("BLOCK_START", {"from": name, "number": done})
            if isinstance(answer, Refused):
                assert answer.name == "QueueFull"
                last = spool.emit("NEVER", [])  # a refusal more, and the queue gets time
                assert isinstance(last, Refused)
                continue
            done += 1

    threads = [threading.Thread(target=emit, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    got: list[bytes] = []
    while len(got) < whole:
        before = len(got)
        for batch in spool.batches(len(got)):
            assert batch.first == len(got) + 1
            got.extend(batch.lines)
            assert len(got) <= spool.spooled_sequence
        if len(got) > before:
            assert isinstance(spool.ack(len(got)), Ticket)
        else:
            Ticket(len(got) + 1, spool.writer.spooled).wait(1)
    for thread in threads:
        thread.join()
    assert sequences(got) == list(range(1, whole + 1))
    stored_ack = spool.ack(whole)
    assert isinstance(stored_ack, Ticket)
    assert stored_ack.wait(30)
    assert spool.compact().wait(30)
    assert spool.metrics().acked_sequence == whole
    assert len(stored_bytes(tmp_path)) < 1 << 18  # nearly all of it is gone again
    assert len(spool_files(tmp_path)) <= 2
    spool.close()


@pytest.mark.rule("SP-PERF-002")
def test_a_record_without_a_waiter_is_spooled_all_the_same(tmp_path: Path) -> None:
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, policy=SpoolPolicy(flush_interval_ms=1))
    assert isinstance(spool, Spool)
    reached = threading.Event()
    spool.writer.on_commit = lambda _last, _now_ms: reached.set()
    assert isinstance(spool.emit("BLOCK_START", {}), Ticket)
    assert reached.wait(30)
    spool.close()


@pytest.mark.rule("SP-002")
def test_closing_spools_what_still_waits(tmp_path: Path) -> None:
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, policy=SpoolPolicy(flush_interval_ms=60_000))
    assert isinstance(spool, Spool)
    tickets = [spool.emit("BLOCK_START", {}) for _ in range(20)]
    spool.close()
    assert all(isinstance(ticket, Ticket) and ticket.is_durable for ticket in tickets)
    assert sequences(stored_bytes(tmp_path).splitlines()) == list(range(1, 21))


@pytest.mark.rule("SP-CRASH-003", "SP-007")
def test_closing_ends_both_threads_also_where_records_could_not_be_spooled(tmp_path: Path) -> None:
    disk, patient = FaultyDisk(), SpoolPolicy(flush_interval_ms=600_000)  # no commit before somebody waits
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, disk=disk, policy=patient)
    assert isinstance(spool, Spool)
    first = spool.emit("BLOCK_START", {})
    assert isinstance(first, Ticket)
    assert first.wait(60)
    disk.faults += [Fault("write", times=1 << 30, where=".spool.jsonl")]
    many = [spool.emit("BLOCK_START", {"text": "x" * 1_000_000}) for _ in range(20)]  # more than one commit takes
    assert isinstance(many[-1], Ticket)
    with pytest.raises(Unavailable):
        many[-1].wait(60)
    assert spool.metrics().waiting_records > 0
    with pytest.raises(Unavailable):
        spool.close()
    assert not [thread.name for thread in threading.enumerate() if SESSION in thread.name]


@pytest.mark.rule("SP-PERF-001")
def test_while_a_sync_hangs_the_emitting_thread_meets_no_page_faults(tmp_path: Path) -> None:
    """Each costs as much as an emit. In new memory every tenth record would meet one."""
    disk = FaultyDisk()
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, disk=disk)
    assert isinstance(spool, Spool)
    disk.gate = threading.Event()
    ticket = spool.emit("BLOCK_START", {})
    assert isinstance(ticket, Ticket)
    assert not ticket.wait(0)
    assert disk.is_hanging.wait(30)
    before, end = getrusage(RUSAGE_THREAD).ru_minflt, time.monotonic() + 60
    for _ in range(4):  # each takes more than a block: more of them are prepared meanwhile
        for _ in range(3_000):
            assert isinstance(spool.emit("BLOCK_START", {"x": "y" * 400}), Ticket)
        while spool._outbox.needs_memory:
            assert time.monotonic() < end
            time.sleep(0.001)
    assert getrusage(RUSAGE_THREAD).ru_minflt - before < 100
    disk.gate.set()
    spool.close()
    assert sequences(stored_bytes(tmp_path).splitlines()) == list(range(1, 12_002))


@pytest.mark.rule("SP-PERF-001", "SP-003")
def test_records_of_any_length_come_out_in_their_order(tmp_path: Path) -> None:
    """Also one that is longer than a block of memory, whatever is taken in between, and asked for once more."""
    queue, dice, waiting = RecordQueue(Encoder(CHANNEL, SESSION, bytes(16)), 6), random.Random(7), deque[object]()
    kinds = [b'"BLOCK_START"', '"Gerät"'.encode()]
    for _ in range(counts(300, 3_000)):
        for _ in range(dice.randrange(4)):
            size = dice.choice([1, 300, 40_000, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1])
            kind, text = dice.choice(kinds), encode({"x": chr(dice.randrange(97, 122)) * size})
            queue.append(dice.randrange(10), kind, text)
            waiting.append((kind, text))
        first, bytes_max = queue.next, dice.choice([1 << 40, 1, 50_000, 1 << 21])
        lines = QueuedLines(queue, len(waiting), bytes_max, 5)
        raw = b"".join(lines)
        assert b"".join(lines) == raw
        assert len(raw) <= lines.size_max + DURABLE_FIELD_BYTES_MAX
        assert len(raw) <= bytes_max + DURABLE_FIELD_BYTES_MAX or lines.count == 1
        assert bool(lines.count) == bool(waiting)
        for index, line in enumerate(raw.splitlines()):
            record = msgspec.json.decode(line, type=Record)
            assert (record.sequence, record.durable) == (first + index, UNSET if index else 5)
            assert (encode(record.payload_type), encode(record.payload)) == waiting.popleft()
        assert queue.next == first + lines.count
        if dice.random() < 0.2:
            queue.prepare_spares()
