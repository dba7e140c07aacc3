"""The as-run log: one entry per record, by day, written once whatever was interrupted before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.world import SimulatedFiles

from holdfast.history.asrun_log import AsRunLog, day_of, entry_of, format_text

pytestmark = pytest.mark.rule("EVD-009")
NINE = int(datetime(2026, 2, 13, 9, tzinfo=UTC).timestamp() * 1000)
SOME: list[tuple[str, dict[str, Any]]] = [
    ("BLOCK_START", {"block_id": "BLK-001", "swap_tick": 0, "fence_tick": "10800", "actual_start_utc_ms": NINE}),
    ("SEGMENT_START", {"block_id": "BLK-001", "event_id": "EVT-0001", "actual_start_utc_ms": str(NINE)}),
    (
        "SEGMENT_END",
        {
            "block_id": "BLK-001",
            "event_id_ref": "EVT-0001",
            "actual_start_utc_ms": NINE,
            "actual_end_utc_ms": NINE + 1_350_000,
            "computed_duration_ms": 1_350_000,
            "computed_duration_frames": 40_500,
            "status": "AIRED",
        },
    ),
    (
        "BLOCK_FENCE",
        {"block_id": "BLK-001", "swap_tick": 10800, "fence_tick": 10800, "actual_end_utc_ms": NINE + 1_800_000},
    ),
    ("PROGRESS", {"percent": 3}),
    ("CHANNEL_TERMINATED", {"termination_utc_ms": NINE + 86_400_000, "reason": "STOPPED", "detail": "two\nlines"}),
]


def lines(*records: tuple[str, dict[str, Any]], session: str = "PS-1") -> list[bytes]:
    envelope = {"schema_version": 1, "channel_id": "classic-1", "playout_session_id": session, "event_uuid": "u"}
    return [
        msgspec.json.encode(envelope | {"sequence": sequence, "payload_type": kind, "payload": payload})
        for sequence, (kind, payload) in enumerate(records, start=1)
    ]


async def test_a_day_of_a_channel_reads_as_the_format_says() -> None:
    files = SimulatedFiles()
    assert await AsRunLog(files, "classic-1").write(lines(*SOME)) == 5
    assert sorted(files.files) == [f"2026-02-{day}.asrun{end}" for day in (13, 14) for end in ("", ".jsonl")]
    text = files.files["2026-02-13.asrun"].decode().splitlines()
    assert text[:3] == ["# RETROVUE AS-RUN LOG", "# CHANNEL: classic-1", "# DATE: 2026-02-13"]
    assert text[6].startswith(
        "09:00:00 00:00:00 START      BLOCK    BLK-001                          (block open) swap_tick=0"
    )
    assert text[8].startswith(
        "09:22:30 00:22:30 AIRED      PROGRAM  EVT-0001                         segment_index=0 ontime=Y fallback=0"
    )
    assert text[9].split()[2:5] == ["FENCE", "BLOCK", "BLK-001-FENCE"]
    ended = files.files["2026-02-14.asrun"].decode().splitlines()[-1]
    assert ended.endswith("reason=STOPPED detail=two lines")
    told = [msgspec.json.decode(line) for line in files.files["2026-02-13.asrun.jsonl"].splitlines()]
    assert [each["status"] for each in told] == ["START", "SEG_START", "AIRED", "FENCE"]
    assert (told[0]["fence_tick"], told[2]["actual_duration_ms"]) == (10800, 1_350_000)
    assert all(
        {"event_id", "block_id", "actual_start_utc", "actual_duration_ms", "status"} <= each.keys() for each in told
    )


async def test_what_is_written_again_is_written_once() -> None:
    files = SimulatedFiles()
    log = AsRunLog(files, "classic-1")
    await log.write(lines(*SOME[:2]))
    assert await log.write(lines(*SOME)) == 3
    once = dict(files.files)
    assert await log.write(lines(*SOME)) == 0
    assert files.files == once
    assert await log.write(lines(*SOME, session="PS-2")) == 5, "another session has its own records"


async def test_a_crash_between_the_two_files_leaves_no_entry_twice() -> None:
    """A crash is an input: cut before each replacement, then run again."""
    whole = SimulatedFiles()
    await AsRunLog(whole, "classic-1").write(lines(*SOME))
    for cut in range(4):
        files = Failing(cut)
        with pytest.raises(OSError, match="cut"):
            await AsRunLog(files, "classic-1").write(lines(*SOME))
        files.left = 100
        await AsRunLog(files, "classic-1").write(lines(*SOME))
        assert files.files == whole.files, cut


class Failing(SimulatedFiles):
    """A folder that accepts a number of files and then no more."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    async def replace(self, name: str, raw: bytes) -> None:
        if not self.left:
            raise OSError("cut")
        self.left -= 1
        await super().replace(name, raw)


def test_a_segment_without_frames_was_not_on_air() -> None:
    for status, is_there in (("AIRED", False), ("TRUNCATED", False), ("SKIPPED", True)):
        payload = {"block_id": "B", "status": status, "computed_duration_frames": 0}
        record = {"payload_type": "SEGMENT_END", "payload": payload, "playout_session_id": "s"}
        assert (entry_of(record) is not None) is is_there


