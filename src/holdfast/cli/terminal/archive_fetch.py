"""A result's bytes straight from the archive, for a client whose node has deleted them (RES-009).

The node says where they are and with which key they are encrypted; nothing that comes from the archive is believed
before Keccak-256, KZG proof and the result's digest have been checked.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import NodeAddress
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.config import Config
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import BLOB_BYTES, FrameHeader
from holdfast.core.blob.model import Blob
from holdfast.core.tables import record_from_row
from holdfast.ports.blobs import ArchiveProvider, Decryptor, KzgWork
from holdfast.workers.archive.fetch_result import FramePart, WantedResult, fetch_result

BYTE_FIELDS: Final = frozenset(
    {*("block_hash", "proposer", "versioned_hash", "commitment"), *("proof", "keccak", "archived_by", "signature")}
)


def fetch_to_file(settings: Config, address: NodeAddress, task_id: str, file: Path) -> int:
    """To a file that appears when all of it is right; how many bytes it has."""
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as sink:
            size = fetch_from_archive(settings, address, task_id, sink)
        part.replace(file)
        return size
    finally:
        part.unlink(missing_ok=True)


def fetch_from_archive(settings: Config, address: NodeAddress, task_id: str, sink: BinaryIO) -> int:
    """Write the bytes to `sink` and return how many; it must not be used where this raises."""
    where = call_node(address, "blob.getParts", task_id=task_id)
    key = call_node(address, "blob.getKey", task_id=task_id)
    if not where["parts"]:
        raise Unavailable("ARC-004", "this result is in no blob yet", "try again later")
    progress = ProgressLine("fetching")
    try:
        return asyncio.run(_fetch(settings, where, bytes.fromhex(key["key"]), sink, progress.show_bytes))
    finally:
        progress.end()


async def _fetch(
    settings: Config, where: Mapping[str, Any], key: bytes, sink: BinaryIO, show: Callable[[int, int], None]
) -> int:
    from holdfast.adapters.archive.make import make_provider  # noqa: PLC0415 - these take long to load
    from holdfast.adapters.archive.settings import ProviderKind  # noqa: PLC0415
    from holdfast.adapters.keys.archive_key import ResultDecryptor  # noqa: PLC0415

    if settings.archive.provider is ProviderKind.NONE:
        raise Unavailable("ARC-004", "the settings name no archive", "set archive.provider, or --config FILE")
    wanted = WantedResult(
        TaskId(bytes.fromhex(where["task_id"])), Digest(bytes.fromhex(where["result_digest"])), where["result_size"]
    )
    parts = [FramePart(part["offset"], part["length"], _blob_of(part["blob"])) for part in where["parts"]]
    provider, size = make_provider(settings.archive, settings.data), 0

    def open_cipher(_: FrameHeader) -> Decryptor:
        if not key:
            raise Corrupt("BLB-003", "the frame says that it is encrypted, the node that it is not")
        return ResultDecryptor(key)

    try:
        async for piece in fetch_result(wanted, parts, lambda blob: _read_blob(provider, blob), open_cipher):
            sink.write(piece)
            size += len(piece)
            show(size, wanted.size)
    finally:
        await provider.close()
    return size


async def _read_blob(provider: ArchiveProvider, blob: Blob) -> bytes:
    from holdfast.adapters.kzg.trusted_setup import verify_blobs  # noqa: PLC0415 - it takes seconds to load

    name, raw = f"blob {blob.number} of block {blob.height}", None
    for locator in filter(None, (blob.locator, *blob.alternates.splitlines())):
        raw = await provider.fetch(locator)
        work = KzgWork(blob.commitment, blob.proof, blob.keccak)
        if raw is not None and len(raw) == BLOB_BYTES and all(await asyncio.to_thread(verify_blobs, [(raw, work)])):
            return raw
    if raw is not None:
        raise Corrupt("BLB-001", f"{name}: the archive has other bytes than the block commits to")
    raise Unavailable("ARC-004", f"{name} is not in this archive", blob.locator or "it was not archived yet")


def _blob_of(fields: Mapping[str, Any]) -> Blob:
    """A blob's record as JSON has it: bytes are hexadecimal there."""
    values = {name: bytes.fromhex(value) if name in BYTE_FIELDS else value for name, value in fields.items()}
    return record_from_row(Blob, [values[name] for name in Blob.__struct_fields__])
