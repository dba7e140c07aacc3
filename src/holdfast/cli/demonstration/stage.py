"""What an act works with: the node, the agents, the board, and waiting that watches over all of them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast.cli.demonstration import history, spools
from holdfast.cli.demonstration.board import Board, Mark, News, Screen
from holdfast.cli.demonstration.children import Children, Trouble
from holdfast.cli.demonstration.history import History
from holdfast.cli.demonstration.jobs import MODELS, all_jobs
from holdfast.cli.demonstration.notebook import Notebook
from holdfast.cli.demonstration.pace import Pace
from holdfast.client import Client, NodeRefused, NodeUnreachable
from holdfast.config import Config

T = TypeVar("T")
PATIENCE_S: Final = 60.0
"""For anything that must happen: a slow machine may take its time, a stuck one is reported."""
TICK_S: Final = 0.04
JUDGE_EVERY_S: Final = 0.4
PORTS: Final = range(20_000, 32_768)
"""Below the range from which the system gives out its own."""


class Stage:
    """One run. Pauses are shares of its rough length, waiting is as long as it takes."""

    def __init__(self, folder: Path, config: Config, pace: Pace, children: Children, screen: Screen) -> None:
        self.folder, self.config, self.data, self.children = folder, config, config.data, children
        self.pace, self._screen = pace, screen
        self.notebook = Notebook(folder / "receipts.jsonl")
        self.board = Board(folder, str(pace), all_jobs(pace), notes=self.notebook.notes)
        self.port = free_port()
        self.recovered_s: list[float] = []
        self._looked = 0.0
        self._witness: asyncio.Task[None] | None = None

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
        end = time.monotonic() + share * self.pace.seconds
        while time.monotonic() < end:
            await self.tick()

    async def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait for something that must come, and return it."""
        end = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            if time.monotonic() > end:
                raise Trouble(f"{what}: not within {PATIENCE_S:g} s")
            await self.tick()
        return found

    async def within(self, work: Awaitable[T], what: str) -> T:
        """One thing that must end: as long as it may take here, and never for ever."""
        patience_s = PATIENCE_S + self.pace.seconds
        try:
            async with asyncio.timeout(patience_s):  # not wait_for: on Python 3.11 it may drop a Ctrl-C
                return await work
        except TimeoutError:
            raise Trouble(f"{what}: not within {patience_s:g} s") from None

    async def tick(self) -> None:
        self.children.check_alive()
        if time.monotonic() - self._looked >= JUDGE_EVERY_S:
            self._looked = time.monotonic()
            await self.look_at_spools()
            if not self.board.checks:
                self.board.judge()
        self._screen.show(self.board)
        await asyncio.sleep(TICK_S)

    # ------------------------------------------------------------------------------------ what is stored

    async def look_at_spools(self) -> None:
        for seat in self.board.seats.values():
            seat.spooled = await asyncio.to_thread(spools.spooled, self.folder / seat.name)

    def watch(self) -> None:
        """Follow the node's events; after a fault its whole history is read again, from the first event."""
        self._witness = asyncio.create_task(self._watch())

    async def stop_watching(self, end: History) -> None:
        """From now on this is what the store says."""
        if self._witness is not None:
            self._witness.cancel()
            await asyncio.gather(self._witness, return_exceptions=True)  # our own cancelling goes on
        self.board.history = end

    async def _watch(self) -> None:
        while True:
            fresh = History()
            # A node that dies may break off in the middle of a line.
            with suppress(OSError, NodeRefused, NodeUnreachable, msgspec.DecodeError):
                async with aclosing(history.follow(self.data, fresh)) as numbers:
                    async for number in numbers:
                        if number >= self.board.history.last:
                            self.board.history = fresh
            await asyncio.sleep(TICK_S)

    # ------------------------------------------------------------------------------------ the players

    async def start_node(self) -> float:
        """Returns how long it took from the start of the process to its first answer."""
        begun = time.monotonic()
        door = {"grpc.enabled": True, "grpc.port": self.port}
        pid = self.children.start_node(self.config, {**self.pace.settings(), **door})
        self.board.node = (Mark.IN_FLIGHT, f"starting, pid {pid}")
        while time.monotonic() - begun < PATIENCE_S:
            with suppress(NodeUnreachable):
                async with Client(self.data, patience_s=0) as node:
                    await node.status()
                self.board.node = (Mark.CONFIRMED, f"up, pid {pid}")
                return time.monotonic() - begun
            await self.tick()
        raise Trouble(f"the node did not answer within {PATIENCE_S:g} s; see {self.folder / 'node.log'}")

    def start_agent(self, name: str) -> int:
        pid = self.children.start_agent(name, f"127.0.0.1:{self.port}", MODELS)
        self.board.seats[name].state = (Mark.CONFIRMED, f"up, pid {pid}")
        return pid

    async def ask(self, method: str, **params: object) -> Any:
        """One question to the node, with an answer."""
        async with Client(self.data, PATIENCE_S) as node:
            return await self.within(node.call(method, **params), f"the node answers {method}")

    async def stop_agents(self) -> None:
        """Each finishes, delivers and ends well; one that only just begins has its first word first."""
        for name in self.board.seats:
            await self.until(partial(self.children.is_at_work, name), f"{name} is at work")
        await asyncio.gather(*(asyncio.to_thread(self.children.stop, name) for name in self.board.seats))
        for seat in self.board.seats.values():
            seat.state = (Mark.LET_GO, "stopped")


def free_port() -> int:
    """A loopback port for the node; not the first one, so that two demos at once look in different places."""
    first = os.getpid() * 7 % len(PORTS)
    for port in chain(PORTS[first:], PORTS[:first]):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Trouble(f"no free port on 127.0.0.1 from {PORTS.start} to {PORTS.stop - 1}")
