"""Whole files by name in an object store: journal segments that several nodes read (ENG-004)."""

from __future__ import annotations

from holdfast.ports.objects import Objects


class ObjectFiles:
    """One folder of an object store; a store replaces an object as a whole."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects, self._folder = objects, folder

    async def names(self) -> list[str]:
        prefix = f"{self._folder}/"
        return [each.key.removeprefix(prefix) async for each in self._objects.list(self._folder)]

    async def read(self, name: str) -> bytes | None:
        return await self._objects.read(self._key(name))

    async def replace(self, name: str, raw: bytes) -> None:
        await self._objects.replace(self._key(name), raw)

    async def delete(self, name: str) -> None:
        await self._objects.delete(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"
