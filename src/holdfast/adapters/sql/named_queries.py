"""Reads the .sql files of this folder: queries by name, migrations by number."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.core.base.errors import Corrupt

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_FILE: Final = re.compile(r"(\d{4})_\w+\.sql")
_PLACEHOLDER: Final = re.compile(r"\?(\d+)")


@cache
def queries(file: str) -> dict[str, str]:
    """The statements of `file`.sql by name."""
    text = (files(__package__) / f"{file}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


@cache
def postgres_queries(file: str) -> dict[str, str]:
    """The statements of `file`.sql with $1 for ?1; those of postgres_`file`.sql override them."""
    portable = {name: _PLACEHOLDER.sub(r"$\1", text) for name, text in queries(file).items()}
    return portable | queries(f"postgres_{file}")


@cache
def migrations(schema: str) -> tuple[str, ...]:
    """The schema's migrations in order; number n is at index n − 1 and none is missing."""
    steps = {}
    for entry in (files(__package__) / "migrations" / schema).iterdir():
        if match := _FILE.fullmatch(entry.name):
            steps[int(match[1])] = entry.read_text(encoding="utf-8")
    assert sorted(steps) == list(range(1, len(steps) + 1)), f"migrations of {schema} are not numbered 1, 2, 3 …"
    return tuple(steps[number] for number in sorted(steps))


def check_version(where: str, schema: str, have: int, known: int) -> None:
    """Corrupt if a newer program has written: this one cannot know what its schema means."""
    if have > known:
        raise Corrupt(
            "ENG-004",
            f"{where} has schema {have} of '{schema}', this program knows {known}",
            "it was written by a newer Holdfast: use that version, or restore an older backup",
        )
