"""Files and standard input that a verb reads: bounded in size, with a short reason where they cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast.system.strict_json import decode_json

T = TypeVar("T")
JSON_BYTES_MAX: Final = 64 << 20
"""More than any payload or proof may have. An endless file is a mistake and must not exhaust the memory."""


class UnreadableInput(Exception):
    """The input cannot be read or has the wrong form; the text says why."""


def read_bytes(path: Path, bytes_max: int | None = None) -> bytes:
    """The whole file; `-` is standard input."""
    limit = -1 if bytes_max is None else bytes_max + 1
    try:
        if str(path) != "-":
            with path.open("rb") as file:
                raw = file.read(limit)
        elif sys.stdin is None:
            raise UnreadableInput("standard input is closed")
        else:
            raw = sys.stdin.buffer.read(limit)
    except OSError as fault:
        raise UnreadableInput(fault.strerror or str(fault)) from fault
    if bytes_max is not None and len(raw) > bytes_max:
        raise UnreadableInput(f"more than {bytes_max >> 20} MiB")
    return raw


def read_json(path: Path, type_: type[T] = Any) -> T:  # type: ignore[assignment]
    """The JSON value in the file."""
    try:
        return decode_json(read_bytes(path, JSON_BYTES_MAX), type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise UnreadableInput(str(fault)) from fault
    except RecursionError as fault:
        raise UnreadableInput("JSON that is nested too deeply") from fault
