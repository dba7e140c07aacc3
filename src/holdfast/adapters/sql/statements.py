"""Reads the .sql files of this folder: queries by name, migrations by number."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.core.refusal import Corrupt

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_FILE: Final = re.compile(r"(\d{4})_\w+\.sql")
_PLACE: Final = re.compile(r"\?(\d+)")


@cache
def queries(file: str) -> dict[str, str]:
    """The statements of `file`.sql by name."""
    text = (files(__package__) / f"{file}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def postgres_queries(file: str) -> dict[str, str]:
    """The portable statements of `file`.sql with $1 for ?1, below those that PostgreSQL says differently."""
    portable = {name: _PLACE.sub(r"$\1", text) for name, text in queries(file).items()}
    return portable | queries(f"postgres_{file}")


@cache
def migrations(schema: str) -> tuple[str, ...]:
    """The schema's migrations in order; number n is at n − 1 and none is missing."""
    found = {}
    for entry in (files(__package__) / "migrations" / schema).iterdir():
        if match := _FILE.fullmatch(entry.name):
            found[int(match[1])] = entry.read_text(encoding="utf-8")
    assert sorted(found) == list(range(1, len(found) + 1)), f"migrations of {schema} are not numbered 1, 2, 3 …"
    return tuple(found[number] for number in sorted(found))


def check_version(where: str, schema: str, have: int, known: int) -> None:
    """Corrupt where a newer program has written: what it meant cannot be known here."""
    if have > known:
        raise Corrupt(
            "ENG-004",
            f"{where} has schema {have} of '{schema}', this program knows {known}",
            "it was written by a newer Holdfast: use that version, or restore an older backup",
        )
