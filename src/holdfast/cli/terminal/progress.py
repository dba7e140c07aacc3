"""One line of progress on standard error, overwritten in place and shown only on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Final

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Height

REFRESH_S: Final = 0.2
MIB: Final = 1 << 20
_CLEAR_LINE: Final = "\r\033[K"


class ProgressLine:
    """Prints `doing: …` at most a few times a second; callers pass one of its methods as a callback."""

    def __init__(self, doing: str) -> None:
        self._doing, self._next_s, self._is_shown = doing, time.monotonic() + REFRESH_S, False

    def show_batch(self, head: JournalHead) -> None:
        if self._is_due():
            self._print(f"batch {head.number}, event {head.last}")

    def show_height(self, height: Height) -> None:
        if self._is_due():
            self._print(f"block {height}")

    def show_count(self, done: int, total: int, what: str) -> None:
        if self._is_due():
            self._print(f"{done} of {max(done, total)} {what}")

    def show_bytes(self, done: int, total: int) -> None:
        if self._is_due():
            self._print(f"{done // MIB} of {total // MIB} MiB, {100 * done // max(1, total)} %")

    def show_text(self, text: str) -> None:
        if self._is_due():
            self._print(f"{text}\033[K")

    def end(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)

    def _is_due(self) -> bool:
        return time.monotonic() >= self._next_s and sys.stderr.isatty()

    def _print(self, text: str) -> None:
        self._next_s, self._is_shown = time.monotonic() + REFRESH_S, True
        print(f"\r{self._doing}: {text}", end="", file=sys.stderr, flush=True)
