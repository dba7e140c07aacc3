"""What an act works with: the node, the agents, the board, and waiting that checks that all processes live."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.client.node_socket import NodeSocket
from holdfast.config import Config
from holdfast.demo import event_history, spools
from holdfast.demo.event_history import EventHistory
from holdfast.demo.jobs import MODELS, OWN_COMMAND, all_jobs
from holdfast.demo.lying_proxy import LyingProxy
from holdfast.demo.pace import Pace
from holdfast.demo.processes import DemoFailed, DemoProcesses
from holdfast.demo.receipts import ReceiptLog
from holdfast.demo.screen.board import Board, Check, News, Screen, StateGlyph
from holdfast.system.loopback import PORTS, find_free_port

T = TypeVar("T")
TIMEOUT_S: Final = 60.0
"""For anything that must happen: long enough for a slow machine, short enough to report a stuck one."""
TICK_S: Final = 0.04
TOKEN_FILE: Final = "archive.token"  # noqa: S105 - a file of the demo's folder
CHECK_EVERY_S: Final = 0.4


class DemoRun:
    """One run. Pauses are shares of its rough length; waiting takes as long as it takes."""

    def __init__(self, folder: Path, config: Config, pace: Pace, children: DemoProcesses, screen: Screen) -> None:
        self.folder, self.config, self.data, self.processes = folder, config, config.data, children
        self.pace, self._screen = pace, screen
        self.receipts = ReceiptLog(folder / "receipts.jsonl")
        self.board = Board(folder, str(pace), all_jobs(pace), records=self.receipts.records)
        self.port = _free_port()
        self.recovered_s: list[float] = []
        self.outputs: dict[int, bytes] = {}
        """Of every job, as far as they were read before the node deleted them."""
        self.fetch_check: Check | None = None
        self.proxy: LyingProxy | None = None
        self._gateway_port = self._archive_port = 0
        self._refreshed_s = 0.0
        self._follower: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------ the screen

    def report(self, state: StateGlyph, text: str) -> None:
        self.board.news.append(News(self.board.elapsed_s, state, text))
        self._screen.show(self.board)

    def set_sentence(self, sentence: str) -> None:
        self.board.sentence = sentence

    def close(self) -> None:
        self._screen.close(self.board)

    # ------------------------------------------------------------------------------------ waiting

    async def pause(self, share: float) -> None:
        """Wait for a share of the run's length, while things go on or the user reads."""
        end = time.monotonic() + share * self.pace.seconds
        while time.monotonic() < end:
            await self.tick()

    async def wait_for(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait until the condition returns something true, and return that."""
        end = time.monotonic() + TIMEOUT_S
        while not (value := condition()):
            if time.monotonic() > end:
                raise DemoFailed(f"{what}: not within {TIMEOUT_S:g} s")
            await self.tick()
        return value

    async def complete_within(self, work: Awaitable[T], what: str) -> T:
        """Await something that must end, with a limit."""
        limit_s = TIMEOUT_S + self.pace.seconds
        try:
            async with asyncio.timeout(limit_s):  # not wait_for: on Python 3.11 it may drop a Ctrl-C
                return await work
        except TimeoutError:
            raise DemoFailed(f"{what}: not within {limit_s:g} s") from None

    async def tick(self) -> None:
        self.processes.check_alive()
        if self._follower is not None and self._follower.done() and not self._follower.cancelled():
            self._follower.result()  # it never ends by itself: this raises why it did
        if time.monotonic() - self._refreshed_s >= CHECK_EVERY_S:
            self._refreshed_s = time.monotonic()
            await self.refresh_spools()
            if not self.board.checks:
                self.board.check_receipts()
        self._screen.show(self.board)
        await asyncio.sleep(TICK_S)

    # ------------------------------------------------------------------------------------ what is stored

    async def refresh_spools(self) -> None:
        for panel in self.board.agents.values():
            panel.spooled = await asyncio.to_thread(spools.last_spooled, self.folder / panel.name)

    def start_following(self) -> None:
        """Follow the node's events; after a fault the whole history is read again, from the first event."""
        self._follower = asyncio.create_task(self._follow())

    async def stop_following(self, end: EventHistory) -> None:
        """Stop following, and use this history from now on."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)  # a cancellation of this task still raises
        self.board.history = end

    async def _follow(self) -> None:
        while True:
            fresh = EventHistory()
            # A killed node may stop in the middle of a line.
            with suppress(OSError, NodeRefused, NodeUnreachable, msgspec.DecodeError):
                async with aclosing(event_history.follow(self.data, fresh)) as numbers:
                    async for number in numbers:
                        if number >= self.board.history.last:
                            self.board.history = fresh
            await asyncio.sleep(TICK_S)

    # ------------------------------------------------------------------------------------ node and agents

    async def start_node(self) -> float:
        """Returns the time from the start of the process to its first answer."""
        start_s = time.monotonic()
        grpc = {"grpc.enabled": True, "grpc.port": self.port}
        pid = self.processes.start_node(self.config, {**self.pace.settings(), **grpc, **self.archive_settings()})
        self.board.node = (StateGlyph.IN_FLIGHT, f"starting, pid {pid}")
        while time.monotonic() - start_s < TIMEOUT_S:
            with suppress(NodeUnreachable):
                async with NodeSocket(self.data, total_timeout_s=0) as node:
                    await node.status()
                self.board.node = (StateGlyph.CONFIRMED, f"up, pid {pid}")
                return time.monotonic() - start_s
            await self.tick()
        raise DemoFailed(f"the node did not answer within {TIMEOUT_S:g} s; see {self.folder / 'node.log'}")

    def start_agent(self, name: str) -> int:
        pid = self.processes.start_agent(name, f"127.0.0.1:{self.port}", MODELS, OWN_COMMAND)
        self.board.agents[name].state = (StateGlyph.CONFIRMED, f"up, pid {pid}")
        return pid

    # ------------------------------------------------------------------------------------ the archive

    def new_archive_key(self) -> None:
        """The node's key at the gateway."""
        new = ("gateway", "key", "create", "--label", "node", "--data", str(self.folder / "archive"))
        created = self.processes.run(*new, "--output", str(self.folder / TOKEN_FILE))
        if created.returncode:
            raise DemoFailed(created.stderr.decode("utf-8", "replace"))
        self._gateway_port = self._archive_port = _free_port({self.port})

    async def start_gateway(self, settings: Mapping[str, object] | None = None) -> int:
        """Returns its process id when it answers."""
        pid = self.processes.start_gateway({"gateway.port": self._gateway_port, **(settings or {})})
        await self.wait_for(lambda: _is_listening(self._gateway_port), "the gateway listens")
        return pid

    async def open_proxy(self) -> None:
        """The node's archive is a liar from now on, who has the gateway behind it."""
        self._archive_port = _free_port({self.port, self._gateway_port})
        self.proxy = LyingProxy(self._gateway_port)
        await self.proxy.open(self._archive_port)

    def archive_settings(self) -> dict[str, object]:
        """None where the demo has no archive."""
        if not self._archive_port:
            return {}
        url, token_file = f"http://127.0.0.1:{self._archive_port}", self.folder / TOKEN_FILE
        return {"archive.provider": "load-s3-agent", "archive.url": url, "archive.token_file": token_file}

    async def wait_ticks(self, count: int = 10) -> None:
        for _ in range(count):
            await self.tick()

    async def call(self, method: str, **params: object) -> Any:
        """One call to the node."""
        async with NodeSocket(self.data, TIMEOUT_S) as node:
            return await self.complete_within(node.call(method, **params), f"the node answers {method}")

    async def stop_agents(self) -> None:
        """Each agent finishes, delivers and exits with code 0; one that was just started connects first."""
        for name in self.board.agents:
            await self.wait_for(partial(self.processes.has_work_stream, name), f"{name} is at work")
        await asyncio.gather(*(asyncio.to_thread(self.processes.stop, name) for name in self.board.agents))
        for panel in self.board.agents.values():
            panel.state = (StateGlyph.RELEASED, "stopped")


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port(taken: Collection[int] = ()) -> int:
    port = find_free_port(taken)
    if port is None:
        raise DemoFailed(f"no free port on 127.0.0.1 from {PORTS.start} to {PORTS.stop - 1}")
    return port
