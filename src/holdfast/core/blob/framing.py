"""From result bytes to blobs and back (BLB-001): a frame names its result, blobs carry 31 bytes a field element.

    u8 version | u8 flags | u32 key id | task_id (32) | result_digest (32) | u64be length | bytes

Frames follow each other in the payloads of blobs. One that is larger than a blob begins in a new one and spans several.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import Digest, TaskId

BLOB_BYTES: Final = 131_072
ELEMENT_BYTES, USED_BYTES = 32, 31
"""A field element is below the BLS modulus whatever follows its first byte, which is 0."""
PAYLOAD_BYTES: Final = BLOB_BYTES // ELEMENT_BYTES * USED_BYTES
PARTS_MAX: Final = 2_048
"""Results in one blob: its event lists them."""
FRAME_VERSION: Final = 1
ENCRYPTED: Final = 1
"""The flag of private bytes: a ciphertext of the key with this id (BLB-003)."""
_HEADER: Final = struct.Struct(">BBI32s32sQ")
HEADER_BYTES: Final = _HEADER.size


class FrameHeader(NamedTuple):
    """What stands before the bytes of a result."""

    version: int
    flags: int
    key_id: int
    task_id: TaskId
    result_digest: Digest
    length: int
    """Of the bytes that follow, encrypted or not."""

    @property
    def is_encrypted(self) -> bool:
        return bool(self.flags & ENCRYPTED)


def make_frame(task_id: TaskId, result_digest: Digest, body: bytes, key_id: int | None = None) -> bytes:
    """The bytes of one result in the payload of blobs; with a key id, `body` is encrypted."""
    flags = 0 if key_id is None else ENCRYPTED
    return _HEADER.pack(FRAME_VERSION, flags, key_id or 0, task_id, result_digest, len(body)) + body


def read_frame(raw: bytes) -> tuple[FrameHeader, bytes]:
    """Header and body of a whole frame; Corrupt where it is cut or of a version that we do not know."""
    header = read_header(raw)
    if len(raw) != HEADER_BYTES + header.length:
        raise Corrupt("BLB-001", f"a frame of {len(raw)} bytes is not {header.length} long")
    return header, raw[HEADER_BYTES:]


def read_header(raw: bytes) -> FrameHeader:
    """What stands at the beginning of a frame; Corrupt where it is none that we know."""
    if len(raw) < HEADER_BYTES:
        raise Corrupt("BLB-001", f"a frame of {len(raw)} bytes is cut")
    header = FrameHeader(*_HEADER.unpack_from(raw))
    if header.version != FRAME_VERSION:
        raise Corrupt("BLB-001", f"a frame of version {header.version}, expected {FRAME_VERSION}")
    return header


class Piece(NamedTuple):
    """Where a part of a frame is in the payload of a blob."""

    frame: int
    offset: int
    length: int


def split_frames(sizes: Sequence[int], skip: int = 0) -> Iterator[list[Piece]]:
    """How frames of these sizes, of the first one without `skip` bytes, are laid into blobs; the last may not be full.

    Small frames share a blob in their order. One that does not fit into any blob begins a new one.
    """
    pieces, used = list[Piece](), 0
    for frame, size in enumerate(sizes):
        left = size - skip if frame == 0 else size
        is_large = left > PAYLOAD_BYTES
        if pieces and (len(pieces) == PARTS_MAX or used + min(left, PAYLOAD_BYTES + is_large) > PAYLOAD_BYTES):
            yield pieces
            pieces, used = [], 0
        while left:
            length = min(left, PAYLOAD_BYTES - used)
            pieces.append(Piece(frame, used, length))
            used, left = used + length, left - length
            if left:
                yield pieces
                pieces, used = [], 0
    if pieces:
        yield pieces


def pack_payload(payload: bytes) -> bytes:
    """The blob of a payload: each field element is a zero byte and 31 bytes; the rest is zeros."""
    assert len(payload) <= PAYLOAD_BYTES
    padded = payload.ljust(PAYLOAD_BYTES, b"\0")
    blob = bytearray(BLOB_BYTES)
    for byte in range(USED_BYTES):
        blob[byte + 1 :: ELEMENT_BYTES] = padded[byte::USED_BYTES]
    return bytes(blob)


def unpack_payload(blob: bytes) -> bytes:
    """All bytes that a blob can carry; the parts of its leaf say which of them are used."""
    payload = bytearray(PAYLOAD_BYTES)
    for byte in range(USED_BYTES):
        payload[byte::USED_BYTES] = blob[byte + 1 :: ELEMENT_BYTES]
    return bytes(payload)


def versioned_hash(commitment: bytes) -> Digest:
    """EIP-4844: the hash of a commitment with its first byte replaced by the version."""
    return Digest(b"\x01" + sha256(commitment).digest()[1:])
