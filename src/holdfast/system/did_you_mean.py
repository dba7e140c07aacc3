"""The known name that is closest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

NAME_MAX: Final = 64
"""Longer names are cut before they are compared: the comparison is quadratic (SEC-001)."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, None where none is close."""
    close = get_close_matches(name[:NAME_MAX], list(known), n=1)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint that names the closest known name, or `otherwise`."""
    close = closest(name, known)
    return f"did you mean {close}?" if close is not None else otherwise
