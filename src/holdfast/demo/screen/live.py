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

from holdfast.demo.screen.board import AgentPanel, Board, StateGlyph, TextPage, figures, format_elapsed

WIDTH_MIN, HEIGHT_MIN, WIDTH_MAX = 80, 24, 110
ROWS: Final = 7
"""Lines inside the lower panels; fixed, so that nothing jumps when the content changes."""
PAGE_ROWS: Final = 14
FRAMES_PER_S: Final = 8
DIM, EDGE = "#868887", "#5b6675"


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
        self._live.console.print("", *(Text(f" {line}") for line in board.closing_lines), sep="\n", soft_wrap=True)

    def _draw(self, board: Board) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(frame(board, self._width), refresh=True)


def is_large_enough(console: Console) -> bool:
    """Whether this is a terminal on which the frame can be redrawn."""
    is_drawable = console.is_terminal and not console.is_dumb_terminal
    return is_drawable and console.width >= WIDTH_MIN and console.height >= HEIGHT_MIN


def frame(board: Board, width: int) -> RenderableType:
    """The whole frame: the moving panels, or a page to read, or the proof."""
    top = (_header(board), Text(f" shortened times: {board.pace}", style=DIM, no_wrap=True))
    bottom = (_sentence(board), Text(), _figures(board))
    if board.checks:
        return Constrain(Group(*top, _proof(board), *bottom), width)
    folder = Text(f" {board.folder}", style=DIM, no_wrap=True)
    if board.page is not None:
        return Constrain(Group(*top, _page(board.page), *bottom, folder), width)
    return Constrain(Group(*top, _custody(board, width), _providers_and_news(board, width), *bottom, folder), width)


def _header(board: Board) -> Text:
    line = Text(" ", no_wrap=True)
    line.append("holdfast demo", "bold").append(f"  {format_elapsed(board.elapsed_s)}  ", DIM)
    if board.act:
        line.append(f"act {board.act} of {board.acts_total}: ", DIM)
        is_broken = StateGlyph.STUCK in (board.node[0], *(panel.state[0] for panel in board.agents.values()))
        line.append(board.title, f"bold {StateGlyph.STUCK.colour}" if is_broken else "bold")
    return line


def _sentence(board: Board) -> Text:
    return Text(f" {board.sentence}", style="bold", no_wrap=True)


def _panel(inside: RenderableType, title: str, rows: int | None = None) -> Panel:
    height = None if rows is None else rows + 2
    return Panel(
        inside, title=Text(title, style=DIM), box=box.ROUNDED, border_style=EDGE, padding=(0, 1), height=height
    )


# ------------------------------------------------------------------------------------------------ chain of custody


def _custody(board: Board, width: int) -> Panel:
    cells = width - 66
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(width=cells)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    heads = [(StateGlyph.HELD, "held"), (StateGlyph.IN_FLIGHT, "in flight"), (StateGlyph.CONFIRMED, "confirmed")]
    table.add_row(
        Text("transfer", DIM), "", *(Text(f"{state.glyph} ", state.colour).append(name, DIM) for state, name in heads)
    )
    for row in board.custody_rows():
        counts = (row.held, row.in_flight, row.confirmed)
        by_state = [(state, n) for (state, _), n in zip(heads, counts, strict=True)]
        numbers = (Text(f"{n:,}" if n else "", state.colour) for state, n in by_state)
        table.add_row(Text(f"{row.name:<11}").append(row.route, DIM), _bar(by_state, cells), *numbers)
    here = f", {sum(board.bytes_here):,} bytes of outputs on the node" if board.bytes_here is not None else ""
    return _panel(table, f"chain of custody{here}")


def _bar(counts: list[tuple[StateGlyph, int]], cells: int) -> Text:
    """A bar of shares; a count above zero has at least one cell."""
    total = sum(n for _, n in counts)
    if not total:
        return Text("─" * cells, EDGE)
    shares = [max(1, n * cells // total) if n else 0 for _, n in counts]
    shares[shares.index(max(shares))] += cells - sum(shares)
    bar = Text()
    for (state, _), share in zip(counts, shares, strict=True):
        bar.append("█" * share, state.colour)
    return bar


# ------------------------------------------------------------------------------------------------ node, providers, news


def _providers_and_news(board: Board, width: int) -> Table:
    left = min(48, width // 2)
    table = Table.grid(expand=True)
    table.add_column(width=left)
    table.add_column(ratio=1)
    news = _panel(_news(board, width - left - 4), "what just happened", ROWS)
    table.add_row(_panel(_providers(board), "node and providers", ROWS), news)
    return table


def _providers(board: Board) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(justify="right", no_wrap=True)
    state, text = board.node
    head = Text(f"block {board.history.head}", DIM) if board.history.head else Text()
    table.add_row(Text(f"{state.glyph} ", state.colour).append("node", "bold"), Text(text, state.colour), head)
    table.add_row("", Text("work, and its lease", DIM), Text("not acked", DIM))
    for panel in board.agents.values():
        table.add_row(*_agent_row(board, panel))
    return table


def _agent_row(board: Board, panel: AgentPanel) -> tuple[Text, Text, Text]:
    state, text = panel.state
    leases = board.history.live_leases_of(panel.name)
    if leases:
        lease = leases[0]
        job = board.job_of(lease.task_id)
        left_s = lease.deadline_ms / 1000 - time.time()
        what = f"job {job.number} {job.kind.name}" if job is not None else lease.task_id[:8]
        text = f"{what}, {max(0.0, left_s):.1f} s"
        state = state if state is StateGlyph.STUCK else StateGlyph.IN_FLIGHT
    count = board.unacked(panel.name)
    unacked = (
        Text(f"{count} ", DIM).append(StateGlyph.IN_FLIGHT.glyph, StateGlyph.IN_FLIGHT.colour) if count else Text()
    )
    return Text(f"{state.glyph} ", state.colour).append(panel.name, "default"), Text(text, DIM), unacked


def _news(board: Board, width: int) -> Text:
    """The newest lines that fit, the newest of all in full colour."""
    lines: list[Text] = []
    for news in board.news[-ROWS:]:
        is_newest = news is board.news[-1]
        for at, part in enumerate(textwrap.wrap(news.text, width - 7)):
            head = f"{format_elapsed(news.at_s)} " if at == 0 else " " * (len(format_elapsed(news.at_s)) + 1)
            line = Text(head, EDGE).append(f"{news.state.glyph} " if at == 0 else "  ", news.state.colour)
            lines.append(line.append(part, "default" if is_newest else DIM))
    return Text("\n").join(lines[-ROWS:])


# ------------------------------------------------------------------------------------------------ pages and proof


def _page(page: TextPage) -> Panel:
    lines = [Text(f"{state.glyph} ", state.colour).append(text, "default") for state, text in page.lines]
    return _panel(Text("\n", no_wrap=True).join(lines), page.title, PAGE_ROWS)


def _proof(board: Board) -> Panel:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, ratio=1, justify="right")
    for check in board.checks:
        state = StateGlyph.CONFIRMED if check.is_good else StateGlyph.STUCK
        table.add_row(
            Text(f"{state.glyph} ", state.colour).append(check.label, "default"), Text(check.detail, state.colour)
        )
    return _panel(table, "the proof: everything read again from the store")


def _figures(board: Board) -> Text:
    line = Text(" ", no_wrap=True)
    for name, value, is_good in figures(board):
        colour = "" if is_good is None else f" {(StateGlyph.CONFIRMED if is_good else StateGlyph.STUCK).colour}"
        line.append(f"{name} ", DIM).append(value, f"bold{colour}").append("   ")
    return line
