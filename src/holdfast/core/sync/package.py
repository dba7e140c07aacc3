"""A block on its way to a follower (SYN-001): its signed header, the leaves below its roots, and its blobs or receipts.

Full has the bytes of the blobs. Archived has for each a receipt and the notice of its proposer. MetadataOnly is a
header alone: enough for a block that commits to nothing, else the rest must be asked elsewhere.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.canonical import canonical
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.values import Digest
from holdfast.core.blob.model import BlobPart
from holdfast.core.chain.header import SignedHeader

MALFORMED: Final = "Malformed"


class PackageKind(StrEnum):
    """What a package has besides its header."""

    FULL = "full"
    ARCHIVED = "archived"
    METADATA_ONLY = "metadata-only"


class BlockPayload(msgspec.Struct, frozen=True, gc=False):
    """The leaves of a block's three trees, in their order."""

    transactions: tuple[bytes, ...] = ()
    results: tuple[bytes, ...] = ()
    blobs: tuple[bytes, ...] = ()


class BlobSidecar(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a blob, and the proof that they are those of its commitment."""

    raw: bytes
    proof: bytes


class ArchiveReceipt(msgspec.Struct, frozen=True, gc=False):
    """Where an archive has a blob."""

    storage_id: str
    provider_id: str


class ArchivedBlob(msgspec.Struct, frozen=True, gc=False):
    """What stands in for the bytes of an archived blob."""

    receipt: ArchiveReceipt
    notice: ArchiveNotice


class BlockPackage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One block as a peer sends it. Nothing in it is believed before it is checked."""

    kind: PackageKind
    signed: SignedHeader
    payload: BlockPayload | None = None
    sidecars: tuple[BlobSidecar, ...] = ()
    archived: tuple[ArchivedBlob | None, ...] = ()


class BlobLeaf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A blob as its block's root commits to it (CHN-001)."""

    versioned_hash: Digest
    commitment: bytes
    keccak: Digest
    parts: tuple[BlobPart, ...]


def encode_payload(payload: BlockPayload) -> bytes:
    return canonical([list(payload.transactions), list(payload.results), list(payload.blobs)])


def decode_payload(raw: bytes) -> BlockPayload:
    """ValueError where these bytes are no payload."""
    fields = msgspec.convert(decode_canonical(raw), tuple[tuple[bytes, ...], ...], builtin_types=(bytes,))
    if len(fields) != 3:
        raise ValueError(f"{len(fields)} lists of leaves, not 3")
    return BlockPayload(*fields)


def decode_leaf(raw: bytes) -> BlobLeaf:
    """ValueError where these bytes are no leaf of a blob."""
    return msgspec.convert(decode_canonical(raw), BlobLeaf, builtin_types=(bytes,))
