"""Appending, numbering, replaying: what a spool promises while nothing goes wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.spool.spools import (
    CHANNEL,
    SESSION,
    FaultyDisk,
    adopt_session,
    channel_folder,
    check_refused,
    emit_spooled,
    layouts,
    open_spool,
    replay_sequences,
    sequences,
    spool_files,
    store_ack,
    stored_bytes,
    v01_line,
)

from holdfast.spool import Corrupt, Mode, Refused, Spool, SpoolPolicy, Ticket, undelivered_sessions
from holdfast.spool.record_queue import PIECE_LINES


@layouts
@pytest.mark.rule("SP-001")
def test_a_spool_is_append_only(tmp_path: Path, segment_bytes: int | None) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    before = b""
    for _ in range(12):
        emit_spooled(spool, 2)
        now = stored_bytes(tmp_path)
        assert now.startswith(before)
        assert len(now) > len(before)
        before = now
    spool.close()
    assert stored_bytes(tmp_path) == before
    open_spool(tmp_path, segment_bytes=segment_bytes).close()
    assert stored_bytes(tmp_path) == before


@layouts
@pytest.mark.rule("SP-003")
def test_sequences_begin_at_one_and_have_no_gaps_over_restarts(tmp_path: Path, segment_bytes: int | None) -> None:
    for run in range(4):
        spool = open_spool(tmp_path, segment_bytes=segment_bytes)
        assert [ticket.sequence for ticket in emit_spooled(spool, 5)] == list(range(5 * run + 1, 5 * run + 6))
        spool.close()
    assert sequences(stored_bytes(tmp_path).splitlines()) == list(range(1, 21))


@pytest.mark.rule("SP-003")
def test_a_refused_emit_takes_no_sequence(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    check_refused(spool.emit("BLOCK_START", [1, 2]), "InvalidParams")
    check_refused(spool.emit("BLOCK_START", {"x": object()}), "InvalidParams")
    check_refused(spool.emit("BLOCK_START", {"x": "\ud800"}), "InvalidParams")
    check_refused(spool.emit("", {}), "InvalidParams")
    check_refused(spool.emit("BLOCK_START", {"x": "y" * (1 << 20)}), "InvalidParams")
    assert [ticket.sequence for ticket in emit_spooled(spool, 1)] == [1]
    assert spool.metrics().refusals == {"InvalidParams": 5}
    spool.close()


@layouts
@pytest.mark.rule("SP-002", "SP-005")
def test_a_record_is_spooled_only_after_its_sync_and_never_replayed_before(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk, segment_bytes=segment_bytes)
    ticket = spool.emit("BLOCK_START", {})
    assert isinstance(ticket, Ticket)
    assert not ticket.is_durable
    assert (spool.spooled_sequence, replay_sequences(spool)) == (0, [])
    disk.calls.clear()
    spool.writer.step()
    verbs = [verb for verb, name in disk.calls if name.endswith(".spool.jsonl")]
    assert verbs == ["write", "sync"]
    assert ticket.is_durable
    assert (spool.spooled_sequence, replay_sequences(spool)) == (1, [1])
    spool.close()


@pytest.mark.rule("SP-002")
def test_the_folder_is_synced_after_the_file_is_made(tmp_path: Path) -> None:
    disk = FaultyDisk()
    open_spool(tmp_path, disk=disk).close()
    made = disk.calls.index(("create", f"{SESSION}.spool.jsonl"))
    assert ("sync_folder", CHANNEL) in disk.calls[made:]
    assert ("sync_folder", tmp_path.name) in disk.calls[:made]


@pytest.mark.rule("SP-002")
def test_in_mode_os_nothing_is_synced_until_the_end_and_no_record_claims_to_be(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk, mode=Mode.OS)
    disk.calls.clear()
    for _ in range(3):
        emit_spooled(spool, 2)
    assert ("sync", f"{SESSION}.spool.jsonl") not in disk.calls
    assert spool.spooled_sequence == 6
    spool.close()
    assert ("sync", f"{SESSION}.spool.jsonl") in disk.calls
    assert [json.loads(line).get("durable") for line in stored_bytes(tmp_path).splitlines()] == [
        0,
        None,
        0,
        None,
        0,
        None,
    ]


@pytest.mark.rule("SP-004")
def test_replay_gives_the_same_bytes_and_ids_every_time(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 5)
    first = list(spool.replay(0))
    assert list(spool.replay(0)) == first
    spool.close()
    again = open_spool(tmp_path, random_bytes=bytes)
    assert list(again.replay(0)) == first == stored_bytes(tmp_path).splitlines()
    assert len({json.loads(line)["event_uuid"] for line in first}) == 5
    again.close()


@pytest.mark.rule("SP-004")
def test_two_openings_of_a_session_draw_different_ids(tmp_path: Path) -> None:
    for seed in (b"\1" * 16, b"\2" * 16):
        spool = open_spool(tmp_path, random_bytes=lambda length, seed=seed: seed[:length])
        emit_spooled(spool, 3)
        spool.close()
    assert len({json.loads(line)["event_uuid"] for line in stored_bytes(tmp_path).splitlines()}) == 6


@layouts
@pytest.mark.rule("SP-005", "SP-ACK-002")
def test_after_a_disconnect_everything_above_the_ack_is_replayed_from_the_files(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 20)
    for ack in range(21):
        store_ack(spool, ack)
        assert sequences(spool.replay()) == list(range(ack + 1, 21))
    spool.close()


@layouts
@pytest.mark.rule("SP-CRASH-001")
def test_what_was_spooled_survives_a_process_that_never_closed(tmp_path: Path, segment_bytes: int | None) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 10)
    store_ack(spool, 4)
    assert spool._opened.lock is not None
    spool._log.disk.unlock(spool._opened.lock)  # as the system does when a process dies
    again = open_spool(tmp_path, segment_bytes=segment_bytes)
    assert (again.spooled_sequence, again.acked_sequence) == (10, 4)
    assert sequences(again.replay()) == [5, 6, 7, 8, 9, 10]
    again.close()


@pytest.mark.rule("SP-CRASH-001")
def test_sessions_that_were_not_wholly_delivered_are_listed_oldest_first(tmp_path: Path) -> None:
    assert undelivered_sessions(tmp_path, CHANNEL) == []
    for number, (session, ack) in enumerate([("z-1", 2), ("c-2", 3), ("b-3", 0), ("a-4", 1)]):
        spool = open_spool(tmp_path, session)
        spool._clock.now_ms += number * 1_000  # type: ignore[attr-defined]
        emit_spooled(spool, 3)
        store_ack(spool, ack)
        spool.close()
    found = undelivered_sessions(tmp_path, CHANNEL)
    assert [(one.paths.session, one.acked, one.last) for one in found] == [("z-1", 2, 3), ("b-3", 0, 3), ("a-4", 1, 3)]


@layouts
def test_replay_from_the_middle_of_many_files_begins_at_the_right_record(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    for _ in range(10):
        emit_spooled(spool, 4)
    for after in range(41):
        assert replay_sequences(spool, after) == list(range(after + 1, 41))
    spool.close()


@pytest.mark.rule("SP-ACK-004")
@layouts
def test_the_receivers_answer_to_the_hello_is_authoritative(tmp_path: Path, segment_bytes: int | None) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 10)
    assert spool.reconcile_ack(4) == 4
    assert spool.acked_sequence == 4
    assert spool.reconcile_ack(2) == 2
    assert spool.acked_sequence == 4
    assert spool.reconcile_ack(None) == 4
    check_refused(spool.reconcile_ack(11), "AckAhead")
    assert spool.reconcile_ack(10) == 10
    spool.close()


@pytest.mark.rule("SP-ACK-004")
@pytest.mark.parametrize("segment_bytes", [None, 1_000])
def test_a_receiver_that_lost_what_it_acked_is_an_explicit_gap(tmp_path: Path, segment_bytes: int | None) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 10)
    store_ack(spool, 9)
    spool.compact()
    spool.step()
    first = spool.first_available
    assert 2 < first <= 10
    assert spool.reconcile_ack(first - 1) == first - 1
    assert check_refused(spool.reconcile_ack(first - 2), "AckGap").rule == "SP-ACK-004"
    with pytest.raises(Corrupt, match=f"SP-ACK-004: records 1 to {first - 1}"):
        next(spool.replay(0))
    spool.close()


# ------------------------------------------------------------------------------------------------ who may wait


@pytest.mark.rule("SP-PERF-001")
def test_tickets_can_be_waited_for_by_threads_and_by_tasks(tmp_path: Path) -> None:
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path)
    assert isinstance(spool, Spool)
    ticket = spool.emit("BLOCK_START", {})
    assert isinstance(ticket, Ticket)
    assert ticket.wait(30)

    async def many() -> list[int]:
        tickets = [spool.emit("BLOCK_START", {"n": n}) for n in range(100)]
        return await asyncio.gather(*(one for one in tickets if isinstance(one, Ticket)))

    assert asyncio.run(many()) == list(range(2, 102))
    stored_ack = spool.ack(50)
    assert isinstance(stored_ack, Ticket)
    assert stored_ack.wait(30)
    assert asyncio.run(spool.aclose()) is None
    assert isinstance(spool.emit("BLOCK_START", {}), Refused)


@pytest.mark.rule("SP-PERF-002")
def test_a_commit_begins_at_fifty_records_or_after_250_ms_or_when_somebody_waits(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    clock = spool._clock
    spool.writer.step()
    assert spool.writer.due_in_ms() is None
    spool.emit("BLOCK_START", {})
    assert spool.writer.due_in_ms() == 250
    clock.now_ms += 249  # type: ignore[attr-defined]
    assert spool.writer.due_in_ms() == 1
    clock.now_ms += 1  # type: ignore[attr-defined]
    assert spool.writer.due_in_ms() == 0
    spool.writer.step()
    for _ in range(49):
        spool.emit("BLOCK_START", {})
    assert spool.writer.due_in_ms() == 250
    spool.emit("BLOCK_START", {})
    assert spool.writer.due_in_ms() == 0
    spool.writer.step()
    ticket = spool.emit("BLOCK_START", {})
    assert isinstance(ticket, Ticket)
    assert not ticket.wait(0)
    assert spool.writer.due_in_ms() == 0
    spool.close()


@pytest.mark.rule("SP-PERF-002")
def test_a_commit_takes_everything_that_piled_up_in_one_write(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    disk.calls.clear()
    emit_spooled(spool, 500)
    assert [call for call in disk.calls if call[1].endswith(".spool.jsonl")] == [
        ("write", f"{SESSION}.spool.jsonl"),
        ("sync", f"{SESSION}.spool.jsonl"),
    ]
    seen = spool.metrics()
    assert (seen.commits, seen.commit_records.sum) == (1, 500)
    spool.close()


@pytest.mark.rule("SP-PERF-001", "SP-PERF-002")
def test_a_large_commit_is_written_in_pieces_and_synced_once(tmp_path: Path) -> None:
    """Each write lets the emitters run, which making all lines at once would stop for long."""
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    disk.calls.clear()
    emit_spooled(spool, 2 * PIECE_LINES + 1)
    calls = [verb for verb, name in disk.calls if name.endswith(".spool.jsonl")]
    assert calls == ["write", "write", "write", "sync"]
    assert [b"durable" in line for line in stored_bytes(tmp_path).splitlines()] == [True] + [False] * 2 * PIECE_LINES
    spool.close()


@pytest.mark.rule("SP-PERF-002")
def test_in_mode_always_a_commit_begins_at_once(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, mode="always")
    spool.writer.step()
    spool.emit("BLOCK_START", {})
    assert spool.writer.due_in_ms() == 0
    spool.close()


@pytest.mark.rule("SP-PERF-001")
def test_a_hung_sync_blocks_no_emitter_and_a_full_queue_is_refused(tmp_path: Path) -> None:
    import threading

    disk = FaultyDisk()
    policy = SpoolPolicy(queue_records_max=1_000)
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, disk=disk, policy=policy)
    assert isinstance(spool, Spool)
    disk.gate = threading.Event()
    first = spool.emit("BLOCK_START", {})
    assert isinstance(first, Ticket)
    assert not first.wait(0)  # which asks for a commit
    assert disk.is_hanging.wait(30)
    # The disk hangs until this thread opens the gate: if emit waited for it, the test would never end.
    tickets = [spool.emit("BLOCK_START", {}) for _ in range(1_000)]
    assert all(isinstance(one, Ticket) for one in tickets)
    assert check_refused(spool.emit("BLOCK_START", {}), "QueueFull").rule == "SP-PERF-001"
    assert not first.is_durable
    disk.gate.set()
    last = tickets[-1]
    assert isinstance(last, Ticket)
    assert last.wait(30)
    assert last.sequence == 1_001  # the refused one took no number
    ticket = spool.emit("BLOCK_START", {})
    assert isinstance(ticket, Ticket)
    assert ticket.wait(30)
    spool.close()
    assert sequences(stored_bytes(tmp_path).splitlines()) == list(range(1, 1_003))


# ------------------------------------------------------------------------------------------------ ids, counters, v0.1


@pytest.mark.rule("SP-007")
@pytest.mark.parametrize(
    "bad", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "a b", "a@1", "ü", "x" * 129, "../up"]
)
def test_an_id_that_cannot_be_a_files_name_is_refused(tmp_path: Path, bad: str) -> None:
    assert check_refused(Spool.open(bad, SESSION, root=tmp_path), "BadId").rule == "SP-007"
    assert check_refused(Spool.open(CHANNEL, bad, root=tmp_path), "BadId").rule == "SP-007"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("SP-007")
@pytest.mark.parametrize("good", ["a", "7", "x" * 128, "PS-1_a.b", "a.ack", "a.spool.jsonl"])
def test_ids_up_to_128_plain_characters_are_taken(tmp_path: Path, good: str) -> None:
    for session in (good, "a"):
        spool = open_spool(tmp_path, session)
        emit_spooled(spool, 1)
        spool.close()
    assert sequences(stored_bytes(tmp_path, "a").splitlines()) == ([1, 2] if good == "a" else [1])


def test_the_counters_say_what_happened(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 3)
    spool._clock.now_ms += 700  # type: ignore[attr-defined]
    emit_spooled(spool, 2)
    spool._clock.now_ms += 300  # type: ignore[attr-defined]
    assert spool.metrics().oldest_unacked_age_ms == 1_000
    store_ack(spool, 3)
    list(spool.replay())
    seen = spool.metrics()
    assert (seen.spooled_sequence, seen.acked_sequence, seen.unacked_records, seen.waiting_records) == (5, 3, 2, 0)
    assert (seen.commits, seen.commit_records.sum, seen.replays, seen.replayed_records) == (2, 5, 1, 2)
    assert seen.oldest_unacked_age_ms == 300
    assert seen.channel_bytes >= seen.session_bytes >= len(stored_bytes(tmp_path))
    store_ack(spool, 5)
    assert spool.metrics().oldest_unacked_age_ms == 0
    spool.close()
    again = open_spool(tmp_path)
    assert again.metrics().oldest_unacked_age_ms == 0
    again.close()


@pytest.mark.rule("SP-006")
@pytest.mark.parametrize("text_number", [False, True])
def test_a_file_of_an_existing_sender_opens_replays_and_is_continued(tmp_path: Path, text_number: bool) -> None:
    channel_folder(tmp_path).mkdir()
    old = b"".join(v01_line(n, text_number=text_number) for n in range(1, 6))
    (channel_folder(tmp_path) / f"{SESSION}.spool.jsonl").write_bytes(old)
    (channel_folder(tmp_path) / f"{SESSION}.ack").write_text("acked_sequence=2\nupdated_utc=2026-02-13T10:00:00Z\n")
    adopt_session(tmp_path)
    spool = open_spool(tmp_path)
    assert (spool.spooled_sequence, spool.acked_sequence) == (5, 2)
    assert sequences(spool.replay()) == [3, 4, 5]
    emit_spooled(spool, 2)
    assert sequences(spool.replay()) == [3, 4, 5, 6, 7]
    spool.close()
    assert stored_bytes(tmp_path).startswith(old)
    assert len(spool_files(tmp_path)) == 1
