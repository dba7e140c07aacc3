"""Bytes by key in a folder or a remote store: what the archive, the gateway and shared bytes of several nodes need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Protocol


class StoredObject(NamedTuple):
    """An object of a listing."""

    key: str
    size: int


class Objects(Protocol):
    """Bytes by key, in a folder of this machine or in a remote store (ARC-004).

    A key is one or more names separated by `/`; a name has the characters A–Z a–z 0–9 _ . = - and does not begin with
    a dot. What is written is whole or absent, and durable when the call returns.
    """

    async def put_once(self, key: str, source: bytes | Path) -> bool:
        """Store bytes, or the content of a file that does not change any more; False where the key has an object.

        That object may come from an earlier attempt of this very call whose answer was lost. Large objects may be
        written by two callers at once: their keys must be derived from their content.
        """
        ...

    async def replace(self, key: str, source: bytes | Path) -> None:
        """The same, over whatever the key has."""

    async def size(self, key: str) -> int | None:
        """None where there is no such object."""
        ...

    async def read(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes from `start` on, at most `length`; None where there is no such object."""
        ...

    def list(self, folder: str, after: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose keys begin with `folder` and `/`, in the order of their keys, those above `after`.

        Stores sort `a/b` and `a-b` in two ways: where a folder has sub-folders, give their names one length.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; a missing one is ignored."""
        ...

    async def close(self) -> None: ...
