"""The names of a channel's files: an id is checked before it becomes part of a name (SP-007).

```
{root}/{channel}/{session}.spool.jsonl                          the plain file
{root}/{channel}/{session}@{first sequence}.spool.jsonl         a segment: it begins with that sequence
{root}/{channel}/{session}.ack · .final · .released · .adopted · .lock · .reserve
{root}/{channel}/{session}@{sequence}-{crc}.quarantine          bytes that recovery set aside
{root}/{channel}/channel.full                                   the cap was reached; usage is above the low-water mark
```
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused

SPOOL: Final = ".spool.jsonl"
ACK: Final = ".ack"
FINAL: Final = ".final"
RELEASED: Final = ".released"
ADOPTED: Final = ".adopted"
LOCK: Final = ".lock"
RESERVE: Final = ".reserve"
QUARANTINE: Final = ".quarantine"
TEMP: Final = ".tmp"
FULL: Final = "channel.full"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME: Final = re.compile(
    r"(?P<session>.+?)(?:@(?P<number>[0-9]{20})(?:-[0-9a-f]{8})?)?"
    r"(?P<kind>\.spool\.jsonl|\.ack|\.final|\.released|\.adopted|\.lock|\.reserve|\.quarantine)(?P<temp>\.tmp)?",
    re.DOTALL,
)
"""Other programs may give a session any name that a file can have: it is listed and read, too."""


def why_not_id(what: str, text: str) -> Refused | None:
    """An id becomes part of a file name: alphanumeric ASCII, dot, dash, underscore; no separator, no hidden file."""
    if _ID.fullmatch(text):
        return None
    hint = "1 to 128 of A-Z a-z 0-9 . _ - beginning with a letter or a digit"
    return Refused("SP-007", f"{what} {text[:140]!r} cannot be part of a file name", hint, "BadId")


class ParsedName(msgspec.Struct, frozen=True, gc=False):
    """The parts of a file's name."""

    session: str
    kind: str
    number: int | None
    is_temp: bool


@lru_cache(maxsize=4_096)
def parse_file_name(name: str) -> ParsedName | None:
    """The session and kind of a file; None where it is not a file of ours. Called whenever a folder is measured."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    number = match["number"]
    return ParsedName(match["session"], match["kind"], None if number is None else int(number), bool(match["temp"]))


def is_of_session(name: str, session: str) -> bool:
    """Whether a file belongs to this session."""
    parsed = parse_file_name(name) if name.startswith(session) else None
    return parsed is not None and parsed.session == session


@lru_cache(maxsize=1_024)
def _join(folder: Path, name: str) -> Path:
    """Cached: the same few paths are used at every ack and every measurement, and joining them is slow."""
    return folder / name


class SessionPaths(msgspec.Struct, frozen=True, gc=False):
    """The paths of one session's files."""

    folder: Path
    channel: str
    session: str

    @property
    def plain(self) -> Path:
        return _join(self.folder, f"{self.session}{SPOOL}")

    def segment(self, first: int) -> Path:
        return _join(self.folder, f"{self.session}@{first:020d}{SPOOL}")

    def quarantine(self, first: int, crc: int) -> Path:
        return _join(self.folder, f"{self.session}@{first:020d}-{crc:08x}{QUARANTINE}")

    @property
    def ack(self) -> Path:
        return _join(self.folder, f"{self.session}{ACK}")

    @property
    def final(self) -> Path:
        return _join(self.folder, f"{self.session}{FINAL}")

    @property
    def released(self) -> Path:
        return _join(self.folder, f"{self.session}{RELEASED}")

    @property
    def adopted(self) -> Path:
        return _join(self.folder, f"{self.session}{ADOPTED}")

    @property
    def lock(self) -> Path:
        return _join(self.folder, f"{self.session}{LOCK}")

    @property
    def reserve(self) -> Path:
        return _join(self.folder, f"{self.session}{RESERVE}")


@lru_cache(maxsize=1_024)
def temp_path(path: Path) -> Path:
    return path.with_name(path.name + TEMP)


def paths_of_file(file: Path) -> SessionPaths | None:
    """The session that a spool file belongs to; None where its name is not that of a spool file."""
    named = parse_file_name(file.name)
    if named is None or named.kind != SPOOL or named.is_temp:
        return None
    return SessionPaths(file.parent, file.parent.name, named.session)
