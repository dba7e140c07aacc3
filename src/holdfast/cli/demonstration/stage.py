"""What an act works with: the node, the clients, the board, and waiting that watches over all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from hashlib import sha3_256
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.cli.demonstration import history
from holdfast.cli.demonstration.board import CUSTOMERS, Board, Mark, News, Screen, Seat
from holdfast.cli.demonstration.children import Children, Trouble
from holdfast.cli.demonstration.customer import REQUESTER
from holdfast.cli.demonstration.history import History
from holdfast.cli.demonstration.notebook import Note, Notebook, Reader, Said
from holdfast.cli.demonstration.verdict import Verdict, judge
from holdfast.client import Client, NodeRefused, NodeUnreachable
from holdfast.config import Config

T = TypeVar("T")
FAULTS: Final = 3
PATIENCE_S: Final = 60.0
"""For anything that must happen: a slow machine may take its time, a stuck one is reported."""
TICK_S: Final = 0.04
JUDGE_EVERY_S: Final = 1.0
PAUSE_MS: Final = 6
"""Between two commands of one client: enough load to be in the middle of it, and a picture one can read."""
MINTED: Final = 10_000_000


class Stage:
    """One run. `seconds` is its rough length: pauses are shares of it, waiting is as long as it takes."""

    def __init__(self, folder: Path, config: Config, seconds: float, children: Children, screen: Screen) -> None:
        self.folder, self.config, self.data, self.children = folder, config, config.data, children
        self._seconds, self._screen = seconds, screen
        (folder / "notes").mkdir()
        bank, *seats = (Seat(name, Reader(self._notes_of(name))) for name in ("bank", *CUSTOMERS))
        self.board = Board(folder, seats, bank, FAULTS)
        self.recovered_s: list[float] = []
        self._history, self._judged = History(), 0.0
        self._witness: asyncio.Task[None] | None = None

    def _notes_of(self, name: str) -> Path:
        return self.folder / "notes" / f"{name}.jsonl"

    # ------------------------------------------------------------------------------------ the screen

    def tell(self, mark: Mark, text: str) -> None:
        self.board.news.append(News(self.board.elapsed_s, mark, text))
        self._screen.show(self.board)

    def say(self, sentence: str) -> None:
        self.board.sentence = sentence

    def close(self) -> None:
        self._screen.close(self.board)

    # ------------------------------------------------------------------------------------ waiting

    async def pause(self, share: float) -> None:
        """Let it run, or let it be read, for a share of the whole length."""
        end = time.monotonic() + share * self._seconds
        while time.monotonic() < end:
            await self.tick()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise Trouble(f"{what}: not within {PATIENCE_S:g} s")
            await self.tick()

    async def within(self, work: Awaitable[T], what: str) -> T:
        """One thing that must end: as long as it may take here, and never for ever."""
        patience_s = PATIENCE_S + self._seconds
        try:
            return await asyncio.wait_for(work, patience_s)
        except TimeoutError:
            raise Trouble(f"{what}: not within {patience_s:g} s") from None

    async def tick(self) -> None:
        self.children.check_alive()
        self.board.read()
        seen, board = self._history, self.board
        if not board.checks and time.monotonic() - self._judged >= JUDGE_EVERY_S:
            self._judged = time.monotonic()
            self.show_verdict(judge((note for note in board.notes if note.event <= seen.last), seen))
        board.held, board.pending, board.final = seen.open, seen.pending, seen.final
        board.events, board.faults = seen.last, max(0, seen.epochs - 1)
        if board.node[0] is Mark.CONFIRMED:
            board.node = (Mark.CONFIRMED, f"up, epoch {seen.epochs}")
        self._screen.show(board)
        await asyncio.sleep(TICK_S)

    # ------------------------------------------------------------------------------------ the store

    def show_verdict(self, verdict: Verdict) -> None:
        self.board.lost, self.board.twice = len(verdict.lost), len(verdict.twice)

    def watch(self) -> None:
        """Follow the node's events; after a fault its whole history is read again, from the first event."""
        self._witness = asyncio.create_task(self._watch())

    async def stop_watching(self, end: History) -> None:
        """From now on this is what the store says."""
        self._history = end
        if self._witness is not None:
            self._witness.cancel()
            with suppress(asyncio.CancelledError):
                await self._witness

    async def _watch(self) -> None:
        while True:
            fresh = History()
            # A node that dies may break off in the middle of a line.
            with suppress(OSError, NodeRefused, msgspec.DecodeError):
                async with aclosing(history.follow(self.data, fresh)) as numbers:
                    async for number in numbers:
                        if number >= self._history.last:
                            self._history = fresh
            await asyncio.sleep(TICK_S)

    # ------------------------------------------------------------------------------------ the players

    async def start_node(self) -> float:
        """Returns how long it took from the start of the process to its first answer."""
        begun = time.monotonic()
        pid = self.children.start_node(self.config)
        self.board.node = (Mark.IN_FLIGHT, f"starting, pid {pid}")
        while time.monotonic() - begun < PATIENCE_S:
            with suppress(NodeUnreachable):
                async with Client(self.data, patience_s=0) as node:
                    await node.status()
                self.board.node = (Mark.CONFIRMED, "up")
                return time.monotonic() - begun
            await self.tick()
        raise Trouble(f"the node did not answer within {PATIENCE_S:g} s; see {self.folder / 'node.log'}")

    async def mint(self) -> Note:
        id_ = sha3_256(b"holdfast demo mint").digest()
        asked = Note(Said.ASKED, "mint", id_.hex(), MINTED)
        with Notebook(self._notes_of("bank")) as book:
            book.write(asked)
            async with Client(self.data) as node:
                answer = await self.within(node.mint(id_, REQUESTER, MINTED), "the node mints")
            book.write(note := replace(asked, said=Said.CONFIRMED, event=answer["event"]))
        return note

    def start_customers(self) -> None:
        for name in CUSTOMERS:
            self.children.start_customer(name, str(self.data), name, str(self._notes_of(name)), str(PAUSE_MS))

    async def stop_customers(self) -> None:
        for name in CUSTOMERS:
            await asyncio.to_thread(self.children.stop, name)
        self.board.read()

    async def until_all_go_on(self, more: int = 1) -> None:
        """Every client has had so many further confirmations."""
        wanted = [(seat, seat.confirmed + more) for seat in self.board.seats]
        await self.until(lambda: all(seat.confirmed >= count for seat, count in wanted), "every client gets an answer")
