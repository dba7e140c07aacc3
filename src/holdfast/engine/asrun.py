"""The as-run log of a channel, made of its evidence: one line a record, by day, as text and as JSON lines.

    {root}/{channel}/{YYYY-MM-DD}.asrun          fixed columns, for people
    {root}/{channel}/{YYYY-MM-DD}.asrun.jsonl    the same, for programs, with session and sequence of the record

The day is that of the event itself, in UTC. A record is written once, over crashes at any point: both files are
replaced whole, the text first; who goes on compares them, and skips what the JSON lines name.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec

from holdfast.core.refusal import Corrupt
from holdfast.ports import Files

TEXT, LINES, CURSOR = ".asrun", ".asrun.jsonl", "written.json"
Kept = AsyncIterator[tuple[int, bytes]]
"""Records with their sequences."""
WIDTHS: Final = (8, 8, 10, 8, 32)
DAY_MS: Final = 86_400_000
MOVE: Final = "somebody has changed it: move it away, then run holdfast evidence asrun"
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
"""What a segment is called; all else is a PROGRAM."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
NEEDS_FRAMES: Final = frozenset({"AIRED", "TRUNCATED"})
"""Nothing was on air where a segment that ended so has no frames: the log leaves it out."""


class Entry(msgspec.Struct, frozen=True):
    """What one record says, before it is written."""

    at_ms: int
    duration_ms: int
    status: str
    type: str
    event_id: str
    notes: str
    facts: dict[str, object]


def entry_of(record: dict[str, Any]) -> Entry | None:
    """The entry of a record; None where it is none of a channel's playout."""
    make = _ENTRIES.get(record["payload_type"])
    return None if make is None else make(_Payload(record["payload"]), record)


