"""Blobs for the tests, with commitments that no curve has been asked for."""

from __future__ import annotations

from hashlib import sha3_256, sha256

from holdfast.core.base.values import Digest, EventNo, TaskId
from holdfast.core.blob.framing import versioned_hash
from holdfast.core.blob.messages import AddBlob
from holdfast.core.blob.model import BlobContent, BlobCursor, BlobPart, cursor_of
from holdfast.core.state import State


def content(number: int, parts: int = 1) -> BlobContent:
    commitment = sha256(b"commitment %d" % number).digest() + bytes(16)
    digest = Digest(sha3_256(b"%d" % number).digest())
    described = tuple(BlobPart(TaskId(bytes([each]) * 32), digest, 100 * each, 100) for each in range(parts))
    return BlobContent(versioned_hash(commitment), commitment, bytes(48), digest, described)


def next_blob(state: State, number: int) -> AddBlob:
    """A blob that takes the next result."""
    cursor = cursor_of(state)
    return AddBlob(content(number), cursor, BlobCursor(EventNo(cursor.event + 1)))
