"""A node that answers as a test has prepared, over the HTTP socket of a folder; it may break off anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.client import HTTP_SOCKET_NAME


class Asked(NamedTuple):
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Asked], bytes]
"""The raw bytes of a response; the connection is closed after them."""


def response(
    body: bytes, status: int = 200, *, headers: str = "", whole: bool = True, length: int | None = None
) -> bytes:
    """With `whole=False` it has a length that does not come."""
    size = length if length is not None else len(body) + (0 if whole else 1_000)
    return f"HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {size}\r\n{headers}\r\n".encode() + body


def result(value: object) -> bytes:
    return response(json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode())


def refusal(name: str, status: int = 200, rule: str = "X-001") -> bytes:
    error = {"code": -32000, "message": "no", "data": {"name": name, "rule": rule, "hint": "do this"}}
    return response(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode(), status)


@asynccontextmanager
async def scripted_node(folder: Path, *answers: Answer) -> AsyncIterator[list[Asked]]:
    """Gives the answers in their order, the last one for ever; what it was asked."""
    asked: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            asked.append(Asked(head[0], headers, body))
            writer.write(answers[min(len(asked), len(answers)) - 1](asked[-1]))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, folder / HTTP_SOCKET_NAME)
    async with server:
        yield asked
