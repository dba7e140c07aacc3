"""Blobs in an object store that several nodes share (BLB-002): whoever takes over finds what is not archived yet.

    blobs/undecided/{versioned hash}              131 072 bytes
    blobs/packs/{height, 12 digits}-{block hash}  the blobs of a block in their order

A loose object is deleted after the pack that has it is stored: a crash leaves bytes twice, never none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from holdfast.adapters.keys.keccak import keccak_256
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.ports.blobs import PackName
from holdfast.ports.objects import Objects

LOOSE, PACKS = "blobs/undecided", "blobs/packs"
_RULE: Final = "BLB-002"


class BlobObjects:
    """The blobs of one network."""

    def __init__(self, objects: Objects, keccak: Callable[[bytes], bytes] = keccak_256) -> None:
        self._objects, self._keccak = objects, keccak

    async def put(self, versioned_hash: Digest, blob: bytes) -> None:
        await self._objects.put_once(_loose(versioned_hash), blob)

    async def read(self, pack: PackName, number: int, versioned_hash: Digest, keccak: Digest) -> bytes | None:
        blob = await self._objects.read(_packed(pack), number * BLOB_BYTES, BLOB_BYTES)
        blob = await self._objects.read(_loose(versioned_hash)) if blob is None else blob
        if blob is not None and await asyncio.to_thread(self._keccak, blob) != keccak:
            message = f"blob {number} of block {pack.height} is not what was stored"
            raise Corrupt(_RULE, message, "restore it from the archive: holdfast blob fetch")
        return blob

    async def write_pack(self, pack: PackName, blobs: Sequence[tuple[Digest, Digest]]) -> None:
        if await self._objects.size(_packed(pack)) is None:
            raws = [await self.read(pack, number, *hashes) for number, hashes in enumerate(blobs)]
            if None in raws:
                raise Unavailable(_RULE, f"blob {raws.index(None)} of block {pack.height} is missing", "restore it")
            await self._objects.put_once(_packed(pack), b"".join(raw for raw in raws if raw is not None))
        await asyncio.gather(*(self._objects.delete(_loose(versioned_hash)) for versioned_hash, _ in blobs))

    async def delete_pack(self, pack: PackName, blobs: Collection[Digest] = ()) -> bool:
        keys = [_packed(pack), *map(_loose, blobs)]
        found = [key for key in keys if await self._objects.size(key) is not None]
        for key in found:
            await self._objects.delete(key)
        return bool(found)

    async def delete_loose(self, except_: Collection[Digest]) -> int:
        needed = {_loose(versioned_hash) for versioned_hash in except_}
        unknown = [each.key async for each in self._objects.list(LOOSE) if each.key not in needed]
        for key in unknown:
            await self._objects.delete(key)
        return len(unknown)

    async def packs(self) -> list[PackName]:
        names = [each.key.removeprefix(f"{PACKS}/").partition("-") async for each in self._objects.list(PACKS)]
        return [PackName(Height(int(height)), bytes.fromhex(hash_)) for height, _, hash_ in names]

    async def usage(self) -> int:
        return sum([each.size for folder in (LOOSE, PACKS) async for each in self._objects.list(folder)])


def _loose(versioned_hash: Digest) -> str:
    return f"{LOOSE}/{versioned_hash.hex()}"


def _packed(pack: PackName) -> str:
    return f"{PACKS}/{pack.height:012}-{pack.block_hash.hex()}"
