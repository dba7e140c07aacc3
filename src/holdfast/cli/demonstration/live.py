"""The screen for a terminal: one calm frame, redrawn a few times a second, that fits 80 × 24."""

from __future__ import annotations

import textwrap
import time
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.demonstration.board import Board, Mark, Seat, clock

WIDTH_MIN, HEIGHT_MIN, WIDTH_MAX = 80, 24, 110
ROWS: Final = 7
"""Lines inside the lower panels: nothing jumps when the content changes."""
FRAMES_PER_S: Final = 8
DIM: Final = "#868887"
EDGE: Final = "#5b6675"
_WAITING_SHOWN_S: Final = 0.25
"""An answer that comes sooner is not worth a flicker."""


class LiveScreen:
    """Draws the board with rich."""

    def __init__(self, console: Console) -> None:
        self._width = min(console.width, WIDTH_MAX)
        self._live = Live(console=console, auto_refresh=False)
        self._drawn = 0.0

    def show(self, board: Board) -> None:
        now = time.monotonic()
        if now - self._drawn >= 1 / FRAMES_PER_S:
            self._draw(board)
            self._drawn = now

    def close(self, board: Board) -> None:
        self._draw(board)
        self._live.stop()

    def _draw(self, board: Board) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(frame(board, self._width), refresh=True)


def fits(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and console.width >= WIDTH_MIN and (
        console.height >= HEIGHT_MIN
    )


def frame(board: Board, width: int) -> RenderableType:
    parts: list[RenderableType] = [_header(board, width), Text()]
    if board.closing:
        parts += [_proof(board), _sentence(board), Text(), _figures(board, width), Text()]
        return Group(*parts, *(Text(f" {line}", overflow="fold") for line in board.closing), width=width) if False else _wide(parts + [Text(f" {line}") for line in board.closing], width)
    parts.append(_custody(board, width))
    parts.append(_proof(board) if board.checks else _processes_and_news(board, width))
    parts += [_sentence(board), Text(), _figures(board, width), Text(f" {board.folder}", style=DIM, no_wrap=True)]
    return _wide(parts, width)
