"""What the files of a channel are called: an id is checked before it becomes part of a name (SP-007).

```
{root}/{channel}/{session}.spool.jsonl                          the plain file
{root}/{channel}/{session}@{first sequence}.spool.jsonl         a segment: it begins with that sequence
{root}/{channel}/{session}.ack · .final · .released · .lock · .reserve
{root}/{channel}/{session}@{sequence}-{crc}.quarantine          bytes that recovery moved away
{root}/{channel}/channel.full                                   the cap was reached and is not yet well below
```
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from holdfast.core.refusal import Refused

SPOOL: Final = ".spool.jsonl"
ACK: Final = ".ack"
FINAL: Final = ".final"
RELEASED: Final = ".released"
LOCK: Final = ".lock"
RESERVE: Final = ".reserve"
QUARANTINE: Final = ".quarantine"
TEMP: Final = ".tmp"
FULL: Final = "channel.full"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME: Final = re.compile(
    r"(?P<session>[A-Za-z0-9][A-Za-z0-9._-]{0,127}?)(?:@(?P<number>\d{20})(?:-[0-9a-f]{8})?)?"
    r"(?P<kind>\.spool\.jsonl|\.ack|\.final|\.released|\.lock|\.reserve|\.quarantine)(?P<temp>\.tmp)?"
)


def why_not_id(what: str, text: str) -> Refused | None:
    """An id is a part of a file's name: letters, digits, dot, dash, underscore; no separator, nothing hidden."""
    if _ID.fullmatch(text):
        return None
    hint = "1 to 128 of A-Z a-z 0-9 . _ - beginning with a letter or a digit"
    return Refused("SP-007", f"{what} {text[:140]!r} cannot be a file's name", hint, "BadId")


class Named(msgspec.Struct, frozen=True, gc=False):
    """What a file's name says."""

    session: str
    kind: str
    number: int | None
    is_temp: bool


@lru_cache(maxsize=4_096)
def parse(name: str) -> Named | None:
    """Whose file it is and what for; None where it is none of ours. Asked anew whenever a folder is measured."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    number = found["number"]
    return Named(found["session"], found["kind"], None if number is None else int(number), bool(found["temp"]))


@lru_cache(maxsize=1_024)
def _in(folder: Path, name: str) -> Path:
    """The same few paths are asked for at every ack and every look at the cap, and joining them is slow."""
    return folder / name


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where one session's files are."""

    folder: Path
    channel: str
    session: str

    @property
    def plain(self) -> Path:
        return _in(self.folder, f"{self.session}{SPOOL}")

    def segment(self, first: int) -> Path:
        return _in(self.folder, f"{self.session}@{first:020d}{SPOOL}")

    def quarantine(self, first: int, crc: int) -> Path:
        return _in(self.folder, f"{self.session}@{first:020d}-{crc:08x}{QUARANTINE}")

    @property
    def ack(self) -> Path:
        return _in(self.folder, f"{self.session}{ACK}")

    @property
    def final(self) -> Path:
        return _in(self.folder, f"{self.session}{FINAL}")

    @property
    def released(self) -> Path:
        return _in(self.folder, f"{self.session}{RELEASED}")

    @property
    def lock(self) -> Path:
        return _in(self.folder, f"{self.session}{LOCK}")

    @property
    def reserve(self) -> Path:
        return _in(self.folder, f"{self.session}{RESERVE}")


@lru_cache(maxsize=1_024)
def temp_of(path: Path) -> Path:
    return path.with_name(path.name + TEMP)


def place_of(file: Path) -> Place | None:
    """The session that a spool file belongs to; None where its name is not a spool's."""
    named = parse(file.name)
    if named is None or named.kind != SPOOL or named.is_temp:
        return None
    return Place(file.parent, file.parent.name, named.session)