@given(st.dictionaries(st.sampled_from(["block_id", "actual_start_utc_ms", "swap_tick"]), st.integers() | st.text()))
def test_whatever_a_payload_says_an_entry_is_one_line(payload: dict[str, Any]) -> None:
    entry = entry_of({"payload_type": "BLOCK_START", "payload": payload, "playout_session_id": "s"})
    assert entry is not None
    assert len(format_text(entry).splitlines()) == 1


@given(st.integers(0, 253_402_300_799_999))
def test_days_are_those_of_the_calendar(ms: int) -> None:
    assert day_of(ms) == datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize("told", ["²", "--5", "9" * 5_000, "1_000", "", [], None, True, 1.5])
async def test_a_number_that_is_none_is_nothing_and_stops_no_log(told: object) -> None:
    files = SimulatedFiles()
    assert await AsRunLog(files, "classic-1").write(lines(("BLOCK_START", {"actual_start_utc_ms": told}))) == 1
    assert sorted(files.files) == ["undated.asrun", "undated.asrun.jsonl"]


def entries(files: SimulatedFiles, day: str = "2026-02-13") -> list[Any]:
    return [msgspec.json.decode(line) for line in files.files[f"{day}.asrun.jsonl"].splitlines()]


async def test_the_start_of_an_entry_is_when_its_segment_began() -> None:
    files = SimulatedFiles()
    await AsRunLog(files, "classic-1").write(lines(*SOME))
    aired = entries(files)[2]
    assert aired["actual_start_utc"] == "2026-02-13T09:00:00.000Z"
    assert (aired["actual_start_utc_ms"], aired["actual_end_utc_ms"]) == (NINE, NINE + 1_350_000)


SEGMENT = ("SEGMENT_START", {"block_id": "B", "event_id": "E", "segment_index": 4, "actual_start_utc_ms": NINE})
ENDED = {"block_id": "B", "event_id_ref": "E", "actual_start_utc_ms": NINE, "actual_end_utc_ms": NINE + 5_000}
END = ("SEGMENT_END", ENDED | {"computed_duration_frames": 30, "segment_type_name": "promo"})


async def test_entries_have_the_fields_that_the_original_writer_has() -> None:
    files = SimulatedFiles()
    told = {"join_in_progress": True, "segment_type_name": "promo", "asset_uri": "/media/Great Show.mp4"}
    begun = ("SEGMENT_START", SEGMENT[1] | told | {"segment_uuid": "u-1"})
    await AsRunLog(files, "classic-1").write(lines(begun, END))
    start, end = entries(files)
    assert (start["join_in_progress"], start["segment_type"]) == (True, "promo")
    assert (start["segment_index"], start["segment_title"]) == (4, "Great Show")
    assert (end["segment_type_name"], end["segment_index"], end["segment_uuid"]) == ("promo", 4, "u-1")
    text = files.files["2026-02-13.asrun"].decode().splitlines()
    assert text[-2].endswith("segment_uuid=u-1 [Great Show] join_in_progress=Y")
    assert " segment_index=4 ontime=Y fallback=0 " in text[-1]
    assert "PROMO" in text[-1]
    assert "join_in_progress" not in entries_of(("SEGMENT_START", {"actual_start_utc_ms": NINE}))


def entries_of(record: tuple[str, dict[str, Any]]) -> dict[str, object]:
    entry = entry_of({"payload_type": record[0], "payload": record[1], "playout_session_id": "s"})
    assert entry is not None
    return entry.facts


@pytest.mark.parametrize(
    ("told", "title"),
    [
        ({"segment_title": "Named", "asset_uri": "/a/b.mp4"}, "Named"),
        ({"asset_uri": "/a/b.c.mp4"}, "b.c"),
        ({"segment_type_name": "pad"}, "BLACK"),
        ({}, ""),
    ],
)
def test_a_segment_without_a_title_is_called_by_its_file(told: dict[str, Any], title: str) -> None:
    assert entries_of(("SEGMENT_START", SEGMENT[1] | told))["segment_title"] == title


async def test_the_index_of_a_segment_is_known_after_a_restart_and_over_midnight() -> None:
    day_ms = 86_400_000
    late = ("SEGMENT_START", SEGMENT[1] | {"actual_start_utc_ms": NINE - day_ms})
    for begun in (SEGMENT, late):
        files, records = SimulatedFiles(), lines(begun, END)
        await AsRunLog(files, "classic-1").write(records[:1])
        await AsRunLog(files, "classic-1").write(records[1:])
        assert entries(files)[-1]["segment_index"] == 4
    files = SimulatedFiles()
    await AsRunLog(files, "classic-1").write(lines(END))
    assert entries(files)[-1]["segment_index"] == -1


@pytest.mark.parametrize("emitted", ["2026-02-13T10:00:00Z", "2026-02-13T10:00:00.123+00:00", "2026-02-13T10:00:00"])
async def test_a_record_without_a_time_is_filed_under_the_day_when_it_was_emitted(emitted: str) -> None:
    files, (line,) = SimulatedFiles(), lines(("BLOCK_START", {"block_id": "B", "actual_start_utc_ms": 0}))
    record = msgspec.json.decode(line) | {"emitted_utc": emitted}
    await AsRunLog(files, "classic-1").write([msgspec.json.encode(record)])
    (told,) = entries(files)
    assert told["actual_start_utc"] is None
    assert files.files["2026-02-13.asrun"].decode().splitlines()[-1].startswith("--:--:-- 00:00:00 START ")
