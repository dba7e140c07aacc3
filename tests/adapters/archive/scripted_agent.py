"""A small server that speaks load-s3-agent's API with the quirks of real ones: it stores and then hangs up, it lies."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.loopback_ports import free_port

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Refused
from holdfast.wire.ans104 import build_item, parse_header


class ScriptedAgent:
    """What a test says is answered once; then it does what it should."""

    def __init__(self, port: int) -> None:
        self.port, self.items = port, dict[str, bytes]()
        self.uploads: list[dict[str, str]] = []
        """The headers of every upload that came."""
        self.script: list[str | tuple[int, bytes]] = []
        """For the next uploads: `drop` hangs up after storing, `cut` before, else a status and a body."""
        self.queries = 0
        self.tags: dict[str, dict[str, str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = head[0].split(" ")
            answer = self._answer(method, path, headers, body)
            if answer is not None:
                status, raw = answer
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(raw)))
                writer.write(raw)
                await writer.drain()
        finally:
            writer.close()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes] | None:
        if method == "GET" and path.startswith("/binary/"):
            item = self.items.get(path.removeprefix("/binary/"))
            return (200, item) if item is not None else (404, b'{"error":"dataitem not found"}')
        if path == "/tags/query":
            return 200, self._query(json.loads(body))
        self.uploads.append(headers)
        step = self.script.pop(0) if self.script else ""
        if isinstance(step, tuple):
            return step
        if step == "cut":
            return None
        id_ = self._store(headers, body)
        return None if step == "drop" else (200, json.dumps({"success": True, "dataitem_id": id_}).encode())

    def _store(self, headers: dict[str, str], body: bytes) -> str:
        boundary = headers["content-type"].partition("boundary=")[2].encode()
        parts = dict[str, bytes]()
        for part in body.split(b"--" + boundary)[1:-1]:
            about, _, data = part[2:-2].partition(b"\r\n\r\n")
            parts["tags" if b'name="tags"' in about else "file"] = data
        if headers.get("signed") == "true":
            header = parse_header(parts["file"])
            assert not isinstance(header, Refused)
            self.items[header.id] = parts["file"]
            return header.id
        tags = {each["key"]: each["value"] for each in json.loads(parts["tags"])}
        built = build_item(SigningKey.from_seed(secrets.token_bytes(32)), [], parts["file"])  # another id every time
        assert not isinstance(built, Refused)
        self.items[built[0]], self.tags[built[0]] = built[1], tags
        return built[0]

    def _query(self, asked: dict[str, list[dict[str, str]]]) -> bytes:
        self.queries += 1
        wanted = {each["key"]: each["value"] for each in asked["filters"]}
        found = [id_ for id_, tags in self.tags.items() if wanted.items() <= tags.items()]
        items = [{"dataitem_id": id_, "content_type": "x", "created_at": "t"} for id_ in reversed(found)]
        return json.dumps({"success": True, "count": len(items), "items": items, "page_info": {}}).encode()


@asynccontextmanager
async def scripted_agent() -> AsyncIterator[ScriptedAgent]:
    agent = ScriptedAgent(free_port())
    server = await asyncio.start_server(agent.serve, "127.0.0.1", agent.port)
    try:
        yield agent
    finally:
        server.close()
