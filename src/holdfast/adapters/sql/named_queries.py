"""Reads the .sql files of this folder: queries by name, migrations by number."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.core.base.errors import Corrupt

FORMAT: Final = 1
"""Of journal, tables and index: data of another format are not read. Migrations are the steps within one format."""
OLD_VERSIONS: Final = "schema_version"
"""The table by which 0.4 and before numbered their schemas."""
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
    folder = files(__package__) / "migrations" / schema
    steps = sorted((int(match[1]), entry) for entry in folder.iterdir() if (match := _FILE.fullmatch(entry.name)))
    numbers = [number for number, _ in steps]
    assert numbers == list(range(1, len(steps) + 1)), f"migrations of {schema} are not numbered 1, 2, 3 …: {numbers}"
    return tuple(entry.read_text(encoding="utf-8") for _, entry in steps)


def check_version(where: str, schema: str, have: int, known: int) -> None:
    """Corrupt if a newer program has written: this one cannot know what its schema means."""
    if have > known:
        raise Corrupt(
            "ENG-004",
            f"{where} has schema {have} of '{schema}', this program knows {known}",
            "it was written by a newer Holdfast: use that version, or restore an older backup",
        )


def check_format(where: str, schema: str, have: int | None) -> None:
    """Corrupt where the data have another format, or none, as those of 0.4 and before: nothing else of them is read."""
    if have != FORMAT:
        written = "no format number" if have is None else f"format {have}"
        raise Corrupt(
            "ENG-003",
            f"{where} was written by another version of Holdfast: it has {written} of '{schema}', not {FORMAT}",
            "use that version; or begin with an empty folder or schema, and import an export (holdfast db import)",
        )
