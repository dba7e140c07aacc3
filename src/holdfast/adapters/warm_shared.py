"""The warm tier of several nodes (TIER-001): what one node receives lies in an object store before it counts as held.

    warm/{2 hex}/{digest}     in the store that the nodes share

The node's own folder keeps a copy of what it has received and is read first. Another node, or one that has taken over
with an empty folder, reads from the store; every byte is hashed before it is used.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.warm_reader import OpenOutput
from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.adapters.warm_upload import Upload
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import Digest
from holdfast.core.result import result_digest, result_hasher
from holdfast.ports.objects import Objects
from holdfast.system.durable_files import TEMP_SUFFIX

FOLDER: Final = "warm"
PART_BYTES: Final = 4 << 20
PUTS_AT_ONCE: Final = 16
STORED_MAX: Final = 100_000
"""Digests that are known to be in the store: the rest is asked for again."""
_RULE: Final = "TIER-001"


class SharedWarmStore(WarmStore):
    """A folder of this node before a store that all nodes share."""

    def __init__(self, path: Path, objects: Objects) -> None:
        super().__init__(path)
        self._local, self._objects = path, objects
        self._stored: dict[Digest, None] = {}
        self._sweeping: set[Digest] = set()
        """About to be deleted: from now on these do not count as held (see `sweep`)."""
        self._puts = asyncio.Semaphore(PUTS_AT_ONCE)

    async def receive(self, announced: tuple[Digest, int] | None = None) -> Upload:
        await self.open()
        return SharedUpload(self._incoming, self._commit_file, announced, self._share)

    async def put_many(self, blobs: Mapping[Digest, bytes]) -> None:
        await super().put_many(blobs)
        await asyncio.gather(*(self._put(digest, raw) for digest, raw in blobs.items()))

    async def size(self, digest: Digest) -> int | None:
        size = await super().size(digest)  # records the request first: a sweep that begins later spares it
        if digest in self._sweeping or digest in self._being_deleted:
            return None
        if size is None:
            return await self._objects.size(_key(digest))
        await self._share(digest)
        return size

    async def read(self, digest: Digest) -> bytes | None:
        try:
            raw = await super().read(digest)
        except Corrupt:
            raw = await self._good(digest)  # our copy is damaged
            if raw is None:
                raise
        if raw is not None or await self._objects.size(_key(digest)) is None:
            return raw
        raw = await self._good(digest)
        if raw is None:
            raise _not_ours(digest)
        return raw

    async def open_output(self, digest: Digest) -> OpenOutput | None:
        """From the store through a file without a name: an output may be larger than memory."""
        opened = await super().open_output(digest)
        size = await self._objects.size(_key(digest)) if opened is None else None
        if size is None:
            return opened
        await self.open()
        temp = self._incoming / f"{secrets.token_hex(16)}{TEMP_SUFFIX}"
        file = await run_file_io(_RULE, os.open, temp, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            temp.unlink()
            hasher = result_hasher(size)
            for start in range(0, size, PART_BYTES):
                part = await self._objects.read(_key(digest), start, PART_BYTES) or b""
                hasher.update(part)
                await run_file_io(_RULE, os.pwrite, file, part, start)
            if hasher.digest() != digest:
                raise _not_ours(digest)
        except BaseException:
            os.close(file)
            raise
        return OpenOutput(size, file)

    async def delete(self, digest: Digest) -> None:
        await super().delete(digest)
        self._stored.pop(digest, None)
        await self._objects.delete(_key(digest))

    async def verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """Held by the store: the caller is going to delete another copy, and this folder may be lost with its node."""
        local = await super().verify(digests)
        for digest in local:
            await self._share(digest)
        remote = {digest: raw for digest in digests if digest not in local and (raw := await self._good(digest))}
        return local | {digest: len(raw) for digest, raw in remote.items()}

    async def _good(self, digest: Digest) -> bytes | None:
        raw = await self._objects.read(_key(digest))
        is_good = raw is not None and await asyncio.to_thread(result_digest, raw) == digest
        return raw if is_good else None

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        """First here, then in the store; a request meanwhile is answered as if the bytes were gone already."""
        self._sweeping.update(digests)
        try:
            in_use = await super().sweep(digests)
            gone = [digest for digest in digests if digest not in in_use]
            await asyncio.gather(*(self._delete_stored(digest) for digest in gone))
            return in_use
        finally:
            self._sweeping.difference_update(digests)

    async def usage(self) -> int:
        return sum([each.size async for each in self._objects.list(FOLDER)])

    # ------------------------------------------------------------------------------------ the store

    async def _share(self, digest: Digest) -> None:
        """Durable in the store when this returns. Bytes that lie in this folder alone are brought there."""
        if digest in self._stored:
            return
        path = path_of(self._local, digest)
        if await run_file_io(_RULE, path.exists):
            await self._put(digest, path)
        elif (raw := await super().read(digest)) is not None:
            await self._put(digest, raw)

    async def _put(self, digest: Digest, source: bytes | Path) -> None:
        async with self._puts:
            await self._objects.put_once(_key(digest), source)
        while len(self._stored) >= STORED_MAX:
            del self._stored[next(iter(self._stored))]
        self._stored[digest] = None

    async def _delete_stored(self, digest: Digest) -> None:
        self._stored.pop(digest, None)
        async with self._puts:
            await self._objects.delete(_key(digest))


class SharedUpload(Upload):
    """An upload that is kept when the store has it, too."""

    def __init__(
        self,
        folder: Path,
        commit_file: Callable[[Path, Digest], None],
        announced: tuple[Digest, int] | None,
        share: Callable[[Digest], Awaitable[None]],
    ) -> None:
        super().__init__(folder, commit_file, announced)
        self._share, self._wanted = share, announced

    async def keep(self) -> tuple[Digest, int]:
        kept = await super().keep()
        if self._wanted in (None, kept):  # bytes that differ from the announced ones are not kept
            await self._share(kept[0])
        return kept


def _key(digest: Digest) -> str:
    name = digest.hex()
    return f"{FOLDER}/{name[:2]}/{name}"


def _not_ours(digest: Digest) -> Corrupt:
    return Corrupt(_RULE, f"the shared store has other bytes as {digest.hex()}", "restore the object from a copy")
