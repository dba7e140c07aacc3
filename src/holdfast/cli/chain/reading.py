"""A node's chain read over any of its doors: the active blocks in order, as signed headers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from holdfast.cli.asking import Asked
from holdfast.core.chain.header import Signed
from holdfast.core.refusal import Unavailable
from holdfast.core.values import ChainId, Height
from holdfast.engine.headerfiles import Source
from holdfast.engine.headers import Untrue, read_values

PAGE: Final = 1_000
TABLES_WITHIN_S: Final = 10.0
LOOK_AGAIN_S: Final = 0.1
EVERY_S: Final = 0.2
SEALED: Final = "SEALED"


class ChainReader:
    """Lists are read from the tables, which follow the journal by a moment: the reader waits for them."""

    def __init__(self, node: Asked, chain_id: ChainId, head: Signed, finalized: Height) -> None:
        self._node, self.chain_id, self.head, self.finalized = node, chain_id, head, finalized

    @classmethod
    async def of(cls, node: Asked) -> ChainReader:
        status, found = await node.call("node.status"), await node.call("chain.head")
        chain_id = ChainId(status["chain_id"])
        return cls(node, chain_id, read_values(found["block"], "the head", chain_id), Height(found["finalized"]))

    def source(self) -> Source:
        return Source(self.chain_id, self.head, self.finalized, self.at, self.after)

    async def at(self, height: Height) -> Signed | None:
        found = await self._node.call("chain.list", height=height)
        return next((self._read(row) for row in found["rows"] if row["status"] == SEALED), None)

    async def after(self, height: Height) -> AsyncIterator[Signed]:
        """Blocks above a height, up to the head as it was when the reader was made."""
        event, last, patience = await self._event_of(height), height, time.monotonic() + TABLES_WITHIN_S
        while last < self.head.header.height:
            found = await self._node.call("chain.list", after=event, limit=PAGE)
            for row in found["rows"]:
                event = row["event"]
                if row["status"] == SEALED and row["height"] <= self.head.header.height:
                    last = Height(row["height"])
                    yield self._read(row)
            if not found["rows"]:
                await _wait(patience)

    async def _event_of(self, height: Height) -> int:
        if height == 0:
            return 0
        found = await self._node.call("chain.list", height=height)
        for row in found["rows"]:
            if row["status"] == SEALED:
                return int(row["event"])
        raise Untrue(f"block {height} was taken back while the chain was read")

    def _read(self, row: dict[str, object]) -> Signed:
        return read_values(row, f"block {row['height']}", self.chain_id)


async def _wait(until: float) -> None:
    if time.monotonic() > until:
        raise Unavailable("ENG-004", "the node's tables do not reach its head", "holdfast status says how far they are")
    await asyncio.sleep(LOOK_AGAIN_S)


class Heights:
    """One line that is written over and over, and only for somebody who watches."""

    def __init__(self, doing: str) -> None:
        self._doing, self._next, self._is_shown = doing, time.monotonic() + EVERY_S, False

    def __call__(self, height: Height) -> None:
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next, self._is_shown = time.monotonic() + EVERY_S, True
            print(f"\r{self._doing}: block {height}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
