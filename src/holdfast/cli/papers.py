"""What a verb is handed in a file or on standard input: read within bounds; what is wrong with it, in a few words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
JSON_BYTES_MAX: Final = 64 << 20
"""More than any payload or proof may have: a file without an end is a mistake, and must not take the memory."""


class Unreadable(Exception):
    """It cannot be had, or is not what it should be; says why."""


def bytes_of(path: Path, bytes_max: int | None = None) -> bytes:
    """All that is in the file; `-` is standard input."""
    wanted = -1 if bytes_max is None else bytes_max + 1
    try:
        if str(path) != "-":
            with path.open("rb") as file:
                raw = file.read(wanted)
        elif sys.stdin is None:
            raise Unreadable("standard input is closed")
        else:
            raw = sys.stdin.buffer.read(wanted)
    except OSError as fault:
        raise Unreadable(fault.strerror or str(fault)) from fault
    if bytes_max is not None and len(raw) > bytes_max:
        raise Unreadable(f"more than {bytes_max >> 20} MiB")
    return raw


def json_of(path: Path, type_: type[T] = Any) -> T:  # type: ignore[assignment]
    """The JSON value in the file."""
    try:
        return msgspec.json.decode(bytes_of(path, JSON_BYTES_MAX), type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Unreadable(str(fault)) from fault
    except RecursionError as fault:
        raise Unreadable("JSON that is nested too deeply") from fault
