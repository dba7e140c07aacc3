"""After a crash or damage: what is torn is set aside, what is damaged is left alone and named, nothing is made up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.counts import counts
from tests.spool.spools import (
    CHANNEL,
    SESSION,
    FaultyDisk,
    UnsyncedDisk,
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

from holdfast.spool import Corrupt, Spool, undelivered_sessions
from holdfast.spool.files.disk import Handle, RealDisk
from holdfast.spool.files.session_markers import write_released


def plain_file(root: Path) -> Path:
    return channel_folder(root) / f"{SESSION}.spool.jsonl"


def lay_file(root: Path, raw: bytes, ack: int = 0) -> None:
    """A plain file with these bytes, and an ack."""
    channel_folder(root).mkdir(parents=True, exist_ok=True)
    for path in channel_folder(root).iterdir():
        path.unlink()
    plain_file(root).write_bytes(raw)
    (channel_folder(root) / f"{SESSION}.lock").touch()
    if ack:
        (channel_folder(root) / f"{SESSION}.ack").write_text(
            f"acked_sequence={ack}\nupdated_utc=2026-02-13T10:00:00Z\n"
        )


def quarantine_files(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(channel_folder(root).glob("*.quarantine")))


def write_commits(root: Path, commits: list[int], **options: Any) -> list[bytes]:
    """The lines of a spool with commits of these sizes."""
    spool = open_spool(root, **options)
    for count in commits:
        emit_spooled(spool, count)
    spool.close()
    return stored_bytes(root).splitlines(keepends=True)


@layouts
@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.parametrize("window", [1, 1 << 18])
def test_a_spool_torn_at_any_byte_of_its_last_commit_goes_on_after_the_last_whole_record(
    tmp_path: Path, segment_bytes: int | None, window: int
) -> None:
    write_commits(tmp_path, [2, 2], segment_bytes=segment_bytes)
    path = spool_files(tmp_path)[-1]
    raw, others = path.read_bytes().rstrip(b"\0"), len(stored_bytes(tmp_path).splitlines())
    whole_before = others - raw.count(b"\n")
    begin = raw.rfind(b"\n", 0, raw.rindex(b'"durable":')) + 1  # the first record of the last commit has a mark
    for cut in range(begin, len(raw) + 1):
        for stale in channel_folder(tmp_path).glob("*.quarantine"):
            stale.unlink()
        path.write_bytes(raw[:cut])
        kept = whole_before + raw[:cut].count(b"\n")
        spool = open_spool(tmp_path, segment_bytes=segment_bytes, window=window, disk=UnsyncedDisk())
        assert not spool.damage
        assert replay_sequences(spool) == list(range(1, kept + 1))
        assert [ticket.sequence for ticket in emit_spooled(spool, 2)] == [kept + 1, kept + 2]
        assert replay_sequences(spool) == list(range(1, kept + 3))
        spool.close()
        assert quarantine_files(tmp_path) == raw[:cut][raw[:cut].rfind(b"\n") + 1 :]
        for newer in spool_files(tmp_path):
            if newer.name > path.name:
                newer.unlink()


@pytest.mark.rule("SP-CRASH-002")
def test_a_plain_spool_cut_at_any_byte_is_torn_above_the_ack_and_damaged_below_it(tmp_path: Path) -> None:
    lines = write_commits(tmp_path, [1, 1, 1, 1])
    raw = b"".join(lines)
    for cut in range(len(raw)):
        kept = raw[:cut].count(b"\n")
        for ack in (kept, kept + 1):
            lay_file(tmp_path, raw[:cut], ack)
            spool = open_spool(tmp_path, disk=UnsyncedDisk())
            if ack == kept:
                assert not spool.damage
                (ticket,) = emit_spooled(spool, 1)
                assert ticket.sequence == kept + 1
            else:  # SP-LOSS-001: also where it was cut between two records
                assert f"record {kept + 1} is" in spool.damage
                check_refused(spool.emit("BLOCK_START", {}), "SessionDamaged")
                assert stored_bytes(tmp_path) == raw[:cut]
            spool.close()


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.parametrize("fill", [b"\0" * 300, b"\0" * 5_000, b"\xff" * 10, b"garbage\n", b"\n", b"{}\n{}\n"])
def test_bytes_that_are_no_records_behind_the_last_one_are_set_aside(tmp_path: Path, fill: bytes) -> None:
    lines = write_commits(tmp_path, [2, 2])
    lay_file(tmp_path, b"".join(lines) + fill)
    spool = open_spool(tmp_path)
    assert not spool.damage
    assert plain_file(tmp_path).read_bytes() == b"".join(lines)
    assert quarantine_files(tmp_path) == fill.rstrip(b"\0")
    assert spool.metrics().quarantined_records >= 1
    emit_spooled(spool, 1)
    assert replay_sequences(spool) == [1, 2, 3, 4, 5]
    spool.close()


@pytest.mark.rule("SP-CRASH-002")
def test_a_last_commit_whose_parts_came_in_another_order_is_set_aside_as_a_whole(tmp_path: Path) -> None:
    lines = write_commits(tmp_path, [2, 4])
    lay_file(tmp_path, b"".join([*lines[:2], b"\0" * len(lines[2]), *lines[3:]]))
    spool = open_spool(tmp_path)
    assert not spool.damage
    assert replay_sequences(spool) == [1, 2]
    assert [ticket.sequence for ticket in emit_spooled(spool, 1)] == [3]
    spool.close()
    assert quarantine_files(tmp_path) == b"\0" * len(lines[2]) + b"".join(lines[3:])


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.parametrize("bad", range(5))
@pytest.mark.parametrize("window", [1, 300, 1 << 18])
def test_a_bad_record_below_the_durable_watermark_is_damage_nothing_moves_and_replay_stops_before_it(
    tmp_path: Path, bad: int, window: int
) -> None:
    lines = write_commits(tmp_path, [2, 3, 2])
    raw = b"".join([*lines[:bad], lines[bad].replace(b"b-", b"c-"), *lines[bad + 1 :]])
    lay_file(tmp_path, raw)
    spool = open_spool(tmp_path, window=window)
    with pytest.raises(Corrupt, match=f"SP-CRASH-002: record {bad + 1} is damaged"):
        list(spool.replay(0))
    assert replay_until_hole(spool) == list(range(1, bad + 1))
    assert f"record {bad + 1} is damaged" in spool.damage
    check_refused(spool.emit("BLOCK_START", {}), "SessionDamaged")
    spool.close()
    assert plain_file(tmp_path).read_bytes() == raw
    assert quarantine_files(tmp_path) == b""


@pytest.mark.rule("SP-CRASH-002")
def test_missing_records_in_the_middle_are_named_with_their_range_until_an_operator_releases_them(
    tmp_path: Path,
) -> None:
    lines = write_commits(tmp_path, [2] * 5)
    lay_file(tmp_path, b"".join(lines[:3] + lines[6:]))
    spool = open_spool(tmp_path)
    assert "records 4 to 6 are" in spool.damage
    with pytest.raises(Corrupt, match="records 4 to 6 are damaged or missing"):
        list(spool.replay(0))
    assert replay_until_hole(spool) == [1, 2, 3]
    write_released(RealDisk(), spool._log.paths, [(4, 5)], 0)
    assert replay_until_hole(spool) == [1, 2, 3]
    write_released(RealDisk(), spool._log.paths, [(4, 6)], 0)
    assert replay_sequences(spool) == [1, 2, 3, 7, 8, 9, 10]
    check_refused(spool.emit("BLOCK_START", {}), "SessionDamaged")
    spool.close()
    other = open_spool(tmp_path, "PS-2")
    emit_spooled(other, 1)  # new evidence goes to a new session
    other.close()


def replay_until_hole(spool: Spool) -> list[int]:
    """What comes before the hole, which must be told."""
    got: list[int] = []
    with pytest.raises(Corrupt):
        got.extend(json.loads(line)["sequence"] for line in spool.replay(0))
    return got


@pytest.mark.rule("SP-CRASH-002")
def test_an_old_senders_file_has_a_torn_tail_only_where_nothing_valid_follows(tmp_path: Path) -> None:
    lines = [v01_line(n) for n in range(1, 6)]
    lay_file(tmp_path, b"".join(lines) + lines[0][:50])
    adopt_session(tmp_path)
    spool = open_spool(tmp_path)
    assert not spool.damage
    assert replay_sequences(spool) == [1, 2, 3, 4, 5]
    spool.close()
    merged = lines[3][:40] + lines[4]
    lay_file(tmp_path, b"".join(lines[:3]) + merged + v01_line(6))
    adopt_session(tmp_path)
    spool = open_spool(tmp_path)
    assert "records 4 to 5 are" in spool.damage
    assert replay_until_hole(spool) == [1, 2, 3]
    spool.close()


@pytest.mark.rule("SP-006")
@pytest.mark.parametrize("window", [1, 1 << 18])
def test_behind_a_record_with_a_crc_one_without_is_damage(tmp_path: Path, window: int) -> None:
    lines = write_commits(tmp_path, [1, 1, 1, 1])
    lay_file(tmp_path, b"".join([*lines[:2], v01_line(3), lines[3]]))
    spool = open_spool(tmp_path, window=window)
    assert replay_until_hole(spool) == [1, 2]
    assert "record 3 is damaged" in spool.damage
    spool.close()


@layouts
@pytest.mark.rule("SP-ACK-001")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 40,
        b"acked_sequence=\n",
        b"acked_sequence=-1\n",
        b"acked_sequence=x\n",
        b"acked_sequence=3\nacked_sequence=4\n",
        b"acked_sequence=99999999999999999999\n",
        b"\xff",
    ],
)
def test_an_ack_that_cannot_be_read_counts_as_none(tmp_path: Path, segment_bytes: int | None, raw: bytes) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 5)
    store_ack(spool, 4)
    spool.close()
    (channel_folder(tmp_path) / f"{SESSION}.ack").write_bytes(raw)
    first = 1 if segment_bytes != 1_000 else 4  # what was dropped was acked once
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    assert spool.acked_sequence == first - 1
    assert sequences(spool.replay()) == list(range(first, 6))
    spool.close()


@pytest.mark.rule("SP-CRASH-002")
def test_randomly_damaged_spools_all_open_and_report(tmp_path: Path) -> None:
    """Whatever happens to the bytes: it opens, every record it gives was written so, and what it lacks is told."""
    lines = write_commits(tmp_path, [1, 4, 2, 5, 3])
    raw, known = b"".join(lines), {line[:-1] for line in lines}
    dice = random.Random(20260213)
    for _ in range(counts(500, 10_000)):
        damaged = damage(raw, dice)
        lay_file(tmp_path, damaged, ack=dice.choice([0, 0, 3, 15]))
        spool = open_spool(tmp_path, window=dice.choice([1, 200, 1 << 18]), disk=UnsyncedDisk())
        is_damaged_at_once, got, hole = bool(spool.damage), list[bytes](), ""
        try:
            got.extend(spool.replay(0))
        except Corrupt as fault:
            hole = str(fault)
        assert set(got) <= known
        assert sequences(got) == list(range(1, len(got) + 1))
        left = plain_file(tmp_path).read_bytes() + quarantine_files(tmp_path)
        assert left.rstrip(b"\0") == damaged.rstrip(b"\0"), "bytes are gone"
        if len(got) < len(lines) and not hole:
            assert spool.spooled_sequence == len(got) or spool.acked_sequence == spool.spooled_sequence, "not told"
        if is_damaged_at_once:
            assert plain_file(tmp_path).read_bytes() == damaged
        if not spool.damage:
            emit_spooled(spool, 1)
        spool.close()


def damage(raw: bytes, dice: random.Random) -> bytes:
    """One or two random accidents."""
    for _ in range(dice.choice([1, 1, 2])):
        at = dice.randrange(len(raw) or 1)
        length = dice.choice([1, 5, 300, 4_096])
        kind = dice.randrange(6)
        if kind == 0:
            raw = raw[:at]
        elif kind == 1:
            raw = raw[:at] + bytes(len(raw[at : at + length])) + raw[at + length :]
        elif kind == 2:
            raw = raw[:at] + raw[at + length :]
        elif kind == 3:
            raw = raw[:at] + dice.randbytes(length) + raw[at + length :]
        elif kind == 4 and raw:
            raw = raw[:at] + bytes([raw[at] ^ (1 << dice.randrange(8))]) + raw[at + 1 :]
        else:
            raw = raw[:at] + raw[max(0, at - length) : at] + raw[at:]
    return raw


@pytest.mark.rule("SP-CRASH-003")
def test_records_that_no_durable_field_covers_are_written_again_when_a_session_is_opened(tmp_path: Path) -> None:
    """A sync that failed in an earlier process may have left them in memory only, and would not be told again."""
    write_commits(tmp_path, [2, 3])
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    assert [verb for verb, name in disk.calls if name == f"{SESSION}.spool.jsonl"] == ["write", "sync"]
    spool.close()


@pytest.mark.rule("SP-CRASH-001")
def test_opening_a_large_spool_reads_only_a_little_of_it(tmp_path: Path) -> None:
    class CountingDisk(RealDisk):
        count = 0

        def read(self, handle, offset, length):  # type: ignore[no-untyped-def]
            found = super().read(handle, offset, length)
            self.count += len(found)
            return found

    spool = open_spool(tmp_path)
    for _ in range(counts(100, 1_000)):
        emit_spooled(spool, 200)
    store_ack(spool, 77)
    spool.close()
    disk = CountingDisk()
    spool = open_spool(tmp_path, disk=disk, window=4_096)
    assert (spool.spooled_sequence, spool.acked_sequence) == (counts(20_000, 200_000), 77)
    assert json.loads(next(spool.replay()))["sequence"] == 78
    size = plain_file(tmp_path).stat().st_size
    doublings = (size // 5_000_000).bit_length()  # a search in the file: each adds a page or two
    assert disk.count < 1_470_000 + 32_768 * doublings < size
    spool.close()


@pytest.mark.rule("SP-CRASH-001")
def test_a_session_that_goes_while_one_looks_hides_no_other_one(tmp_path: Path) -> None:
    class Going(RealDisk):
        def open(self, path: Path, *, write: bool = False) -> Handle:
            if path.name.startswith("a-1.spool"):
                path.unlink(missing_ok=True)  # somebody deletes it now
            return super().open(path, write=write)

    for session in ("a-1", "b-2"):
        spool = open_spool(tmp_path, session)
        emit_spooled(spool, 2)
        spool.close()
    assert [one.paths.session for one in undelivered_sessions(tmp_path, CHANNEL, Going())] == ["b-2"]


@pytest.mark.rule("SP-CRASH-001")
def test_a_time_that_no_calendar_has_keeps_no_session_closed(tmp_path: Path) -> None:
    line = v01_line(1).replace(b"2026-02-13T10:00:00Z", b"0001-01-01T00:00:00")
    channel_folder(tmp_path).mkdir()
    (channel_folder(tmp_path) / f"{SESSION}.spool.jsonl").write_bytes(line)
    spool = open_spool(tmp_path)
    assert replay_sequences(spool) == [1]
    assert spool.metrics().oldest_unacked_age_ms == 0
    spool.close()


def test_the_session_of_one_channel_is_not_taken_for_anothers(tmp_path: Path) -> None:
    lines = write_commits(tmp_path, [2])
    lay_file(tmp_path, b"".join(lines).replace(CHANNEL.encode(), b"classic-2"))
    spool = open_spool(tmp_path)
    assert replay_sequences(spool) == []
    spool.close()
