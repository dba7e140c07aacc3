"""A gateway in the test's own process, and the small client that the tests drive it with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.item_index import ItemIndex
from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.adapters.sqlite.item_index import SqliteItemIndex
from holdfast.gateway.item_store import ItemStore
from holdfast.gateway.server import GatewayServer
from holdfast.gateway.settings import GatewaySettings
from holdfast.ports.objects import Objects

Field = tuple[str, bytes, str | None]
"""Name, content, the part's content type."""
BOUNDARY = "----a-boundary"


class Gateway:
    """A running gateway, its client and a key."""

    def __init__(self, server: GatewayServer, http: httpx.AsyncClient, token: str, folder: Path) -> None:
        self.server, self.http, self.token, self.folder = server, http, token, folder

    @property
    def store(self) -> ItemStore:
        return self.server.store

    def new_token(self, **options: Any) -> str:
        wanted = {"is_admin": False, "quota_bytes": None, "quota_items": None, **options}
        return self.server.keys.create(1, "", **wanted)[1]

    async def upload(
        self,
        data: bytes,
        *,
        content_type: str | None = "text/plain",
        tags: object = None,
        path: str = "/upload",
        token: str | None = None,
        **headers: str,
    ) -> httpx.Response:
        fields: list[Field] = [("file", data, content_type)]
        if tags is not None:
            fields.append(("tags", json.dumps(tags).encode(), None))
        return await self.post_form(fields, path=path, token=token, **headers)

    async def post_form(
        self, fields: Sequence[Field], *, path: str = "/upload", token: str | None = None, **headers: str
    ) -> httpx.Response:
        return await self.post_raw(form(fields), path=path, token=token, **headers)

    async def post_raw(
        self, body: bytes, *, path: str = "/upload", token: str | None = None, **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {
            "authorization": f"Bearer {self.token if token is None else token}",
            "content-type": f"multipart/form-data; boundary={BOUNDARY}",
            **named,
        }
        return await self.http.post(path, content=body, headers={k: v for k, v in sent.items() if v})

    async def find(self, tags: Mapping[str, str], **more: object) -> httpx.Response:
        filters = [{"key": key, "value": value} for key, value in tags.items()]
        return await self.http.post("/tags/query", json={"filters": filters, **more})

    async def stored(self) -> list[str]:
        """Every object in the store."""
        folders = ("data", "items", "meta", "buckets")
        return [each.key for folder in folders async for each in self.store.objects.list(folder)]

    def spooled(self) -> list[Path]:
        return [path for name in ("spool", "uploads") for path in (self.folder / name).glob("*")]


def form(fields: Sequence[Field]) -> bytes:
    parts = []
    for name, content, content_type in fields:
        head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"; filename="x"\r\n'
        head += f"content-type: {content_type}\r\n" if content_type is not None else ""
        parts.append(head.encode() + b"\r\n" + content + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


@asynccontextmanager
async def gateway(
    folder: Path,
    objects: Objects | None = None,
    *,
    token: str | None = None,
    index: ItemIndex | None = None,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """Open one over this folder, close it as a stop signal does."""
    clock = MachineClock()
    index = index or SqliteItemIndex(folder / "index.db", query_ms=5_000, monotonic_ms=clock.monotonic_ms)
    wanted = GatewaySettings(port=0, scrub_hours=0, **settings)
    store = ItemStore(objects or LocalObjects(folder / "objects"), index)
    server = GatewayServer(wanted, folder, store, clock)
    if token is None:
        _, token = server.keys.create(1, "", is_admin=False, quota_bytes=None, quota_items=None)
    await server.open()
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http:  # loads no authorities
            await server.repaired.wait()
            yield Gateway(server, http, token, folder)
    finally:
        await server.close()
