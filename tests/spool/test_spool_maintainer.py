"""Acks, compaction, deletion and the cap: what is let go of, when, and what never is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spool.spools import (
    CHANNEL,
    NOW_MS,
    SESSION,
    Fault,
    FaultyDisk,
    ManualClock,
    UnsyncedDisk,
    channel_folder,
    check_refused,
    emit_spooled,
    layouts,
    open_spool,
    replay_sequences,
    sequences,
    small_policy,
    spool_files,
    store_ack,
    stored_bytes,
)

from holdfast.spool import Refused, Spool, Ticket, channel
from holdfast.spool.files.disk import Handle, RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.maintainer import ACK_STORE_MS

ACK = f"{SESSION}.ack"


def run_compaction(spool: Spool) -> None:
    ticket = spool.compact()
    spool.step()
    assert ticket.is_durable


# ------------------------------------------------------------------------------------------------ acks


@pytest.mark.rule("SP-ACK-001")
def test_an_ack_is_a_small_text_file_replaced_by_temp_sync_rename_and_folder_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 5)
    disk.calls.clear()
    store_ack(spool, 3)
    text = (channel_folder(tmp_path) / ACK).read_text()
    assert text == "acked_sequence=3\nupdated_utc=2026-02-13T16:26:40.123Z\n"
    about = [call for call in disk.calls if call[1].startswith(ACK) or call[0] == "sync_folder"]
    assert about[-5:] == [
        ("create", f"{ACK}.tmp"),
        ("write", f"{ACK}.tmp"),
        ("sync", f"{ACK}.tmp"),
        ("rename", ACK),
        ("sync_folder", CHANNEL),
    ]
    spool.close()
    again = open_spool(tmp_path)
    assert again.acked_sequence == 3
    again.close()


@pytest.mark.rule("SP-ACK-001")
def test_an_ack_is_stored_after_a_moment_or_as_soon_as_somebody_waits_for_it(tmp_path: Path) -> None:
    clock = ManualClock()
    spool = open_spool(tmp_path, clock=clock)
    maintainer = spool.maintainer
    emit_spooled(spool, 9)
    spool.ack(3)
    clock.now_ms += ACK_STORE_MS - 1
    spool.ack(5)
    assert (maintainer.has_work(), maintainer.ack_due_in_ms()) == (False, 1)
    clock.now_ms += 1
    assert maintainer.has_work()
    maintainer.step()
    assert (maintainer.ack_stored.reached, maintainer.ack_due_in_ms()) == (5, None)
    ticket = spool.ack(7)
    assert isinstance(ticket, Ticket)
    assert not maintainer.has_work()
    assert not ticket.wait(0)
    assert maintainer.has_work()
    maintainer.step()
    assert ticket.is_durable
    spool.close()


@pytest.mark.rule("SP-ACK-001")
def test_closing_stores_the_last_ack(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 5)
    spool.ack(4)
    spool.close()
    again = open_spool(tmp_path)
    assert again.acked_sequence == 4
    again.close()


@layouts
@pytest.mark.rule("SP-RET-002", "EVD-006")
def test_a_record_that_is_still_needed_is_kept_although_it_is_acked(tmp_path: Path, segment_bytes: int | None) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 30)
    spool.keep_from(12)
    store_ack(spool, 30)
    run_compaction(spool)
    assert spool.first_available <= 12
    assert replay_sequences(spool, 11) == list(range(12, 31))
    spool.keep_from(None)
    run_compaction(spool)
    assert spool.first_available > 12 or segment_bytes == 1 << 16, "one segment is dropped when it is full"
    spool.close()


@pytest.mark.rule("SP-ACK-003")
def test_only_a_strictly_higher_ack_is_stored(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 5)
    store_ack(spool, 3)
    disk.calls.clear()
    for lower in (3, 2, 0):
        store_ack(spool, lower)
    assert [call for call in disk.calls if call[1].startswith(ACK)] == []
    assert spool.acked_sequence == 3
    store_ack(spool, 4)
    assert "acked_sequence=4\n" in (channel_folder(tmp_path) / ACK).read_text()
    spool.close()


@pytest.mark.rule("SP-ACK-001")
def test_an_ack_above_the_last_spooled_record_is_refused_and_not_stored(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 5)
    assert check_refused(spool.ack(6), "AckAhead").rule == "SP-ACK-001"
    spool.emit("BLOCK_START", {})
    check_refused(spool.ack(6), "AckAhead")  # emitted is not spooled
    spool.step()
    assert not (channel_folder(tmp_path) / ACK).exists()
    store_ack(spool, 6)
    spool.close()


@pytest.mark.rule("SP-ACK-003")
def test_an_ack_that_could_not_be_stored_is_stored_when_the_disk_is_well_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 5)
    disk.faults.append(Fault("sync", where=ACK))
    ticket = spool.ack(4)
    assert isinstance(ticket, Ticket)
    spool.step()
    assert not ticket.is_durable
    spool.step()
    assert ticket.is_durable
    spool.close()


# ------------------------------------------------------------------------------------------------ compaction


@layouts
@pytest.mark.rule("SP-RET-002")
def test_compaction_keeps_every_unacked_record_byte_for_byte_and_the_next_sequence(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    for ack in range(13):
        root = tmp_path / str(ack)
        root.mkdir()
        spool = open_spool(root, segment_bytes=segment_bytes, disk=UnsyncedDisk())
        emit_spooled(spool, 6)
        emit_spooled(spool, 6)
        before = list(spool.replay(ack))
        store_ack(spool, ack)
        run_compaction(spool)
        assert list(spool.replay(ack)) == before
        assert [ticket.sequence for ticket in emit_spooled(spool, 2)] == [13, 14]
        spool.close()
        again = open_spool(root, segment_bytes=segment_bytes, disk=UnsyncedDisk())
        assert [ticket.sequence for ticket in emit_spooled(again, 1)] == [15]
        assert list(again.replay(ack))[: len(before)] == before
        again.close()


@pytest.mark.rule("SP-RET-002")
def test_compacting_a_plain_file_leaves_one_file_without_the_acked_records(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 10)
    store_ack(spool, 7)
    run_compaction(spool)
    assert [path.name for path in spool_files(tmp_path)] == [f"{SESSION}.spool.jsonl"]
    assert sequences(stored_bytes(tmp_path).splitlines()) == [8, 9, 10]
    store_ack(spool, 10)
    run_compaction(spool)
    assert sequences(stored_bytes(tmp_path).splitlines()) == [10]  # the last one stays: it knows the next sequence
    spool.close()


@pytest.mark.rule("SP-RET-002")
def test_compacting_segments_unlinks_those_that_are_wholly_acked(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, segment_bytes=1_000)
    emit_spooled(spool, 12)
    names = [path.name for path in spool_files(tmp_path)]
    assert len(names) == 4
    store_ack(spool, 5)
    assert [path.name for path in spool_files(tmp_path)] == names[1:]
    store_ack(spool, 6)
    assert [path.name for path in spool_files(tmp_path)] == names[2:]
    spool.close()


@pytest.mark.rule("SP-RET-002")
def test_the_copy_is_synced_then_renamed_then_the_folder_is_synced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 10)
    store_ack(spool, 7)
    disk.calls.clear()
    run_compaction(spool)
    name = f"{SESSION}.spool.jsonl"
    assert [call for call in disk.calls if call[1] != f"{SESSION}.reserve"] == [
        ("unlink", f"{name}.tmp"),
        ("create", f"{name}.tmp"),
        ("write", f"{name}.tmp"),
        ("sync", f"{name}.tmp"),
        ("rename", name),
        ("sync_folder", CHANNEL),
    ]
    spool.close()


@pytest.mark.rule("SP-RET-002")
def test_what_is_spooled_while_the_copy_is_made_is_in_it(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 10)
    store_ack(spool, 7)
    spool.compact()
    spool.maintainer.step()  # the copy is made
    for _ in range(3):
        spool.emit("BLOCK_START", {})
    spool.writer.step()  # swapped in, then the commit
    emit_spooled(spool, 2)
    assert replay_sequences(spool, 7) == [8, 9, 10, 11, 12, 13, 14, 15]
    assert sequences(stored_bytes(tmp_path).splitlines()) == [8, 9, 10, 11, 12, 13, 14, 15]
    spool.close()


class InterferingDisk(RealDisk):
    """A disk on which something else happens at the worst moment, as another thread might do it."""

    before_rename: Callable[[], object] = staticmethod(lambda: None)
    before_sync: Callable[[], object] = staticmethod(lambda: None)

    def rename(self, old: Path, new: Path) -> None:
        meddle, self.before_rename = self.before_rename, lambda: None
        meddle()
        super().rename(old, new)

    def sync(self, handle: Handle) -> None:
        meddle, self.before_sync = self.before_sync, lambda: None
        meddle()
        super().sync(handle)


@pytest.mark.rule("SP-RET-002")
def test_what_is_committed_before_the_copy_is_finished_is_added_to_it(tmp_path: Path) -> None:
    disk = InterferingDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 10)
    store_ack(spool, 7)
    spool.compact()
    for _ in range(3):
        spool.emit("BLOCK_START", {})
    disk.before_sync = spool.writer.step  # the writer commits to the old file while the copy is being synced
    spool.maintainer.step()
    assert spool.spooled_sequence == 13
    spool.writer.step()
    assert spool.metrics().compactions == 1
    assert sequences(stored_bytes(tmp_path).splitlines()) == [8, 9, 10, 11, 12, 13]
    spool.close()


@pytest.mark.rule("SP-RET-002")
def test_no_second_copy_is_begun_while_the_first_takes_its_place(tmp_path: Path) -> None:
    disk = InterferingDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 10)
    store_ack(spool, 7)
    store_ack(spool, 8)
    spool.compact()
    spool.maintainer.step()
    spool.compact()
    disk.before_rename = spool.maintainer.step
    spool.writer.step()
    assert sequences(stored_bytes(tmp_path).splitlines()) == [9, 10]
    emit_spooled(spool, 1)
    assert replay_sequences(spool, 8) == [9, 10, 11]
    spool.close()


@pytest.mark.rule("SP-RET-002")
@pytest.mark.parametrize("verb", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_compaction_that_fails_at_any_step_loses_nothing(tmp_path: Path, verb: str) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 10)
    store_ack(spool, 7)
    disk.faults.append(Fault(verb))
    spool.compact()
    spool.step()
    assert not disk.faults
    assert replay_sequences(spool, 7) == [8, 9, 10]
    emit_spooled(spool, 3)
    assert replay_sequences(spool, 7) == [8, 9, 10, 11, 12, 13]
    spool.close()
    again = open_spool(tmp_path)
    assert replay_sequences(again, 7) == [8, 9, 10, 11, 12, 13]
    assert not list(channel_folder(tmp_path).glob("*.tmp"))
    again.close()


@pytest.mark.rule("SP-RET-002")
def test_compaction_does_not_forget_that_the_session_was_final(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 5)
    emit_spooled(spool, 1, "BLOCK_FENCE")
    assert spool.close(final=True) is None
    again = open_spool(tmp_path)
    store_ack(again, 4)
    run_compaction(again)
    again.close()
    third = open_spool(tmp_path)
    assert replay_sequences(third, 4) == [5, 6]
    check_refused(third.emit("BLOCK_START", {}), "SessionFinished")
    third.close()


# ------------------------------------------------------------------------------------------------ deletion


def session_status(root: Path, session: str = SESSION) -> channel.SessionStatus:
    return channel.read_status(RealDisk(), SessionPaths(channel_folder(root), CHANNEL, session))


def reclaim_sessions(root: Path) -> int:
    return channel.reclaim(RealDisk(), channel_folder(root), NOW_MS, except_session="")


@layouts
@pytest.mark.rule("SP-RET-001")
@pytest.mark.parametrize("last_type", ["BLOCK_FENCE", "CHANNEL_TERMINATED", "BLOCK_START"])
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("ack", [5, 6])
def test_a_session_goes_only_when_it_is_final_and_its_last_record_is_acked(
    tmp_path: Path, segment_bytes: int | None, last_type: str, final: bool, ack: int
) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes, disk=UnsyncedDisk())
    emit_spooled(spool, 5)
    emit_spooled(spool, 1, last_type)
    store_ack(spool, ack)
    told = spool.close(final=final)
    assert isinstance(told, Refused) == (final and last_type == "BLOCK_START")
    is_final = last_type == "CHANNEL_TERMINATED" or (final and last_type == "BLOCK_FENCE")
    assert session_status(tmp_path).is_finished == is_final
    assert reclaim_sessions(tmp_path) == int(is_final and ack == 6)
    left = sorted(path.name for path in channel_folder(tmp_path).iterdir())
    assert (left == []) == (is_final and ack == 6)


@pytest.mark.rule("SP-RET-001")
def test_a_session_that_somebody_has_open_is_not_deleted(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 1, "CHANNEL_TERMINATED")
    store_ack(spool, 1)
    assert reclaim_sessions(tmp_path) == 0
    spool.close()
    assert reclaim_sessions(tmp_path) == 1


@pytest.mark.rule("SP-RET-001")
def test_a_finished_session_is_deleted_when_the_next_one_is_begun(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 1, "BLOCK_FENCE")
    store_ack(spool, 1)
    spool.close(final=True)
    open_spool(tmp_path, "PS-2").close()
    assert spool_files(tmp_path) == []
    assert channel.list_sessions(RealDisk(), channel_folder(tmp_path)) == ["PS-2"]


@pytest.mark.rule("SP-RET-001")
def test_a_deletion_that_was_interrupted_anywhere_is_finished_later(tmp_path: Path) -> None:
    for call in range(1, 20):
        spool = open_spool(tmp_path, segment_bytes=1_000)
        emit_spooled(spool, 9)
        emit_spooled(spool, 1, "CHANNEL_TERMINATED")
        spool.close()
        spool = open_spool(tmp_path, segment_bytes=1_000)
        spool._log.drop_first = lambda: None  # type: ignore[method-assign]
        (channel_folder(tmp_path) / ACK).write_text("acked_sequence=10\nupdated_utc=2026-02-13T10:00:00Z\n")
        spool.close()
        disk = FaultyDisk(Fault("unlink", call=call))
        try:
            channel.reclaim(disk, channel_folder(tmp_path), NOW_MS, except_session="")
        except OSError:
            assert session_status(tmp_path).is_finished
            assert reclaim_sessions(tmp_path) == 1
        assert list(channel_folder(tmp_path).iterdir()) == []
        if disk.faults:
            assert call > 5
            return
    raise AssertionError("the deletion has more steps than the test")


# ------------------------------------------------------------------------------------------------ the cap


def fill_to_cap(spool: Spool) -> tuple[list[int], Refused]:
    """Emit until refused."""
    got: list[int] = []
    while True:
        answer = spool.emit("BLOCK_START", {"block_id": "b"})
        if isinstance(answer, Refused):
            return got, answer
        got.append(answer.sequence)
        spool.writer.step()


def used_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in channel_folder(root).iterdir())


@layouts
@pytest.mark.rule("SP-RET-003")
def test_at_the_cap_nothing_is_dropped_the_end_is_recorded_and_emits_are_refused_until_well_below(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    spool = open_spool(tmp_path, policy=small_policy(), segment_bytes=segment_bytes)
    accepted, no = fill_to_cap(spool)
    assert (no.rule, no.name) == ("SP-RET-003", "SpoolFull")
    assert used_bytes(tmp_path) <= 20_000
    assert len(accepted) > 30
    spool.step()  # the maintainer finds nothing to reclaim and ends the channel
    spool.step()
    lines = list(spool.replay(0))
    assert sequences(lines) == [*accepted, len(accepted) + 1]
    last = json.loads(lines[-1])
    assert (last["payload_type"], last["payload"]["reason"]) == ("CHANNEL_TERMINATED", "EVIDENCE_SPOOL_FULL")
    assert used_bytes(tmp_path) <= 20_000
    check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    check_refused(Spool.open(CHANNEL, "PS-2", root=tmp_path, policy=small_policy()), "SpoolFull")
    store_ack(spool, spool.spooled_sequence)
    for _ in range(4):
        spool.step()
    assert used_bytes(tmp_path) < 18_000
    (ticket,) = emit_spooled(spool, 1)
    assert ticket.sequence == len(accepted) + 2
    open_spool(tmp_path, "PS-2", policy=small_policy()).close()
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_a_full_channel_accepts_records_again_below_the_low_water_mark_and_not_before(tmp_path: Path) -> None:
    policy = small_policy(reserve_bytes=500)
    spool = open_spool(tmp_path, policy=policy, segment_bytes=1_000)
    fill_to_cap(spool)
    spool.step()
    spool.step()
    refusals = 0
    for ack in range(1, spool.spooled_sequence):
        store_ack(spool, ack)
        is_below = used_bytes(tmp_path) < 18_000 + 500  # the reserve is back as soon as it is below
        answer = spool.emit("BLOCK_START", {})
        assert isinstance(answer, Ticket) == is_below, (ack, used_bytes(tmp_path))
        if is_below:
            break
        refusals += 1
    assert refusals > 4  # two segments of three went, and it was not enough yet
    assert not (channel_folder(tmp_path) / "channel.full").exists()
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_the_cap_is_checked_before_a_sequence_is_given_out(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, policy=small_policy())
    accepted, _ = fill_to_cap(spool)
    large = spool.emit("BLOCK_START", {"x": "y" * 1_000})
    check_refused(large, "SpoolFull")
    spool.step()
    spool.step()
    assert replay_sequences(spool) == [*accepted, len(accepted) + 1]
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_what_waits_in_memory_counts_too(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, policy=small_policy())
    count = 0
    while not isinstance(spool.emit("BLOCK_START", {}), Refused):
        count += 1
    assert used_bytes(tmp_path) < 3_000  # nothing is written yet
    while spool.writer.step():
        pass
    assert 10_000 < used_bytes(tmp_path) <= 20_000
    assert replay_sequences(spool) == list(range(1, count + 1))
    spool.close()


@layouts
@pytest.mark.rule("SP-RET-003")
def test_first_what_is_acked_is_reclaimed_and_the_channel_goes_on(tmp_path: Path, segment_bytes: int | None) -> None:
    old = open_spool(tmp_path, "PS-0", policy=small_policy())
    for _ in range(30):
        emit_spooled(old, 1)
    emit_spooled(old, 1, "BLOCK_FENCE")
    old.close(final=True)
    spool = open_spool(tmp_path, policy=small_policy(), segment_bytes=segment_bytes)
    accepted, _ = fill_to_cap(spool)
    (channel_folder(tmp_path) / "PS-0.ack").write_text("acked_sequence=31\nupdated_utc=2026-02-13T10:00:00Z\n")
    spool.step()
    spool.step()
    assert spool_files(tmp_path, "PS-0") == []
    (ticket,) = emit_spooled(spool, 1)
    assert ticket.sequence == len(accepted) + 1
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_a_new_session_is_refused_at_the_cap_and_begun_below_the_low_water_mark(tmp_path: Path) -> None:
    channel_folder(tmp_path).mkdir()
    ballast, policy = channel_folder(tmp_path) / "ballast", small_policy()

    def answer(size: int, *, is_full: bool) -> Spool | Refused:
        ballast.write_bytes(bytes(size))
        (channel_folder(tmp_path) / "channel.full").unlink(missing_ok=True)
        if is_full:
            (channel_folder(tmp_path) / "channel.full").touch()
        return Spool.open(CHANNEL, SESSION, root=tmp_path, policy=policy, threads=False)

    check_refused(answer(18_001, is_full=False), "SpoolFull")
    check_refused(answer(18_000, is_full=True), "SpoolFull")
    for size, is_full in ((18_000, False), (17_999, True)):
        spool = answer(size, is_full=is_full)
        assert isinstance(spool, Spool)
        spool.close()
        for path in spool_files(tmp_path):
            path.unlink()


@pytest.mark.rule("SP-RET-003")
def test_the_reserve_is_a_real_file_while_a_session_is_open(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, policy=small_policy())
    assert (channel_folder(tmp_path) / f"{SESSION}.reserve").stat().st_blocks * 512 >= 2_000
    spool.close()
    assert not (channel_folder(tmp_path) / f"{SESSION}.reserve").exists()


# ------------------------------------------------------------------------------------------------ the lock

SECOND = """
import sys
from holdfast.spool import Spool
print(Spool.open(sys.argv[1], sys.argv[2], root=sys.argv[3]))
"""


@pytest.mark.rule("SP-007")
def test_a_second_opener_is_refused_in_this_process_and_in_another(tmp_path: Path) -> None:
    def elsewhere() -> str:
        command = [sys.executable, "-c", SECOND, CHANNEL, SESSION, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    spool = open_spool(tmp_path)
    check_refused(Spool.open(CHANNEL, SESSION, root=tmp_path), "SessionLocked")
    assert elsewhere().startswith("SP-007: session PS-20260213-classic-1-0001 of channel classic-1 is open in another")
    emit_spooled(spool, 1)
    open_spool(tmp_path, "PS-2").close()
    spool.close()
    assert "Spool object" in elsewhere()
    again = open_spool(tmp_path)
    assert replay_sequences(again) == [1]
    again.close()
