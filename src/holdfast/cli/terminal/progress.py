"""A bar of progress on standard error, overwritten in place and shown only on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Final

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Height

REFRESH_S: Final = 0.2
MIB: Final = 1 << 20
BAR_WIDTH: Final = 24
_CLEAR_LINE: Final = "\r\033[K"


class ProgressLine:
    """Prints `doing: …` at most a few times a second; callers pass one of its methods as a callback.

    `total` is how many batches or blocks there are, where the caller knows: then there is a bar.
    """

    def __init__(self, doing: str, total: int | None = None) -> None:
        self._doing, self._next_s, self._is_shown = doing, time.monotonic() + REFRESH_S, False
        self.total = total

    def show_batch(self, head: JournalHead) -> None:
        if self._is_due():
            self._print(f"{self._bar(head.number)}batch {head.number}, event {head.last}")

    def show_height(self, height: Height) -> None:
        if self._is_due():
            self._print(f"{self._bar(height)}block {height}")

    def show_count(self, done: int, total: int, what: str) -> None:
        if self._is_due():
            self._print(f"{format_bar(done, total)} {done} of {max(done, total)} {what}")

    def show_bytes(self, done: int, total: int) -> None:
        if self._is_due():
            self._print(f"{format_bar(done, total)} {done // MIB} of {total // MIB} MiB")

    def show_text(self, text: str) -> None:
        if self._is_due():
            self._print(text)

    def end(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)

    def _bar(self, done: int) -> str:
        return "" if self.total is None else f"{format_bar(done, self.total)} "

    def _is_due(self) -> bool:
        return time.monotonic() >= self._next_s and sys.stderr.isatty()

    def _print(self, text: str) -> None:
        self._next_s, self._is_shown = time.monotonic() + REFRESH_S, True
        print(f"{_CLEAR_LINE}{self._doing}: {text}", end="", file=sys.stderr, flush=True)


def format_bar(done: int, total: int) -> str:
    """`[#####...] 62 %`; what grows while it is done is never above all of it."""
    part = min(1.0, done / total) if total > 0 else 1.0
    filled = int(BAR_WIDTH * part)
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {int(100 * part):>3} %"
