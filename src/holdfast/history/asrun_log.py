"""The as-run log of a channel, written from its evidence: one line per record, by day, as text and as JSON lines.

    {root}/{channel}/{YYYY-MM-DD}.asrun          fixed columns, for people
    {root}/{channel}/{YYYY-MM-DD}.asrun.jsonl    the same, for programs, with session and sequence of the record

The day is that of the event itself, in UTC. An event without a time is filed under the day when it was emitted, and
where that is unknown, too, in `undated.asrun`. A record is written once, whenever a crash comes: both files are
replaced as a whole, the text first; the next write drops text lines without a JSON line and skips records that have
one.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.ports import Files

TEXT, LINES, CURSOR = ".asrun", ".asrun.jsonl", "written.json"
UNDATED: Final = "undated"
"""In the place of a day."""
NO_TIME: Final = "--:--:--"
StoredRecords = AsyncIterator[tuple[int, bytes]]
"""Records with their sequences."""
WIDTHS: Final = (8, 8, 10, 8, 32)
DAY_MS: Final = 86_400_000
MOVE_HINT: Final = "the file was changed: move it away, then run holdfast evidence asrun"
TYPES: Final = {
    "commercial": "COMMERCL",
    "promo": "PROMO",
    "station_id": "IDENT",
    "stinger": "STINGER",
    "bumper": "BUMPER",
    "filler": "FILLER",
    "psa": "PSA",
    "pad": "PAD",
}
"""The name of a segment type in the log; every other type is a PROGRAM."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
SEG_START: Final = "SEG_START"
NEEDS_FRAMES: Final = frozenset({"AIRED", "TRUNCATED"})
"""A segment that ended with one of these and has no frames was not on air: the log leaves it out."""


class PlayingSegment(msgspec.Struct, frozen=True):
    """The segment that began last in a session: the record of its end does not repeat its index."""

    index: int = -1
    uuid: str = ""


class AsRunEntry(msgspec.Struct, frozen=True):
    """One entry of the log, from one record."""

    at_ms: int
    """When it is shown; 0 where the record does not say. A segment that ended is shown at its end."""
    start_ms: int
    """When it began; 0 where the record does not say."""
    duration_ms: int
    status: str
    type: str
    event_id: str
    notes: str
    facts: dict[str, object]


NO_SEGMENT: Final = PlayingSegment()


def entry_of(record: dict[str, Any], playing: PlayingSegment = NO_SEGMENT) -> AsRunEntry | None:
    """The entry of a record; None where the record is not about playout."""
    make = _ENTRIES.get(record["payload_type"])
    return None if make is None else make(_PayloadFields(record["payload"]), record, playing)


def filed_under(entry: AsRunEntry, record: dict[str, Any]) -> str:
    """The day of an entry: of the event, else of its emission."""
    at_ms = entry.at_ms if entry.at_ms > 0 else _emitted_ms(record)
    return day_of(at_ms) if at_ms > 0 else UNDATED


