"""The screen for pipes, logs and CI: one plain line for everything that happens, no control codes."""

from __future__ import annotations

from typing import Final

from holdfast.cli.demonstration.board import Board, clock

FIGURES_EVERY_S: Final = 2.0


class PlainScreen:
    """Prints what is new since the last time."""

    def __init__(self) -> None:
        self._act, self._news, self._checks = -1, 0, 0
        self._sentence = ""
        self._figures_at = 0.0

    def show(self, board: Board) -> None:
        if self._act < 0:
            self._act = 0
            print(f"holdfast demo: real processes, sample money\nfolder {board.folder}")
        if board.act != self._act:
            self._act = board.act
            print(f"\nact {board.act} of {board.acts}: {board.title}")
        if board.sentence != self._sentence:
            self._sentence = board.sentence
            print(f"      “{board.sentence}”")
        for news in board.news[self._news :]:
            print(f"{clock(news.at_s):>5} {news.mark.glyph} {news.text}")
        for check in board.checks[self._checks :]:
            print(f"      {'✔' if check.is_good else '▲'} {check.label}: {check.found}")
        self._news, self._checks = len(board.news), len(board.checks)
        if not board.checks and board.sent and board.elapsed_s - self._figures_at >= FIGURES_EVERY_S:
            self._figures_at = board.elapsed_s
            print(f"{clock(board.elapsed_s):>5}   {figures(board)}", flush=True)

    def close(self, board: Board) -> None:
        self.show(board)
        print(f"\n{figures(board)}")
        print("", *board.closing, sep="\n", flush=True)


def figures(board: Board) -> str:
    return (
        f"sent {board.sent}  confirmed {board.confirmed}  lost {board.lost}  done twice {board.twice}"
        f"  faults survived {board.faults} of {board.faults_planned}"
    )
