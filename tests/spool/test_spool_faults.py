"""A disk that says no: a failed sync is never asked again, nothing confirmed is lost, nothing fails in silence."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from tests.spool.spools import (
    CHANNEL,
    SESSION,
    Fault,
    FaultyDisk,
    channel_folder,
    check_refused,
    emit_spooled,
    layouts,
    open_spool,
    replay_sequences,
    spool_files,
    store_ack,
)

from holdfast.spool import Spool, Ticket, Unavailable, channel
from holdfast.spool import maintainer as keeping
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.record_queue import PIECE_LINES

SPOOL = ".spool.jsonl"


@layouts
@pytest.mark.rule("SP-CRASH-003", "SP-003")
def test_a_commit_that_fails_in_its_middle_is_written_to_a_new_file_as_a_whole(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    disk, count = FaultyDisk(), 2 * PIECE_LINES + 1
    spool = open_spool(tmp_path, disk=disk, segment_bytes=segment_bytes and 1 << 20)
    for _ in range(count):
        spool.emit("BLOCK_START", {})
    disk.faults += [Fault("write", 2, where=SPOOL)]
    spool.step()
    assert spool.metrics().failures == 1
    assert replay_sequences(spool) == list(range(1, count + 1))
    spool.close()


@layouts
@pytest.mark.rule("SP-CRASH-003")
@pytest.mark.parametrize("verb", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_write_or_sync_the_records_go_into_a_new_segment_and_the_file_is_left(
    tmp_path: Path, segment_bytes: int | None, verb: str, code: int
) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk, segment_bytes=segment_bytes)
    emit_spooled(spool, 2)
    failed = spool_files(tmp_path)[-1]
    disk.faults.append(Fault(verb, code=code, where=SPOOL))
    disk.calls.clear()
    emit_spooled(spool, 3)
    about = [call for call in disk.calls if call[1] == failed.name]
    assert about == ([("write", failed.name)] if verb == "write" else [("write", failed.name), ("sync", failed.name)])
    assert f"{SESSION}@{3:020d}{SPOOL}" in [path.name for path in spool_files(tmp_path)]
    assert ("sync_folder", CHANNEL) in disk.calls
    emit_spooled(spool, 2)
    assert replay_sequences(spool) == [1, 2, 3, 4, 5, 6, 7]
    assert spool.metrics().failures == 1
    spool.close()
    again = open_spool(tmp_path)
    assert replay_sequences(again) == [1, 2, 3, 4, 5, 6, 7]
    again.close()


@layouts
@pytest.mark.rule("SP-CRASH-003")
def test_a_disk_that_goes_on_failing_ends_the_session_loudly_and_keeps_what_was_spooled(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk, segment_bytes=segment_bytes)
    emit_spooled(spool, 2)
    disk.faults.append(Fault("sync", times=1_000, where=SPOOL))
    ticket = spool.emit("BLOCK_START", {})
    assert isinstance(ticket, Ticket)
    spool.step()
    with pytest.raises(Unavailable, match="SP-CRASH-003"):
        ticket.wait(0)
    assert check_refused(spool.emit("BLOCK_START", {}), "SessionEnded").rule == "SP-CRASH-003"
    assert spool.spooled_sequence == 2
    assert replay_sequences(spool) == [1, 2]
    with pytest.raises(Unavailable, match="SP-CRASH-003"):
        spool.close()
    disk.faults.clear()
    again = open_spool(tmp_path)
    assert replay_sequences(again)[:2] == [1, 2]
    emit_spooled(again, 1)
    again.close()


@pytest.mark.rule("SP-CRASH-003")
def test_a_waiting_task_is_notified_of_the_end_too(tmp_path: Path) -> None:
    import asyncio

    disk = FaultyDisk()
    spool = Spool.open(CHANNEL, SESSION, root=tmp_path, disk=disk)
    assert isinstance(spool, Spool)
    disk.faults.append(Fault("sync", times=1_000, where=SPOOL))

    async def wait() -> None:
        ticket = spool.emit("BLOCK_START", {})
        assert isinstance(ticket, Ticket)
        await ticket

    with pytest.raises(Unavailable, match="SP-CRASH-003"):
        asyncio.run(wait())
    with pytest.raises(Unavailable):
        spool.close()


@layouts
@pytest.mark.rule("SP-RET-003")
def test_a_full_disk_gets_its_last_record_from_the_reserve(tmp_path: Path, segment_bytes: int | None) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk, segment_bytes=segment_bytes)
    emit_spooled(spool, 2)
    disk.faults.append(Fault("write", times=2, code=errno.ENOSPC, where=SPOOL))
    disk.free_left = 0
    emit_spooled(spool, 2)
    assert ("unlink", f"{SESSION}.reserve") in disk.calls
    spool.step()
    assert b"EVIDENCE_SPOOL_FULL" in list(spool.replay(0))[-1]
    assert replay_sequences(spool) == [1, 2, 3, 4, 5]
    check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    disk.free_left = None
    spool.step()
    emit_spooled(spool, 1)
    spool.close()


@layouts
@pytest.mark.parametrize("verb", ["create", "write", "preallocate", "sync", "sync_folder"])
def test_a_disk_that_fails_at_any_step_of_opening_is_reported_and_leaves_nothing_locked(
    tmp_path: Path, segment_bytes: int | None, verb: str
) -> None:
    for call in range(1, 9):
        disk = FaultyDisk(Fault(verb, call=call))
        try:
            spool = Spool.open(CHANNEL, SESSION, root=tmp_path, disk=disk, segment_bytes=segment_bytes, threads=False)
            assert isinstance(spool, Spool)
            spool.close()
        except Unavailable:
            assert not disk.faults
        spool = open_spool(tmp_path, segment_bytes=segment_bytes)
        emit_spooled(spool, 1)
        spool.close()
        if disk.faults:
            break
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    assert replay_sequences(spool) == list(range(1, spool.spooled_sequence + 1))
    spool.close()


@pytest.mark.rule("SP-CRASH-003")
def test_what_a_failed_file_holds_beyond_its_successors_first_record_does_not_count(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 2)
    disk.faults.append(Fault("sync", where=SPOOL))
    emit_spooled(spool, 3)  # written to the plain file, not synced; written again to the segment
    assert spool_files(tmp_path)[0].read_bytes().count(b"\n") == 5
    emit_spooled(spool, 1)
    spool.close()
    again = open_spool(tmp_path)
    assert replay_sequences(again) == [1, 2, 3, 4, 5, 6]
    assert next(again.replay(2)) in spool_files(tmp_path)[1].read_bytes()
    again.close()
    assert not list(channel_folder(tmp_path).glob("*.quarantine"))


@pytest.mark.rule("SP-RET-002")
def test_what_follows_a_failed_file_is_deleted_when_it_was_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "COMPACT_BYTES", 1_000)
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 2)
    disk.faults.append(Fault("sync", where=SPOOL))
    for last in range(12, 102, 10):
        emit_spooled(spool, 10)
        store_ack(spool, last - 3)
        assert replay_sequences(spool, last - 3) == [last - 2, last - 1, last]
    assert len(spool_files(tmp_path)) < 4
    assert sum(path.stat().st_size for path in spool_files(tmp_path)) < 10_000
    spool.close()


@pytest.mark.rule("SP-002")
def test_in_mode_os_a_file_is_synced_before_the_next_segment_is_begun(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk, mode="os", segment_bytes=1_000)
    emit_spooled(spool, 7)
    before, after = spool_files(tmp_path)[:2]
    assert ("sync", before.name) in disk.calls[: disk.calls.index(("create", after.name))]
    record = json.loads(after.read_bytes().splitlines()[0])
    assert record["durable"] == record["sequence"] - 1 == before.read_bytes().count(b"\n")
    spool.close()


@pytest.mark.rule("SP-007")
def test_an_opening_that_failed_after_its_lock_keeps_the_session_unlocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(handle: int, path: Path) -> bool:
        raise OSError(errno.EIO, "the disk says no", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.system.durable_files._has_name", failing)
        with pytest.raises(Unavailable):
            Spool.open(CHANNEL, SESSION, root=tmp_path, threads=False)
    open_spool(tmp_path).close()


@pytest.mark.rule("SP-RET-002", "SP-RET-001")
@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_segment_that_was_begun_after_a_fault_keeps_the_record_that_ends_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reopened: bool
) -> None:
    monkeypatch.setattr(keeping, "COMPACT_BYTES", 1_000)
    disk = FaultyDisk(Fault("sync", call=3, where=SPOOL))
    spool = open_spool(tmp_path, disk=disk)
    for _ in range(3):
        emit_spooled(spool, 8)
    emit_spooled(spool, 1, "CHANNEL_TERMINATED", reason="END")
    if is_reopened:
        spool.close()
        spool = open_spool(tmp_path)
    store_ack(spool, 25)
    spool.step()
    spool.close()
    found = channel.read_status(RealDisk(), SessionPaths(channel_folder(tmp_path), CHANNEL, SESSION))
    assert (found.is_finished, found.is_reclaimable, found.last, found.acked) == (True, True, 25, 25)


@pytest.mark.rule("SP-RET-002")
def test_a_compaction_that_is_done_stays_done_while_an_older_one_is_reported(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 20)
    store_ack(spool, 10)
    spool.compact()
    spool.maintainer.step()  # there is a copy, and the writer has not installed it
    assert spool.writer.compacted_copy is not None
    tell, later = spool.writer.on_copy_done, list[Ticket]()

    def between() -> None:
        """The maintainer's thread takes a step before the writer has reported the first one."""
        later.append(spool.compact())
        spool.maintainer.step()
        assert later[0].is_durable
        tell()

    spool.writer.on_copy_done = between
    spool.writer.step()
    assert later[0].is_durable
    spool.close()