def _emitted_ms(record: dict[str, Any]) -> int:
    """When a record was emitted; 0 where it does not say so, or not in ISO 8601."""
    try:
        when = datetime.fromisoformat(str(record.get("emitted_utc")))
    except ValueError:
        return 0
    since = when.replace(tzinfo=when.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


class _PayloadFields:
    """The fields of a payload; a missing one is 0 or empty, and numbers may be strings."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def number(self, name: str) -> int:
        value = self._fields.get(name)
        return int(value) if isinstance(value, int | str) and _INTEGER.fullmatch(str(value)) else 0

    def text(self, name: str) -> str:
        """A text without line breaks."""
        return " ".join(str(self._fields.get(name) or "").split())

    def flag(self, name: str) -> str:
        return "Y" if self._fields.get(name) is True else "N"


def _block_start(fields: _PayloadFields, _: dict[str, Any], __: PlayingSegment) -> AsRunEntry:
    at_ms, id_ = fields.number("actual_start_utc_ms"), fields.text("block_id")
    ticks = {name: fields.number(name) for name in ("swap_tick", "fence_tick")}
    notes = f"(block open) swap_tick={ticks['swap_tick']} fence_tick={ticks['fence_tick']}"
    facts: dict[str, object] = {"block_id": id_, "actual_start_utc_ms": at_ms, "reason": None, **ticks}
    return AsRunEntry(
        at_ms=at_ms,
        start_ms=at_ms,
        duration_ms=0,
        status="START",
        type="BLOCK",
        event_id=id_,
        notes=notes,
        facts=facts,
    )


def _segment_start(fields: _PayloadFields, _: dict[str, Any], __: PlayingSegment) -> AsRunEntry:
    at_ms, block = fields.number("actual_start_utc_ms"), fields.text("block_id")
    counts = {name: fields.number(name) for name in ("segment_index", "asset_start_frame")}
    notes = f"segment_index={counts['segment_index']} asset_start_frame={counts['asset_start_frame']}"
    kind = fields.text("segment_type_name")
    names = {name: fields.text(name) for name in ("segment_uuid", "asset_uuid", "asset_uri", "segment_title")}
    names["segment_title"] = names["segment_title"] or _title_of(names["asset_uri"], kind)
    notes += f" segment_uuid={names['segment_uuid']}" if names["segment_uuid"] else ""
    notes += f" [{names['segment_title']}]" if names["segment_title"] else ""
    notes += " join_in_progress=Y" if fields.flag("join_in_progress") == "Y" else ""
    facts: dict[str, object] = {"block_id": block, "actual_start_utc_ms": at_ms, "reason": None, **counts}
    facts |= {"scheduled_duration_ms": fields.number("scheduled_duration_ms")}
    facts |= {"segment_type": kind, "segment_type_name": kind, **names}
    facts |= {"join_in_progress": True} if fields.flag("join_in_progress") == "Y" else {}
    return AsRunEntry(
        at_ms=at_ms,
        start_ms=at_ms,
        duration_ms=0,
        status=SEG_START,
        type=TYPES.get(kind, "PROGRAM"),
        event_id=fields.text("event_id") or block,
        notes=notes,
        facts=facts,
    )


def _title_of(asset_uri: str, kind: str) -> str:
    """A segment without a title is called by the name of its file; one that is only black, so."""
    return PurePosixPath(asset_uri).stem or ("BLACK" if kind == "pad" else "")


def _segment_end(fields: _PayloadFields, _: dict[str, Any], playing: PlayingSegment) -> AsRunEntry | None:
    block, status = fields.text("block_id"), fields.text("status") or "AIRED"
    frames, took_ms = fields.number("computed_duration_frames"), fields.number("computed_duration_ms")
    if status in NEEDS_FRAMES and frames <= 0:
        return None
    names = ("actual_start_utc_ms", "actual_end_utc_ms", "asset_start_frame", "asset_end_frame", "fallback_frames_used")
    counts = {name: fields.number(name) for name in names}
    notes = f"segment_index={playing.index} ontime=Y fallback={counts['fallback_frames_used']}"
    notes += f" asset_start={counts['asset_start_frame']} asset_end={counts['asset_end_frame']} frames={frames}"
    reason, uuid = fields.text("reason"), fields.text("segment_uuid") or playing.uuid
    notes += (f" segment_uuid={uuid}" if uuid else "") + (f" reason={reason}" if reason else "")
    facts: dict[str, object] = {"block_id": block, **counts, "computed_duration_frames": frames}
    kind = fields.text("segment_type_name")
    facts |= {"reason": reason or None, "segment_index": playing.index, "segment_uuid": uuid}
    facts |= {"segment_type_name": kind, "asset_uuid": fields.text("asset_uuid")}
    return AsRunEntry(
        at_ms=counts["actual_end_utc_ms"] or counts["actual_start_utc_ms"],
        start_ms=counts["actual_start_utc_ms"],
        duration_ms=took_ms,
        status=status,
        type=TYPES.get(kind, "PROGRAM"),
        event_id=fields.text("event_id_ref") or block,
        notes=notes,
        facts=facts,
    )


def _block_fence(fields: _PayloadFields, _: dict[str, Any], __: PlayingSegment) -> AsRunEntry:
    at_ms, block = fields.number("actual_end_utc_ms"), fields.text("block_id")
    swap, fence, frames = fields.number("swap_tick"), fields.number("fence_tick"), fields.number("total_frames_emitted")
    notes = f"swap_tick={swap} fence_tick={fence} frames_emitted={frames} frame_budget_remaining=0 reason=FENCE"
    notes += "".join(
        f" {name}={fields.flag(name)}" for name in ("primed_success", "truncated_by_fence", "early_exhaustion")
    )
    facts: dict[str, object] = {"block_id": block, "actual_end_utc_ms": at_ms, "reason": None, "swap_tick": swap}
    facts |= {"fence_tick": fence, "frames_emitted": frames, "frame_budget_remaining": 0}
    return AsRunEntry(
        at_ms=at_ms,
        start_ms=at_ms,
        duration_ms=0,
        status="FENCE",
        type="BLOCK",
        event_id=f"{block}-FENCE",
        notes=notes,
        facts=facts,
    )


def _terminated(fields: _PayloadFields, record: dict[str, Any], _: PlayingSegment) -> AsRunEntry:
    at_ms, reason = fields.number("termination_utc_ms"), fields.text("reason")
    facts: dict[str, object] = {"block_id": "", "termination_utc_ms": at_ms, "reason": reason}
    facts |= {"swap_tick": None, "fence_tick": None}
    notes = f"reason={reason} detail={fields.text('detail')}"
    return AsRunEntry(
        at_ms=at_ms,
        start_ms=at_ms,
        duration_ms=0,
        status="TERMINATED",
        type="CHANNEL",
        event_id=record["playout_session_id"],
        notes=notes,
        facts=facts,
    )


_ENTRIES: Final = {
    "BLOCK_START": _block_start,
    "SEGMENT_START": _segment_start,
    "SEGMENT_END": _segment_end,
    "BLOCK_FENCE": _block_fence,
    "CHANNEL_TERMINATED": _terminated,
}


# ------------------------------------------------------------------------------------------------ formats


def format_text(entry: AsRunEntry) -> str:
    columns = (
        _time_of_day(entry.at_ms) if entry.at_ms > 0 else NO_TIME,
        _hours_minutes_seconds(entry.duration_ms),
        entry.status,
        entry.type,
        entry.event_id,
    )
    return " ".join([*(column.ljust(width) for column, width in zip(columns, WIDTHS, strict=True)), entry.notes])


def format_json_line(entry: AsRunEntry, session: str, sequence: int) -> str:
    start = _utc(entry.start_ms) if entry.start_ms > 0 else None
    line: dict[str, object] = {"event_id": entry.event_id, "actual_start_utc": start}
    line |= {"actual_duration_ms": entry.duration_ms}
    line |= {"status": entry.status, **entry.facts, "playout_session_id": session, "sequence": sequence}
    return msgspec.json.encode(line).decode()


def header_lines(channel: str, day: str) -> list[str]:
    opened = day if day == UNDATED else f"{day}T00:00:00Z"
    header = {"CHANNEL": channel, "DATE": day, "OPENED_UTC": opened, "ASRUN_LOG_ID": f"{channel}-{day}"}
    return ["# RETROVUE AS-RUN LOG", *(f"# {name}: {value}" for name, value in header.items()), "# VERSION: 2"]


def day_of(ms: int) -> str:
    """The date of a time in UTC, also beyond the years of the datetime module."""
    days = ms // DAY_MS + 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    part = (5 * day_of_year + 2) // 153
    day, month = day_of_year - (153 * part + 2) // 5 + 1, part + 3 if part < 10 else part - 9
    return f"{year_of_era + era * 400 + (month <= 2):04d}-{month:02d}-{day:02d}"


def _time_of_day(ms: int) -> str:
    return _hours_minutes_seconds(ms % DAY_MS)


def _hours_minutes_seconds(ms: int) -> str:
    minutes, seconds = divmod(ms // 1_000, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


def _utc(ms: int) -> str:
    return f"{day_of(ms)}T{_time_of_day(ms)}.{ms % 1_000:03d}Z"


class AsRunLog:
    """The as-run log of one channel in its folder."""

    def __init__(self, files: Files, channel: str) -> None:
        self._files, self._channel = files, channel
        self._playing: dict[str, PlayingSegment] = {}
        """By session."""

    async def write(self, lines: Iterable[bytes | str]) -> int:
        """Add the entries of these records that the log lacks; returns how many were added."""
        days: dict[str, list[tuple[AsRunEntry, str, int]]] = {}
        for line in lines:
            record = msgspec.json.decode(line)
            entry = entry_of(record, await self._playing_before(record))
            if entry is not None:
                session, sequence = record["playout_session_id"], int(record["sequence"])
                if entry.status == SEG_START:
                    self._playing[session] = _playing_of(entry.facts)
                days.setdefault(filed_under(entry, record), []).append((entry, session, sequence))
        return sum([await self._add(day, entries) for day, entries in sorted(days.items())])

    async def _playing_before(self, record: dict[str, Any]) -> PlayingSegment:
        """The segment that a record ends. After a restart it is found in the log: of its day, or of the day before."""
        session = record["playout_session_id"]
        if record["payload_type"] != "SEGMENT_END" or session in self._playing:
            return self._playing.get(session, NO_SEGMENT)
        begun = _PayloadFields(record["payload"]).number("actual_start_utc_ms")
        for day in (day_of(begun), day_of(begun - DAY_MS)) if begun > DAY_MS else ():
            for line in reversed(await self._lines(day + LINES)):
                known = _entry_line(line, f"{self._channel}/{day}{LINES}")
                is_before = known["playout_session_id"] == session and known["sequence"] < int(record["sequence"])
                if is_before and known.get("status") == SEG_START:
                    self._playing[session] = _playing_of(known)
                    return self._playing[session]
        return NO_SEGMENT

    async def written_until(self, session: str) -> int:
        """The last sequence of a session that was recorded as written; 0 where there is none."""
        return (await self._cursor()).get(session, 0)

    async def record_written(self, session: str, sequence: int) -> None:
        cursor = await self._cursor()
        await self._files.replace(CURSOR, msgspec.json.encode(cursor | {session: sequence}))

    async def _cursor(self) -> dict[str, int]:
        raw = await self._files.read(CURSOR)
        try:
            return {} if raw is None else msgspec.json.decode(raw, type=dict[str, int])
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise Corrupt("EVD-009", f"{self._channel}/{CURSOR}: {fault}", MOVE_HINT) from fault

    async def _add(self, day: str, entries: list[tuple[AsRunEntry, str, int]]) -> int:
        known = await self._lines(day + LINES)
        header = header_lines(self._channel, day)
        text = [*header, *(await self._lines(day + TEXT))[len(header) :][: len(known)]]
        parsed = [_entry_line(line, f"{self._channel}/{day}{LINES}") for line in known]
        written = {(each["playout_session_id"], each["sequence"]) for each in parsed}
        new = [each for each in entries if (each[1], each[2]) not in written]
        if not new:
            return 0
        text += [format_text(entry) for entry, _, _ in new]
        known += [format_json_line(*each) for each in new]
        for name, lines in ((day + TEXT, text), (day + LINES, known)):
            await self._files.replace(name, "".join(f"{line}\n" for line in lines).encode())
        return len(new)

    async def _lines(self, name: str) -> list[str]:
        try:
            return (await self._files.read(name) or b"").decode().splitlines()
        except UnicodeDecodeError as fault:
            raise Corrupt("EVD-009", f"{self._channel}/{name}: {fault}", MOVE_HINT) from fault


def _entry_line(line: str, name: str) -> dict[str, Any]:
    """A line that we have written; Corrupt where it is none."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
        (entry["playout_session_id"], int(entry["sequence"]))
    except (msgspec.DecodeError, KeyError, TypeError) as fault:
        raise Corrupt("EVD-009", f"{name}: a line is not an entry: {fault}", MOVE_HINT) from fault
    return entry


def _playing_of(facts: dict[str, Any]) -> PlayingSegment:
    index = facts.get("segment_index")
    return PlayingSegment(index if isinstance(index, int) else -1, str(facts.get("segment_uuid") or ""))
