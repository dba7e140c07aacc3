"""The screen for a terminal: one calm frame, redrawn a few times a second, that fits 80 × 24."""

from __future__ import annotations

import textwrap
import time
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.demonstration.board import Board, Mark, Seat, clock

WIDTH_MIN, HEIGHT_MIN, WIDTH_MAX = 80, 24, 110
ROWS: Final = 7
"""Lines inside the lower panels: nothing jumps when the content changes."""
FRAMES_PER_S: Final = 8
DIM, EDGE = "#868887", "#5b6675"
_WAIT_SHOWN_S: Final = 0.25
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
        self._live.console.print("", *(Text(f" {line}") for line in board.closing), sep="\n", soft_wrap=True)

    def _draw(self, board: Board) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(frame(board, self._width), refresh=True)


def fits(console: Console) -> bool:
    """Whether this is a terminal on which the frame can be drawn over and over."""
    is_drawable = console.is_terminal and not console.is_dumb_terminal
    return is_drawable and console.width >= WIDTH_MIN and console.height >= HEIGHT_MIN


def frame(board: Board, width: int) -> RenderableType:
    """All of it; the last frame makes room for what to do next."""
    header, sentence, figures = _header(board), _sentence(board), _figures(board)
    if board.closing and board.checks:
        return Constrain(Group(header, Text(), _proof(board), sentence, Text(), figures), width)
    lower = _proof(board) if board.checks else _processes_and_news(board, width)
    folder = Text(f" {board.folder}", style=DIM, no_wrap=True)
    return Constrain(Group(header, Text(), _custody(board, width), lower, sentence, Text(), figures, folder), width)


def _header(board: Board) -> Text:
    line = Text(" ", no_wrap=True)
    line.append("holdfast demo", "bold").append(f"  {clock(board.elapsed_s)}  ", DIM)
    if board.act:
        line.append(f"act {board.act} of {board.acts}: ", DIM)
        line.append(board.title, f"bold {Mark.STUCK.colour}" if board.node[0] is Mark.STUCK else "bold")
    return line


def _sentence(board: Board) -> Text:
    return Text(f" {board.sentence}", style="bold", no_wrap=True)


def _panel(inside: RenderableType, title: str, rows: int | None = None) -> Panel:
    height = None if rows is None else rows + 2
    return Panel(
        inside, title=Text(title, style=DIM), box=box.ROUNDED, border_style=EDGE, padding=(0, 1), height=height
    )


# ------------------------------------------------------------------------------------------------ who holds what


def _custody(board: Board, width: int) -> Panel:
    cells = width - 65
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(width=cells)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    heads = [(Mark.HELD, "held"), (Mark.IN_FLIGHT, "in flight"), (Mark.CONFIRMED, "confirmed")]
    table.add_row(
        Text("hand-off", DIM), "", *(Text(f"{mark.glyph} ", mark.colour).append(name, DIM) for mark, name in heads)
    )
    rows = [
        ("1 command", "client → journal", (0, board.in_flight, board.confirmed)),
        ("2 money", "payer → provider", (board.held, board.pending, board.final)),
    ]
    for name, way, counts in rows:
        marked = [(mark, n) for (mark, _), n in zip(heads, counts, strict=True)]
        numbers = (Text(f"{n:,}" if n else "", mark.colour) for mark, n in marked)
        table.add_row(Text(f"{name:<11}").append(way, DIM), _bar(marked, cells), *numbers)
    return _panel(table, "chain of custody")


def _bar(counts: list[tuple[Mark, int]], cells: int) -> Text:
    """Shares of a line; what is there at all has at least one cell."""
    total = sum(n for _, n in counts)
    if not total:
        return Text("─" * cells, EDGE)
    shares = [max(1, n * cells // total) if n else 0 for _, n in counts]
    shares[shares.index(max(shares))] += cells - sum(shares)
    bar = Text()
    for (mark, _), share in zip(counts, shares, strict=True):
        bar.append("█" * share, mark.colour)
    return bar


# ------------------------------------------------------------------------------------------------ who is doing what


def _processes_and_news(board: Board, width: int) -> Table:
    left = min(48, width // 2)
    table = Table.grid(expand=True)
    table.add_column(width=left)
    table.add_column(ratio=1)
    news = _panel(_news(board, width - left - 4), "what just happened", ROWS)
    table.add_row(_panel(_processes(board), "processes", ROWS), news)
    return table


def _processes(board: Board) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(justify="right", no_wrap=True)
    mark, says = board.node
    table.add_row(Text(f"{mark.glyph} ", mark.colour).append("node", "bold"), Text(says, mark.colour), _events(board))
    table.add_row("", "", "")
    for seat in board.seats:
        table.add_row(*_seat(seat))
    return table


def _events(board: Board) -> Text:
    """How many events the journal holds."""
    return Text(f"{board.events:,}", DIM).append(f" {Mark.HELD.glyph}", Mark.HELD.colour)


def _seat(seat: Seat) -> tuple[Text, Text, Text]:
    if not seat.sent:
        return Text(f"{Mark.LET_GO.glyph} {seat.name}", DIM), Text(), Text()
    count = Text(f"{seat.confirmed:,}", DIM).append(" ✔", Mark.CONFIRMED.colour)
    mark, says = Mark.CONFIRMED, f"{seat.last or ''}"
    if seat.waiting is not None and seat.waiting_s >= _WAIT_SHOWN_S:
        mark, says = Mark.IN_FLIGHT, f"{seat.waiting} … {seat.waiting_s:.1f} s"
    return Text(f"{mark.glyph} ", mark.colour).append(seat.name, "default"), Text(says, DIM), count


def _news(board: Board, width: int) -> Text:
    """The newest lines that fit, the newest of all in full colour."""
    lines: list[Text] = []
    for news in board.news[-ROWS:]:
        is_newest = news is board.news[-1]
        for at, part in enumerate(textwrap.wrap(news.text, width - 7)):
            head = f"{clock(news.at_s)} " if at == 0 else " " * (len(clock(news.at_s)) + 1)
            line = Text(head, EDGE).append(f"{news.mark.glyph} " if at == 0 else "  ", news.mark.colour)
            lines.append(line.append(part, "default" if is_newest else DIM))
    return Text("\n").join(lines[-ROWS:])


# ------------------------------------------------------------------------------------------------ what is proven


def _proof(board: Board) -> Panel:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1, justify="right")
    for check in board.checks:
        mark = Mark.CONFIRMED if check.is_good else Mark.STUCK
        table.add_row(
            Text(f"{mark.glyph} ", mark.colour).append(check.label, "default"), Text(check.found, mark.colour)
        )
    return _panel(table, "the proof: everything read again from the store", ROWS)


def _figures(board: Board) -> Text:
    line = Text(" ", no_wrap=True)
    faults = f"{board.faults} of {board.faults_planned}"
    figures = [
        ("sent", f"{board.sent:,}", "bold"),
        ("confirmed", f"{board.confirmed:,}", f"bold {Mark.CONFIRMED.colour}"),
        ("lost", f"{board.lost}", f"bold {_good(board.lost == 0)}"),
        ("done twice", f"{board.twice}", f"bold {_good(board.twice == 0)}"),
        ("faults survived", faults, f"bold {Mark.CONFIRMED.colour}" if board.faults else "bold"),
    ]
    for name, value, style in figures:
        line.append(f"{name} ", DIM).append(value, style).append("   ")
    return line


def _good(is_good: bool) -> str:
    return (Mark.CONFIRMED if is_good else Mark.STUCK).colour
