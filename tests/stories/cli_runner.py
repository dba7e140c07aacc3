"""`holdfast` run as a user runs it: a verb and its words, what it printed, what it complained about, its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.loopback_ports import free_port
from tests.stories.forked_command import run_forked
from tests.stories.node_process import NodeProcess

from holdfast.client.node_socket import NodeSocket

WITHIN_S = 60.0
FAST_CHAIN = {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": "50", "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "100"}
"""A chain that grows while one looks."""


class CliResult(NamedTuple):
    """How a verb ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def field(self, name: str) -> str:
        """The value behind a name at a line's beginning."""
        assert self.code == 0, self.err
        return next(line.split(maxsplit=1)[1] for line in self.out.splitlines() if line.split(maxsplit=1)[0] == name)


def holdfast(*words: object, environ: Mapping[str, str] | None = None, stdin: str | None = None) -> CliResult:
    return CliResult(*run_forked([*map(str, words)], os.environ | dict(environ or {}), stdin or "", WITHIN_S))


class CliNode:
    """A running node and the words one says to it."""

    def __init__(self, node: NodeProcess, port: int, environ: Mapping[str, str]) -> None:
        self.node, self.url, self._environ = node, f"http://127.0.0.1:{port}", dict(environ)

    async def run(self, *words: object, stdin: str | None = None) -> CliResult:
        """Over the folder's socket."""
        return await asyncio.to_thread(holdfast, *words, "--data", self.node.data, stdin=stdin)

    async def run_offline(self, *words: object) -> CliResult:
        """On the stored data, with the store's settings."""
        words = (*words, "--data", self.node.data)
        return await asyncio.to_thread(holdfast, *words, environ=self._environ)

    async def run_over_http(self, token: str | None, *words: object) -> CliResult:
        """Over HTTP, with a token or without one."""
        environ = {} if token is None else {"HOLDFAST_TOKEN": token}
        return await asyncio.to_thread(holdfast, *words, "--url", self.url, environ=environ)

    async def wait_tables(self) -> None:
        """Wait until lists say all that has happened so far: they follow the journal by a moment."""
        async with NodeSocket(self.node.data, WITHIN_S) as client, asyncio.timeout(WITHIN_S):
            last = (await client.status())["event"]
            while (await client.status())["tables_as_of"] < last:
                await asyncio.sleep(0.01)

    async def head(self) -> int:
        return int((await self.run("chain", "head", "--json")).json["block"]["height"])

    async def wait_height(self, height: int) -> None:
        """Wait until the chain has this block."""
        end = time.monotonic() + WITHIN_S
        while await self.head() < height:
            assert time.monotonic() < end, f"no block {height}"


@asynccontextmanager
async def running_cli_node(
    folder: Path, environ: Mapping[str, str] | None = None, chain: Mapping[str, str] = FAST_CHAIN
) -> AsyncIterator[CliNode]:
    """A running node with its HTTP API."""
    port = free_port()
    http = {"HOLDFAST_HTTP__ENABLED": "true", "HOLDFAST_HTTP__PORT": str(port)}
    settings = {**(environ or {}), **http, **chain}
    node = NodeProcess(folder / "data", environ=settings)
    try:
        await node.up()
        yield CliNode(node, port, settings)
    finally:
        node.end()