def test_a_compaction_that_is_requested_while_a_copy_waits_is_not_forgotten(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 20)
    store_ack(spool, 10)
    spool.compact()
    spool.maintainer.step()
    assert spool.writer.compacted_copy is not None
    later = spool.compact()
    wakeup = spool._outbox.maintainer_wakeup
    wakeup.wait(0)  # the maintainer's thread wakes up, and cannot begin beside the copy
    spool.maintainer.step()
    assert not spool.maintainer.has_work()
    spool.writer.step()
    assert not wakeup._queue.empty()
    spool.maintainer.step()
    assert later.is_durable
    spool.close()


@pytest.mark.rule("SP-RET-003", "SP-CRASH-001")
def test_on_a_full_disk_an_old_session_is_delivered_and_takes_records_when_there_is_room(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    emit_spooled(spool, 5)
    spool.close()
    disk = FaultyDisk(Fault("preallocate", times=2, code=errno.ENOSPC, where=".reserve"))
    disk.free_left = 1_000
    again = open_spool(tmp_path, disk=disk)
    assert replay_sequences(again) == [1, 2, 3, 4, 5]
    check_refused(again.emit("BLOCK_START", {}), "SpoolFull")
    store_ack(again, 5)
    check_refused(again.emit("BLOCK_START", {}), "SpoolFull")
    disk.free_left = None
    again.step()  # there seems to be room, and there is none
    check_refused(again.emit("BLOCK_START", {}), "SpoolFull")
    again.step()
    assert (channel_folder(tmp_path) / f"{SESSION}.reserve").stat().st_size == 64 << 10
    emit_spooled(again, 1)
    assert replay_sequences(again, 5) == [6]
    again.close()
