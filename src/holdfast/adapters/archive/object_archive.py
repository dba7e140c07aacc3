"""Items in an object store: a folder of this machine or a bucket (ARC-004).

items/{id}.ans104                            the whole item, written once
by-height/{chain}/{height}/{index}/{id}      empty: what a height has
store-id                                     names a folder, wherever it is mounted
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from holdfast.core.base.errors import AccessDenied, Refused, Unavailable
from holdfast.core.base.values import Digest
from holdfast.ports.blobs import ItemUpload
from holdfast.ports.objects import Objects
from holdfast.wire.ans104 import header_length

STORE_ID: Final = "store-id"


class ObjectArchive:
    """One object store as an archive. `prefix` is what its locators begin with; a folder is named by its own id."""

    def __init__(self, objects: Objects, id_: str, prefix: str = "") -> None:
        self.id = id_
        self._objects, self._prefix = objects, prefix

    async def open(self) -> None:
        self._prefix = self._prefix or f"{self.id}:{await store_id(self._objects)}"

    def locator_of(self, item_id: str) -> str:
        assert self._prefix, "open it first"
        return f"{self._prefix}/{_key(item_id)}"

    async def store(self, item: ItemUpload) -> Refused | None:
        """The item and its place at once: nothing counts before both are durable."""
        try:
            await asyncio.gather(self._put(item), self._objects.put_once(f"by-height/{item.place}/{item.id}", b""))
        except AccessDenied as fault:
            return Refused("ARC-003", f"the archive refuses our credentials: {fault.message}", fault.hint)
        return None

    async def _put(self, item: ItemUpload) -> None:
        if not await self._objects.put_once(_key(item.id), item.raw) and await self._is_another(item):
            await self._objects.replace(_key(item.id), item.raw)  # its id is that of its content: the other is damaged

    async def _is_another(self, item: ItemUpload) -> bool:
        return await self._objects.read(_key(item.id)) != item.raw

    async def fetch(self, locator: str) -> bytes | None:
        await self.open()
        if not locator.startswith(f"{self._prefix}/"):
            return None
        raw = await self._objects.read(locator.removeprefix(f"{self._prefix}/"))
        return None if raw is None else data_of(raw)

    async def find(self, place: str, _: Digest) -> list[str]:
        """NTC-004: what the store lists for a chain, a height and an index."""
        await self.open()
        names = [each.key.rsplit("/", 1)[-1] async for each in self._objects.list(f"by-height/{place}")]
        return [self.locator_of(name) for name in names]

    async def close(self) -> None:
        await self._objects.close()


def data_of(raw: bytes) -> bytes | None:
    """The data of a whole item; None where these bytes are no item."""
    length = header_length(raw)
    return raw[length:] if isinstance(length, int) and length <= len(raw) else None


async def store_id(objects: Objects) -> str:
    """The name of a store, chosen once."""
    await objects.put_once(STORE_ID, secrets.token_hex(8).encode())
    raw = await objects.read(STORE_ID)
    if raw is None:
        raise Unavailable("ARC-004", "the archive's folder cannot be read", "check the disk and the permissions")
    return raw.decode("ascii")


def _key(item_id: str) -> str:
    return f"items/{item_id}.ans104"
