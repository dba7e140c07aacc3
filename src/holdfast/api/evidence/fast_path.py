"""Validates a run of plain records at once, which most evidence is, at little more than half the cost.

A yes is worth as much as validating each record; a no means only that each record has to be validated.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from holdfast.spool.files import record


class _Object(msgspec.Struct):
    """Any JSON object: it is parsed and nothing of it is kept."""


class _PlainRecord(msgspec.Struct, gc=False):
    """A record as our senders write it."""

    schema_version: Literal[1]
    channel_id: str
    playout_session_id: str
    sequence: int
    event_uuid: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    payload_type: str
    payload: _Object
    emitted_utc: str = ""


SLICE_LINES: Final = 256
"""About a millisecond."""
_decode: Final = msgspec.json.Decoder(_PlainRecord).decode
_session_of: Final = attrgetter("channel_id", "playout_session_id")
_sequence: Final = attrgetter("sequence")
_type: Final = attrgetter("payload_type")


def last_type_of(
    session_key: tuple[str, str], first: int, lines: Sequence[bytes], not_plain: frozenset[str]
) -> str | None:
    """The type of the last record, where all records are valid, follow each other and none is of a type in `not_plain`.

    Slice by slice: each is one long call of C, during which the event loop's thread would wait for the interpreter.
    """
    last_type = None
    for start in range(0, len(lines), SLICE_LINES):
        some = list(lines[start : start + SLICE_LINES])
        if (last_type := _last_type_of_slice(session_key, first + start, some, not_plain)) is None:
            return None
    return last_type


def _last_type_of_slice(
    session_key: tuple[str, str], first: int, lines: list[bytes], not_plain: frozenset[str]
) -> str | None:
    """CRC and head are compared for all lines together. Each line is parsed as well, since a right CRC does not prove
    who wrote a line: what counts is what a reader of the line would decode."""
    if not record.are_expected_lines(lines, record.line_head(*session_key), first):
        return None
    try:
        records = list(map(_decode, lines))
        raw = b"\n".join(lines)
        raw.isascii() or raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    types = set(map(_type, records))
    is_plain = (
        raw.count(b"\n") == len(lines) - 1
        and types.isdisjoint(not_plain)
        and set(map(_session_of, records)) == {session_key}
        and list(map(_sequence, records)) == list(range(first, first + len(lines)))
    )
    return records[-1].payload_type if is_plain else None
