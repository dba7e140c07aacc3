"""Which blobs are served (SRV-001): until their bytes are pruned, or from Archived on refused where policy says so."""

from __future__ import annotations

import re
from typing import Final

from holdfast.api.node_access import NodeAccess
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.chain.model import Block, genesis_chain
from holdfast.engine import queries
from holdfast.engine.queries.blobs import GetLiveBlobs
from holdfast.engine.queries.chain import GetChainHead
from holdfast.ports.blobs import PackName

_NAMES: Final = ("head", "finalized", "genesis")
_HEIGHT: Final = re.compile(r"[0-9]{1,18}")
_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")


async def find_block(access: NodeAccess, block_id: str) -> Block | Refused:
    """A height, a hash, `head`, `finalized` or `genesis`; only sealed blocks of the active chain are found."""
    if not (_HEIGHT.fullmatch(block_id) or _HASH.fullmatch(block_id) or block_id in _NAMES):
        hint = "a height, 0x and a block hash, head, finalized or genesis"
        return Refused("SRV-001", f"{block_id!r:.80} names no block", hint, "InvalidParams")
    head = await access.source.query_durable(GetChainHead())
    known = (head.block, genesis_chain(access.source.policy).head)
    if block_id.startswith("0x"):
        hash_ = bytes.fromhex(block_id[2:])
        block = next((each for each in known if each.hash == hash_), None)
        block = block or await queries.block_by_hash(access.source, hash_)
    else:
        named = dict(zip(_NAMES, (head.block.height, head.finalized, Height(0)), strict=True))
        height = named[block_id] if block_id in named else Height(int(block_id))
        block = next((each for each in known if each.height == height), None)
        block = block or await queries.block(access.source, height)
    return block or Refused("SRV-001", f"no block {block_id:.80} on the active chain", name="NotFound")


async def blobs_of(access: NodeAccess, block: Block) -> list[Blob]:
    """All blobs of a block in their order, from memory while it has them, else from their rows."""
    if not block.blob_count:
        return []
    blobs = await access.source.query_durable(GetLiveBlobs(block.height))
    after: str | int | None = 0
    if not blobs:
        await access.source.wait_tables(block.event)
    while not blobs and after is not None:
        page = await queries.page(access.source, "blob", {"height": block.height}, after, queries.PAGE_MAX)
        blobs = [*blobs, *page.rows]
        after = page.next_after
    return sorted((blob for blob in blobs if blob.block_hash == block.hash), key=lambda blob: blob.number)


def is_served(access: NodeAccess, blob: Blob) -> bool:
    """Whether policy and record allow it; whether the bytes are here is known when they are read."""
    is_archived = blob.status is BlobStatus.ARCHIVED
    return not blob.is_pruned and (access.source.policy.archive.serve_archived or not is_archived)


async def read_blob(access: NodeAccess, blob: Blob) -> bytes | None:
    """The bytes, checked by their hash; None where they are not served, or not here."""
    if access.blob_files is None or not is_served(access, blob):
        return None
    pack = PackName(blob.height, blob.block_hash)
    return await access.blob_files.read(pack, blob.number, blob.versioned_hash, blob.keccak)


def gone(block: Block, blobs: list[Blob]) -> Refused:
    """SRV-001: never an empty success: where the bytes are, as far as this node knows."""
    locators = [("locator", locator) for blob in blobs for locator in (blob.locator, *blob.alternates.splitlines())]
    known = tuple(each for each in locators if each[1])
    hint = "they are in the archive: see the locators" if known else "another node may have them"
    return Refused("SRV-001", f"the blobs of block {block.height} are not on this node", hint, "BlobPruned", known)
