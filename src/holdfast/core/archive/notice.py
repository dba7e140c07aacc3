"""The signed statement that a blob is archived, and its bytes (NTC-001): proto3, zero values omitted, fields ascending.

    1 height · 2 round · 3 blob_index · 4 kzg_commitment · 5 blob_keccak · 6 provider_id · 7 locator
    · 8 archived_by {1 value} · 9 archived_at · and in version 1: 10 chain_id · 11 versioned_hash

The signature is Ed25519 over SHA-256 of a tag and these bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from holdfast.core.base.values import ChainId, Digest, Height

TAGS: Final = {0: b"ArchiveNoticeV0", 1: b"ArchiveNoticeV1"}
ADDRESS_BYTES: Final = 20
EMBEDDED_ROUND: Final = 0
"""An embedded chain decides every height in its first round."""
_VARINT, _BYTES = 0, 2


class ArchiveNotice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a proposer says about one blob."""

    version: int
    height: Height
    round: int = EMBEDDED_ROUND
    """-1 is none."""
    blob_index: int
    kzg_commitment: bytes
    blob_keccak: Digest
    provider_id: str
    locator: str
    archived_by: bytes
    """The first 20 bytes of Keccak-256 of the signer's public key."""
    archived_at: int
    """Unix time in seconds."""
    chain_id: ChainId = ChainId(0)
    versioned_hash: bytes = b""
    signature: bytes = b""


def notice_body(notice: ArchiveNotice) -> bytes:
    """The bytes of the body that the root is of."""
    fields: list[tuple[int, int | bytes]] = [
        (1, notice.height),
        (2, notice.round),
        (3, notice.blob_index),
        (4, notice.kzg_commitment),
        (5, notice.blob_keccak),
        (6, notice.provider_id.encode()),
        (7, notice.locator.encode()),
        (8, proto_field(1, notice.archived_by)),
        (9, notice.archived_at),
    ]
    if notice.version == 1:
        fields += [(10, notice.chain_id), (11, notice.versioned_hash)]
    return b"".join(proto_field(number, value) for number, value in fields)


def notice_root(notice: ArchiveNotice) -> bytes:
    """NTC-001: the 32 bytes that are signed."""
    return sha256(TAGS[notice.version] + notice_body(notice)).digest()


def proto_field(number: int, value: int | bytes) -> bytes:
    if not value:
        return b""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value % 2**64)  # a negative one as its 64-bit complement
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value > 0x7F:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)
