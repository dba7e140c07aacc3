"""Every command of `holdfast`, by its words, and one that is run in this process."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import typer

from holdfast.cli import app

ROOT: Any = typer.main.get_command(app)


def commands(found: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command and every group of commands, by its words."""
    yield " ".join(path), found
    if hasattr(found, "list_commands"):
        for name in found.list_commands(None):
            yield from commands(found.get_command(None, name), (*path, name))


ALL = dict(commands())
ROOT.get_command = lambda _, name: ALL.get(name)
"""Built once: what is run here is what was walked over."""
LEAVES = {words: found for words, found in ALL.items() if not hasattr(found, "list_commands")}


class Ended(NamedTuple):
    """How a command ended in this process."""

    code: int
    out: str
    err: str


def run_here(*words: object) -> Ended:
    """Without a terminal and without input; an exception that is no exit is the caller's."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            ROOT.main(args=[*map(str, words)], prog_name="holdfast")
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Ended(code, out.getvalue(), err.getvalue())