class _Payload:
    """A payload's fields; what is missing is nothing, and numbers may be texts."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def number(self, name: str) -> int:
        told = self._fields.get(name)
        return int(told) if isinstance(told, int | str) and _WHOLE.fullmatch(str(told)) else 0

    def text(self, name: str) -> str:
        """One word of a line: what would break it up is replaced."""
        return " ".join(str(self._fields.get(name) or "").split())

    def flag(self, name: str) -> str:
        return "Y" if self._fields.get(name) is True else "N"


def _block_start(told: _Payload, _: dict[str, Any]) -> Entry:
    at_ms, id_ = told.number("actual_start_utc_ms"), told.text("block_id")
    ticks = {name: told.number(name) for name in ("swap_tick", "fence_tick")}
    notes = f"(block open) swap_tick={ticks['swap_tick']} fence_tick={ticks['fence_tick']}"
    facts: dict[str, object] = {"block_id": id_, "actual_start_utc_ms": at_ms, "reason": None, **ticks}
    return Entry(at_ms, 0, "START", "BLOCK", id_, notes, facts)


def _segment_start(told: _Payload, _: dict[str, Any]) -> Entry:
    at_ms, block = told.number("actual_start_utc_ms"), told.text("block_id")
    counts = {name: told.number(name) for name in ("segment_index", "asset_start_frame")}
    notes = f"segment_index={counts['segment_index']} asset_start_frame={counts['asset_start_frame']}"
    names = {name: told.text(name) for name in ("segment_uuid", "asset_uuid", "asset_uri", "segment_title")}
    notes += f" segment_uuid={names['segment_uuid']}" if names["segment_uuid"] else ""
    notes += f" [{names['segment_title']}]" if names["segment_title"] else ""
    notes += " join_in_progress=Y" if told.flag("join_in_progress") == "Y" else ""
    kind = told.text("segment_type_name")
    facts: dict[str, object] = {"block_id": block, "actual_start_utc_ms": at_ms, **counts}
    facts |= {"scheduled_duration_ms": told.number("scheduled_duration_ms"), "segment_type": kind, **names}
    return Entry(at_ms, 0, "SEG_START", TYPES.get(kind, "PROGRAM"), told.text("event_id") or block, notes, facts)


def _segment_end(told: _Payload, _: dict[str, Any]) -> Entry | None:
    block, status = told.text("block_id"), told.text("status") or "AIRED"
    frames, took_ms = told.number("computed_duration_frames"), told.number("computed_duration_ms")
    if status in NEEDS_FRAMES and frames <= 0:
        return None
    names = ("actual_start_utc_ms", "actual_end_utc_ms", "asset_start_frame", "asset_end_frame", "fallback_frames_used")
    counts = {name: told.number(name) for name in names}
    notes = f"fallback={counts['fallback_frames_used']} asset_start={counts['asset_start_frame']}"
    notes += f" asset_end={counts['asset_end_frame']} frames={frames}"
    reason, uuid = told.text("reason"), told.text("segment_uuid")
    notes += (f" segment_uuid={uuid}" if uuid else "") + (f" reason={reason}" if reason else "")
    facts: dict[str, object] = {"block_id": block, **counts, "computed_duration_frames": frames}
    facts |= {"reason": reason or None, "segment_uuid": uuid, "asset_uuid": told.text("asset_uuid")}
    kind = TYPES.get(told.text("segment_type_name"), "PROGRAM")
    at_ms = counts["actual_end_utc_ms"]
    return Entry(at_ms, took_ms, status, kind, told.text("event_id_ref") or block, notes, facts)


def _block_fence(told: _Payload, _: dict[str, Any]) -> Entry:
    at_ms, block = told.number("actual_end_utc_ms"), told.text("block_id")
    swap, fence, frames = told.number("swap_tick"), told.number("fence_tick"), told.number("total_frames_emitted")
    notes = f"swap_tick={swap} fence_tick={fence} frames_emitted={frames} frame_budget_remaining=0 reason=FENCE"
    notes += "".join(
        f" {name}={told.flag(name)}" for name in ("primed_success", "truncated_by_fence", "early_exhaustion")
    )
    facts: dict[str, object] = {"block_id": block, "actual_end_utc_ms": at_ms, "reason": None, "swap_tick": swap}
    facts |= {"fence_tick": fence, "frames_emitted": frames, "frame_budget_remaining": 0}
    return Entry(at_ms, 0, "FENCE", "BLOCK", f"{block}-FENCE", notes, facts)


def _terminated(told: _Payload, record: dict[str, Any]) -> Entry:
    at_ms, reason = told.number("termination_utc_ms"), told.text("reason")
    facts: dict[str, object] = {"block_id": "", "termination_utc_ms": at_ms, "reason": reason}
    notes = f"reason={reason} detail={told.text('detail')}"
    return Entry(at_ms, 0, "TERMINATED", "CHANNEL", record["playout_session_id"], notes, facts)


_ENTRIES: Final = {
    "BLOCK_START": _block_start,
    "SEGMENT_START": _segment_start,
    "SEGMENT_END": _segment_end,
    "BLOCK_FENCE": _block_fence,
    "CHANNEL_TERMINATED": _terminated,
}


# ------------------------------------------------------------------------------------------------ as it is written


def text_of(entry: Entry) -> str:
    columns = (_clock(entry.at_ms), _length(entry.duration_ms), entry.status, entry.type, entry.event_id)
    return " ".join([*(column.ljust(width) for column, width in zip(columns, WIDTHS, strict=True)), entry.notes])


def json_of(entry: Entry, session: str, sequence: int) -> str:
    told = {"event_id": entry.event_id, "actual_start_utc": _utc(entry.at_ms), "actual_duration_ms": entry.duration_ms}
    told |= {"status": entry.status, **entry.facts, "playout_session_id": session, "sequence": sequence}
    return msgspec.json.encode(told).decode()


def head_of(channel: str, day: str) -> list[str]:
    told = {"CHANNEL": channel, "DATE": day, "OPENED_UTC": f"{day}T00:00:00Z", "ASRUN_LOG_ID": f"{channel}-{day}"}
    return ["# RETROVUE AS-RUN LOG", *(f"# {name}: {value}" for name, value in told.items()), "# VERSION: 2"]


def day_of(ms: int) -> str:
    """The civil date of a moment, without a calendar library: days since 1970 to year, month, day."""
    days = ms // DAY_MS + 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    part = (5 * day_of_year + 2) // 153
    day, month = day_of_year - (153 * part + 2) // 5 + 1, part + 3 if part < 10 else part - 9
    return f"{year_of_era + era * 400 + (month <= 2):04d}-{month:02d}-{day:02d}"


def _clock(ms: int) -> str:
    return _length(ms % DAY_MS)


def _length(ms: int) -> str:
    minutes, seconds = divmod(ms // 1_000, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


def _utc(ms: int) -> str:
    return f"{day_of(ms)}T{_clock(ms)}.{ms % 1_000:03d}Z"


class AsRun:
    """The as-run log of one channel in its folder."""

    def __init__(self, files: Files, channel: str) -> None:
        self._files, self._channel = files, channel

    async def write(self, lines: Iterable[bytes | str]) -> int:
        """Add what these records say and the log does not; how many entries were added."""
        days: dict[str, list[tuple[Entry, str, int]]] = {}
        for line in lines:
            record = msgspec.json.decode(line)
            if (entry := entry_of(record)) is not None:
                told = (entry, record["playout_session_id"], int(record["sequence"]))
                days.setdefault(day_of(entry.at_ms), []).append(told)
        return sum([await self._add(day, told) for day, told in sorted(days.items())])

    async def written(self, session: str) -> int:
        """How far a session was written when it was noted last; 0 where it was not."""
        return (await self._cursor()).get(session, 0)

    async def note(self, session: str, sequence: int) -> None:
        cursor = await self._cursor()
        await self._files.replace(CURSOR, msgspec.json.encode(cursor | {session: sequence}))

    async def _cursor(self) -> dict[str, int]:
        raw = await self._files.read(CURSOR)
        try:
            return {} if raw is None else msgspec.json.decode(raw, type=dict[str, int])
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise Corrupt("EVD-009", f"{self._channel}/{CURSOR}: {fault}", MOVE) from fault

    async def _add(self, day: str, told: list[tuple[Entry, str, int]]) -> int:
        known = await self._lines(day + LINES)
        heads = head_of(self._channel, day)
        text = [*heads, *(await self._lines(day + TEXT))[len(heads) :][: len(known)]]
        try:
            there = {_place(line) for line in known}
        except (msgspec.DecodeError, KeyError, TypeError) as fault:
            says = f"{self._channel}/{day}{LINES}: a line that is no entry: {fault}"
            raise Corrupt("EVD-009", says, MOVE) from fault
        new = [one for one in told if (one[1], one[2]) not in there]
        if not new:
            return 0
        text += [text_of(entry) for entry, _, _ in new]
        known += [json_of(*one) for one in new]
        for name, lines in ((day + TEXT, text), (day + LINES, known)):
            await self._files.replace(name, "".join(f"{line}\n" for line in lines).encode())
        return len(new)

    async def _lines(self, name: str) -> list[str]:
        try:
            return (await self._files.read(name) or b"").decode().splitlines()
        except UnicodeDecodeError as fault:
            raise Corrupt("EVD-009", f"{self._channel}/{name}: {fault}", MOVE) from fault


def _place(line: str) -> tuple[str, int]:
    told = msgspec.json.decode(line)
    return told["playout_session_id"], told["sequence"]
