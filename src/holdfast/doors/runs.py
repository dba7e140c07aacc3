"""Runs of plain records checked at once: what most evidence is, at little more than half the cost.

A yes is worth as much as looking at each record; a no only means that somebody has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Final, Literal

import msgspec

from holdfast.spool import record


class _Object(msgspec.Struct):
    """Any JSON object: it is read through and nothing of it is kept."""


class _Plain(msgspec.Struct, gc=False):
    """A record as our senders write it."""

    schema_version: Literal[1]
    channel_id: str
    playout_session_id: str
    sequence: int
    event_uuid: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    payload_type: str
    payload: _Object
    emitted_utc: str = ""


_decode: Final = msgspec.json.Decoder(_Plain).decode
_whose: Final = attrgetter("channel_id", "playout_session_id")
_sequence: Final = attrgetter("sequence")
_type: Final = attrgetter("payload_type")


def last_type_of(whose: tuple[str, str], first: int, lines: Sequence[bytes], not_plain: frozenset[str]) -> str | None:
    """The type of the last record, where all of them are sound, follow each other and are of no type that is not plain.

    CRC and the beginning of each line are compared for all together; each is parsed, since a good CRC proves nothing
    about who wrote it, and what counts is what a reader of the line would find.
    """
    lines = list(lines)
    if not lines or not record.are_next(lines, record.head_of(*whose), first):
        return None
    try:
        found = list(map(_decode, lines))
        raw = b"\n".join(lines)
        raw.isascii() or raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    types = set(map(_type, found))
    is_plain = (
        raw.count(b"\n") == len(lines) - 1
        and types.isdisjoint(not_plain)
        and set(map(_whose, found)) == {whose}
        and list(map(_sequence, found)) == list(range(first, first + len(lines)))
    )
    return found[-1].payload_type if is_plain else None
