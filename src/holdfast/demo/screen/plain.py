"""The screen for pipes, logs and CI: one plain line per event, without control codes."""

from __future__ import annotations

from typing import Final

from holdfast.demo.screen.board import Board, TextPage, figures, format_elapsed

FIGURES_EVERY_S: Final = 2.0


class PlainScreen:
    """Prints what is new since the last call."""

    def __init__(self) -> None:
        self._act, self._news, self._checks = -1, 0, 0
        self._sentence = ""
        self._page: TextPage | None = None
        self._figures_at = 0.0

    def show(self, board: Board) -> None:
        if self._act < 0:
            self._act = 0
            print(f"holdfast demo: real processes on this machine; shortened times: {board.pace}")
            print(f"folder {board.folder}")
        if board.act != self._act:
            self._act = board.act
            print(f"\nact {board.act} of {board.acts_total}: {board.title}")
        if board.sentence != self._sentence:
            self._sentence = board.sentence
            print(f"      “{board.sentence}”")
        for news in board.news[self._news :]:
            print(f"{format_elapsed(news.at_s):>5} {news.state.glyph} {news.text}")
        self._show_page(board.page)
        for check in board.checks[self._checks :]:
            print(f"      {'✔' if check.is_good else '▲'} {check.label}: {check.detail}")
        self._news, self._checks = len(board.news), len(board.checks)
        if not board.checks and board.submitted and board.elapsed_s - self._figures_at >= FIGURES_EVERY_S:
            self._figures_at = board.elapsed_s
            print(f"{format_elapsed(board.elapsed_s):>5}   {figures_line(board)}", flush=True)

    def _show_page(self, page: TextPage | None) -> None:
        if page is not None and page is not self._page:
            print(f"\n      {page.title}")
            for state, text in page.lines:
                print(f"      {state.glyph} {text}")
            print()
        self._page = page

    def close(self, board: Board) -> None:
        self.show(board)
        print(f"\n{figures_line(board)}")
        print("", *board.closing_lines, sep="\n", flush=True)


def figures_line(board: Board) -> str:
    return "  ".join(f"{name} {value}" for name, value, _ in figures(board))
