"""One record on one line: its shape, its CRC, and that no damage to it goes unseen."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.spool.spools import CHANNEL, NOW_MS, SESSION, emit_spooled, layouts, open_spool, stored_bytes, v01_line

from holdfast.spool.files import record
from holdfast.spool.files.record import Encoder, RecordSummary

FIELDS = [
    "schema_version",
    "channel_id",
    "playout_session_id",
    "sequence",
    "event_uuid",
    "emitted_utc",
    "payload_type",
    "payload",
]
HEAD = record.line_head(CHANNEL, SESSION)


def line_of(sequence: int, payload: bytes = b'{"block_id":"b"}', durable: int | None = None) -> bytes:
    """A line of ours without its end."""
    body = Encoder(CHANNEL, SESSION, bytes(16)).body(sequence, NOW_MS, '"BLOCK_START"', payload)
    return record.seal_line(body if durable is None else body + record.durable_field(durable))[:-1]


def is_accepted(line: bytes, sequence: int) -> bool:
    seen = record.parse(line, CHANNEL, SESSION)
    return isinstance(seen, RecordSummary) and seen.sequence == sequence


@layouts
@pytest.mark.rule("SP-006")
def test_a_record_has_the_sources_fields_in_order_then_the_durable_field_then_the_crc(
    tmp_path: Path, segment_bytes: int | None
) -> None:
    spool = open_spool(tmp_path, segment_bytes=segment_bytes)
    emit_spooled(spool, 3, swap_tick=2**63)
    spool.close()
    lines = stored_bytes(tmp_path).splitlines(keepends=True)
    fields = [list(json.loads(line)) for line in lines]
    assert fields == [[*FIELDS, "durable", "crc32c"], [*FIELDS, "crc32c"], [*FIELDS, "crc32c"]]
    for line in lines:
        body, comma, tail = line.rpartition(b',"crc32c":')
        assert comma
        assert tail == b'"%08x"}\n' % crc32c(body)
    first = json.loads(lines[0])
    assert (first["schema_version"], first["channel_id"], first["playout_session_id"]) == (1, CHANNEL, SESSION)
    assert (first["sequence"], first["payload_type"], first["durable"]) == (1, "BLOCK_START", 0)
    assert first["payload"] == {"block_id": "b-0", "swap_tick": 2**63}
    assert re.fullmatch(r"2026-02-13T\d\d:\d\d:\d\d\.123Z", first["emitted_utc"])
    assert uuid.UUID(first["event_uuid"]).version == 4
    assert uuid.UUID(first["event_uuid"]).variant == uuid.RFC_4122


@pytest.mark.rule("SP-006")
def test_the_first_record_of_each_commit_says_what_was_durable_by_then(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    for count in (1, 3, 2):
        emit_spooled(spool, count)
    spool.close()
    spool = open_spool(tmp_path)
    emit_spooled(spool, 2)
    spool.close()
    marks = [json.loads(line).get("durable") for line in stored_bytes(tmp_path).splitlines()]
    assert marks == [0, 1, None, None, 4, None, 6, None]


@pytest.mark.rule("SP-006")
@pytest.mark.parametrize("durable", [None, 0, 41, 2**64 - 1])
def test_every_single_bit_flip_of_a_record_is_seen(durable: int | None) -> None:
    line = line_of(42, durable=durable)
    assert is_accepted(line, 42)
    for bit in range(8 * len(line)):
        flipped = bytearray(line)
        flipped[bit // 8] ^= 1 << (bit % 8)
        # A flip that makes a line end cuts the record in two: neither part may pass.
        parts = bytes(flipped).split(b"\n")
        assert not any(isinstance(record.parse(part, CHANNEL, SESSION), RecordSummary) for part in parts), bit
        assert not record.is_expected_line(bytes(flipped), HEAD, 42), bit
        assert not record.are_expected_lines([bytes(flipped)], HEAD, 42), bit


@pytest.mark.rule("SP-006")
def test_a_record_of_ours_whose_crc_lost_a_byte_does_not_pass_for_an_old_one() -> None:
    line = line_of(42)
    for at in range(len(line) - record.CRC_FIELD_BYTES, len(line)):
        assert not is_accepted(line[:at] + line[at + 1 :], 42), at
        assert not is_accepted(line[:at] + b"x" + line[at:], 42), at
    assert not is_accepted(line[: -record.CRC_FIELD_BYTES] + b',"crc32c":null}', 42)
    assert not is_accepted(line[: -record.CRC_FIELD_BYTES] + b',"durable":7}', 42)


@pytest.mark.rule("SP-006")
def test_every_torn_record_is_seen() -> None:
    line = line_of(7)
    for cut in range(len(line)):
        assert not is_accepted(line[:cut], 7)
        assert not is_accepted(line[cut + 1 :], 7)


@pytest.mark.rule("SP-006")
@given(
    st.dictionaries(st.text(max_size=20), st.integers() | st.text(max_size=40) | st.none() | st.booleans(), max_size=6)
)
def test_what_is_written_is_read_back_whatever_the_payload(payload: dict[str, object]) -> None:
    text = record.encode(payload)
    body = Encoder(CHANNEL, SESSION, bytes(16)).body(9, NOW_MS, '"X"', text) + record.durable_field(5)
    line = record.seal_lines([body])
    assert line == record.seal_line(body)
    assert line.count(b"\n") == 1
    assert record.durable_of(line[:-1]) == 5
    assert json.loads(line)["payload"] == payload
    seen = record.parse(line[:-1], CHANNEL, SESSION)
    assert seen == RecordSummary(9, 5, True, "X", json.loads(line)["emitted_utc"])
    assert record.is_expected_line(line[:-1], HEAD, 9)


@pytest.mark.rule("SP-006")
def test_a_payload_that_ends_like_a_durable_field_is_none() -> None:
    line = line_of(3, b'{"x":{},"durable":77}')
    assert record.durable_of(line) is None
    seen = record.parse(line, CHANNEL, SESSION)
    assert isinstance(seen, RecordSummary)
    assert seen.durable is None


@pytest.mark.parametrize(("first", "count"), [(1, 8), (1, 9), (5, 5), (8, 5), (98, 2), (99, 3), (1_000, 50)])
def test_many_records_are_judged_at_once_as_they_are_one_by_one(first: int, count: int) -> None:
    lines = [line_of(first + n) for n in range(count)]
    assert record.are_expected_lines(lines, HEAD, first)
    assert not record.are_expected_lines(lines, HEAD, first + 1)
    for bad in range(count):
        assert not record.are_expected_lines([*lines[:bad], lines[bad][:-3] + b'x"}', *lines[bad + 1 :]], HEAD, first)
        assert not record.are_expected_lines([*lines[:bad], line_of(first + bad + 1), *lines[bad + 1 :]], HEAD, first)


@pytest.mark.rule("SP-006")
def test_records_without_a_crc_are_read_with_numbers_as_numbers_or_as_text() -> None:
    for text_number in (False, True):
        seen = record.parse(v01_line(12, text_number=text_number)[:-1], CHANNEL, SESSION)
        assert isinstance(seen, RecordSummary)
        assert (seen.sequence, seen.durable, seen.has_crc) == (12, None, False)


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": "x"},
        {"sequence": 0},
        {"sequence": -1},
        {"sequence": 2**64},
        {"sequence": 1.5},
        {"sequence": "٣"},
        {"payload": []},
        {"payload": None},
        {"channel_id": "other"},
        {"playout_session_id": "other"},
        {"event_uuid": 5},
        {"schema_version": "1"},
    ],
)
def test_a_line_that_is_json_but_not_a_record_of_this_session_is_none(change: dict[str, object]) -> None:
    good = json.loads(v01_line(12))
    assert isinstance(record.parse(json.dumps(good).encode(), CHANNEL, SESSION), RecordSummary)
    assert isinstance(record.parse(json.dumps(good | change).encode(), CHANNEL, SESSION), str)
    for field in FIELDS:
        missing = {key: value for key, value in good.items() if key != field}
        assert isinstance(record.parse(json.dumps(missing).encode(), CHANNEL, SESSION), str)
