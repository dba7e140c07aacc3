"""Reads a node's chain over any of its APIs: the active blocks in order, as signed headers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.cli.terminal.node_client import NodeSession
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import ChainId, Height, Network
from holdfast.core.chain.header import SignedHeader, genesis_signed
from holdfast.lightclient.header_export import HeaderSource
from holdfast.lightclient.headers import VerificationFailed, parse_header

PAGE: Final = 1_000
TABLES_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
SEALED: Final = "SEALED"


class ChainReader:
    """Lists are read from the tables, which are a moment behind the journal: the reader waits for them."""

    def __init__(self, node: NodeSession, genesis: SignedHeader, head: SignedHeader, finalized: Height) -> None:
        self._node, self.genesis, self.head, self.finalized = node, genesis, head, finalized

    @classmethod
    async def open(cls, node: NodeSession) -> ChainReader:
        status, head = await node.call("node.getStatus"), await node.call("chain.getHead")
        genesis = genesis_signed(ChainId(status["chain_id"]), Network(status["network"]))
        block = parse_header(head["block"], "the head", genesis.header.chain_id)
        return cls(node, genesis, block, Height(head["finalized"]))

    def source(self) -> HeaderSource:
        return HeaderSource(self.genesis, self.head, self.finalized, self.block_at, self.blocks_after)

    async def block_at(self, height: Height) -> SignedHeader | None:
        row = await self._sealed_row(height)
        return None if row is None else self._parse(row)

    async def blocks_after(self, height: Height) -> AsyncIterator[SignedHeader]:
        """Blocks above a height, up to the head at the time the reader was opened."""
        event, last, deadline_s = await self._event_of(height), height, time.monotonic() + TABLES_TIMEOUT_S
        while last < self.head.header.height:
            page = await self._node.call("chain.listBlocks", after=event, limit=PAGE)
            for row in page["rows"]:
                event = row["event"]
                if row["status"] == SEALED and row["height"] <= self.head.header.height:
                    last = Height(row["height"])
                    yield self._parse(row)
            if not page["rows"]:
                await _wait_for_tables(deadline_s)

    async def _event_of(self, height: Height) -> int:
        if height == 0:
            return 0
        row = await self._sealed_row(height)
        if row is None:
            raise VerificationFailed(f"block {height} was rolled back while the chain was read")
        return int(row["event"])

    async def _sealed_row(self, height: Height) -> dict[str, Any] | None:
        page = await self._node.call("chain.listBlocks", height=height)
        return next((row for row in page["rows"] if row["status"] == SEALED), None)

    def _parse(self, row: dict[str, Any]) -> SignedHeader:
        return parse_header(row, f"block {row['height']}", self.genesis.header.chain_id)


async def _wait_for_tables(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        message = "the node's tables do not reach its head"
        raise Unavailable("ENG-004", message, "holdfast status shows how far they are")
    await asyncio.sleep(POLL_S)
