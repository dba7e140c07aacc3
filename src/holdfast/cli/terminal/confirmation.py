"""A question before what cannot be undone: asked on a terminal, refused by name where there is no terminal."""

from __future__ import annotations

import sys

from holdfast.cli.terminal.reporting import refuse
from holdfast.core.base.errors import Refused


def confirm(question: str, rule: str, *, yes: bool) -> None:
    """Go on after `--yes` or an answer of yes; anything else changes nothing and ends the command."""
    if yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        refuse(
            Refused(
                rule, f"{question} There is no terminal to ask on", "pass --yes: it cannot be undone", "NotConfirmed"
            )
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        refuse(Refused(rule, "nothing was changed", "answer y, or pass --yes", "NotConfirmed"))
