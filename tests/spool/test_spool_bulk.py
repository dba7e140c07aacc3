"""Many records at once: judged by whole lots and by several processes, with the same verdict as one by one."""

from __future__ import annotations

import uuid
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spool.spools import (
    CHANNEL,
    NOW_MS,
    SESSION,
    channel_folder,
    emit_spooled,
    open_spool,
    replay_sequences,
    spool_files,
    v01_line,
)

from holdfast.spool.files import record
from holdfast.spool.files import verify as verifying
from holdfast.spool.files.record import Encoder
from holdfast.spool.files.recover import FileVerdict
from holdfast.spool.files.verify import FileReport, verify

HEAD = record.line_head(CHANNEL, SESSION)


def lines_from(first: int, count: int, session: str = SESSION) -> list[bytes]:
    """Lines of ours without their ends."""
    encoder = Encoder(CHANNEL, session, bytes(16))
    return [encoder.line(first + n, NOW_MS, '"BLOCK_START"', b'{"n":%d}' % n)[:-1] for n in range(count)]


@given(st.binary(max_size=40) | st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\0"])).map(b"".join))
def test_lines_are_cut_at_line_feeds_and_nowhere_else(raw: bytes) -> None:
    *lines, rest = raw.split(b"\n")
    assert record.split_lines(raw) == (lines, rest)


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.parametrize(
    ("first", "count"), [(1, 1_200), (990, 20), (1_000, 1), (1_998, 3), (9_990, 30), (12_345, 2_500), (10**12, 40)]
)
def test_a_batch_is_valid_only_if_each_of_its_records_is(first: int, count: int) -> None:
    lines = lines_from(first, count)
    assert record.are_expected_lines(lines, HEAD, first)
    assert not record.are_expected_lines(lines, HEAD, first + 1)
    assert not record.are_expected_lines(lines, HEAD, first + 1_000)
    for at in {0, count // 2, count - 1}:
        before, line, after = lines[:at], lines[at], lines[at + 1 :]
        flipped = line[:-40] + bytes([line[-40] ^ 1]) + line[-39:]
        wrong_sum = line[:-3] + (b"1" if line[-3:-2] == b"0" else b"0") + line[-2:]
        next_one, others = lines_from(first + at + 1, 1)[0], lines_from(first + at, 1, "PS-other")[0]
        for other in (flipped, wrong_sum, next_one, others, line[:-1], line[1:], b"", line.upper()):
            assert not record.are_expected_lines([*before, other, *after], HEAD, first), (at, other)


@pytest.mark.rule("SP-004")
def test_ids_count_up_and_none_comes_twice() -> None:
    encoder = Encoder(CHANNEL, SESSION, bytes(range(16)))
    lines = [encoder.line(n, NOW_MS, '"X"', b"{}") for n in range(1, 1_001)]
    ids = [uuid.UUID(line.partition(b'"event_uuid":"')[2][:36].decode()).int for line in lines]
    assert [later - earlier for earlier, later in pairwise(ids)] == [1] * 999


# ------------------------------------------------------------------------------------------------ several processes


def damage_bytes(raw: bytes, how: str) -> bytes:
    """A spool file of which something is wrong, about in its middle."""
    lines = raw.splitlines(keepends=True)
    at = len(lines) // 2
    before, line, after = lines[:at], lines[at], lines[at + 1 :]
    parts = {
        "nothing is wrong": lines,
        "a flipped bit": [*before, line[:50] + bytes([line[50] ^ 4]) + line[51:], *after],
        "a missing record": [*before, *after],
        "a record twice": [*before, line, line, *after],
        "a lost line end": [*before, line[:-1], *after],
        "zeros": [*before, bytes(len(line)), *after],
        "a torn end": [*lines[:-1], lines[-1][:-9]],
        "zeros behind the end": [*lines, bytes(5_000)],
        "old records behind ours": [*before, *[v01_line(n) for n in range(at + 1, len(lines) + 1)]],
        "no line at all": [b"x" * 50_000],
    }
    return b"".join(parts[how])


DAMAGES = (
    "nothing is wrong",
    "a flipped bit",
    "a missing record",
    "a record twice",
    "a lost line end",
    "zeros",
    "a torn end",
    "zeros behind the end",
    "old records behind ours",
    "no line at all",
)


def make_spool_file(root: Path, count: int = 300) -> Path:
    spool = open_spool(root)
    for _ in range(count // 50):
        emit_spooled(spool, 50)
    spool.close()
    return spool_files(root)[0]


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a small file is read by two processes, a few records at a time."""
    monkeypatch.setattr(verifying, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(verifying, "PIECE", 4_000)
    monkeypatch.setattr(verifying, "CHUNK", 1_000)


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.usefixtures("many_pieces")
@pytest.mark.parametrize("how", DAMAGES)
def test_two_processes_report_of_a_file_exactly_what_one_does(tmp_path: Path, how: str) -> None:
    file = make_spool_file(tmp_path)
    file.write_bytes(damage_bytes(file.read_bytes(), how))
    alone = verify(file, processes=1)
    assert verify(file, processes=2) == alone
    assert (alone.verdict is FileVerdict.WHOLE) is (how == "nothing is wrong")


@pytest.mark.rule("SP-006")
@pytest.mark.usefixtures("many_pieces")
def test_records_without_a_crc_behind_ours_are_no_records_wherever_a_piece_begins(tmp_path: Path) -> None:
    """Each piece alone would take them: records of an old sender may stand at the beginning."""
    file = make_spool_file(tmp_path)
    ours = file.read_bytes().splitlines(keepends=True)
    for kept in range(80, 120):
        old = [v01_line(n) for n in range(kept + 1, 301)]
        file.write_bytes(b"".join([*ours[:kept], *old]))
        found: FileReport = verify(file)
        assert (found.records, found.records_v01) == (kept, 0)
        assert found.first_invalid_byte == len(b"".join(ours[:kept]))


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.usefixtures("many_pieces")
def test_a_missing_record_is_named_wherever_a_piece_begins(tmp_path: Path) -> None:
    file = make_spool_file(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    for gone in range(80, 120):
        file.write_bytes(b"".join([*lines[: gone - 1], *lines[gone:]]))
        found = verify(file)
        assert (found.missing, found.records) == ([(gone, gone)], 299)
        assert found.first_invalid_byte == len(b"".join(lines[: gone - 1]))


@pytest.mark.usefixtures("many_pieces")
def test_verifying_reports_its_progress(tmp_path: Path) -> None:
    file, told = make_spool_file(tmp_path), list[tuple[int, int]]()
    verify(file, on_progress=lambda done, whole: told.append((done, whole)))
    assert len(told) > 10
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (file.stat().st_size, file.stat().st_size)


@pytest.mark.rule("SP-005")
def test_replay_of_many_batches_gives_each_record_once(tmp_path: Path) -> None:
    """Records, chunks and thousands of sequences all end in different places."""
    spool = open_spool(tmp_path)
    for _ in range(24):
        emit_spooled(spool, 100, note="x" * 90)
    assert replay_sequences(spool) == list(range(1, 2_401))
    assert replay_sequences(spool, 1_234) == list(range(1_235, 2_401))
    assert sum(path.stat().st_size for path in channel_folder(tmp_path).glob("*.jsonl")) > 2 * (1 << 18)
    spool.close()
