"""Blobs in a folder: loose under their hash until their block is final, then one pack for each block (BLB-002).

    blobs/undecided/{versioned hash}        131 072 bytes
    blobs/packs/{height}-{block hash}       the blobs of a block in their order

Everything is synced before its name exists. A loose file is deleted after the pack that has it is durable: a crash
leaves bytes twice, never none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.keys.keccak import keccak_256
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.ports.blobs import PackName
from holdfast.system.durable_files import FOLDER_MODE, TEMP_SUFFIX, replace_file, sync_folder, write_once

_RULE: Final = "BLB-002"


class BlobFolder:
    """The two folders of one node."""

    def __init__(self, root: Path, keccak: Callable[[bytes], bytes] = keccak_256) -> None:
        self._loose, self._packs, self._keccak = root / "undecided", root / "packs", keccak

    async def put(self, versioned_hash: Digest, blob: bytes) -> None:
        await run_file_io(_RULE, self._put, versioned_hash, blob)

    async def read(self, pack: PackName, number: int, versioned_hash: Digest, keccak: Digest) -> bytes | None:
        return await run_file_io(_RULE, self._read, pack, number, versioned_hash, keccak)

    async def write_pack(self, pack: PackName, blobs: Sequence[tuple[Digest, Digest]]) -> None:
        await run_file_io(_RULE, self._write_pack, pack, blobs)

    async def delete_pack(self, pack: PackName, blobs: Collection[Digest] = ()) -> bool:
        return await run_file_io(_RULE, self._delete_pack, pack, blobs)

    async def delete_loose(self, except_: Collection[Digest]) -> int:
        return await run_file_io(_RULE, self._delete_loose, except_)

    async def packs(self) -> list[PackName]:
        return await run_file_io(_RULE, self._list_packs)

    async def usage(self) -> int:
        return await run_file_io(_RULE, self._usage)

    # ------------------------------------------------------------------------------------ in a thread

    def _put(self, versioned_hash: Digest, blob: bytes) -> None:
        self._loose.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_once(self._loose / versioned_hash.hex(), blob)

    def _read(self, pack: PackName, number: int, versioned_hash: Digest, keccak: Digest) -> bytes | None:
        blob = self._read_packed(pack, number) or self._read_loose(versioned_hash)
        if blob is not None and self._keccak(blob) != keccak:
            message = f"blob {number} of block {pack.height} is not what was stored"
            raise Corrupt(_RULE, message, "restore it from the archive: holdfast blob fetch")
        return blob

    def _read_packed(self, pack: PackName, number: int) -> bytes | None:
        try:
            with self._path(pack).open("rb") as file:
                file.seek(number * BLOB_BYTES)
                return file.read(BLOB_BYTES)
        except FileNotFoundError:
            return None

    def _read_loose(self, versioned_hash: Digest) -> bytes | None:
        path = self._loose / versioned_hash.hex()
        return path.read_bytes() if path.exists() else None

    def _write_pack(self, pack: PackName, blobs: Sequence[tuple[Digest, Digest]]) -> None:
        path = self._path(pack)
        if not path.exists():
            raws = [self._read(pack, number, *hashes) for number, hashes in enumerate(blobs)]
            if None in raws:
                raise Unavailable(_RULE, f"blob {raws.index(None)} of block {pack.height} is missing", "restore it")
            self._packs.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            replace_file(path, b"".join(raw for raw in raws if raw is not None))
        for versioned_hash, _ in blobs:
            (self._loose / versioned_hash.hex()).unlink(missing_ok=True)

    def _delete_pack(self, pack: PackName, blobs: Collection[Digest]) -> bool:
        paths = [self._path(pack), *(self._loose / versioned_hash.hex() for versioned_hash in blobs)]
        found = [path for path in paths if path.exists()]
        for path in found:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in found}:
            sync_folder(folder)
        return bool(found)

    def _delete_loose(self, except_: Collection[Digest]) -> int:
        names = {versioned_hash.hex() for versioned_hash in except_}
        files = list(self._loose.iterdir()) if self._loose.exists() else []
        unknown = [file for file in files if file.name not in names]
        for file in unknown:
            file.unlink(missing_ok=True)
        return len(unknown)

    def _list_packs(self) -> list[PackName]:
        names = [file.name for file in self._packs.iterdir()] if self._packs.exists() else []
        parts = [name.partition("-") for name in names if not name.endswith(TEMP_SUFFIX)]
        return sorted(PackName(Height(int(height)), bytes.fromhex(hash_)) for height, _, hash_ in parts)

    def _usage(self) -> int:
        folders = [folder for folder in (self._loose, self._packs) if folder.exists()]
        return sum(file.stat().st_size for folder in folders for file in folder.iterdir())

    def _path(self, pack: PackName) -> Path:
        return self._packs / f"{pack.height}-{pack.block_hash.hex()}"
