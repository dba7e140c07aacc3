"""The input of a job (JOB-003): opaque bytes of any kind, which stand in the payload as digest, size and media type."""

from __future__ import annotations

from hashlib import sha3_256
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from holdfast.core.base.canonical import H, hash_prefix
from holdfast.core.base.values import Digest

if TYPE_CHECKING:
    from hashlib import _Hash

INPUT_TAG: Final = "holdfast.input.v1"
INPUT_BYTES_MAX: Final = 1 << 30
INLINE_BYTES_MAX: Final = 64 << 10
"""An input of at most this size may come with its job; a larger one is uploaded before."""
OCTETS: Final = "application/octet-stream"
MEDIA_TYPE: Final = r"\A[A-Za-z0-9!#$&^_.+-]{1,63}/[A-Za-z0-9!#$&^_.+-]{1,63}(; ?[!-~ ]{1,63})?\Z"


class InputRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands for the bytes of an input in the payload of its job."""

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0, le=INPUT_BYTES_MAX)]
    media_type: Annotated[str, msgspec.Meta(pattern=MEDIA_TYPE)] = OCTETS

    @property
    def digest_bytes(self) -> Digest:
        return Digest(bytes.fromhex(self.digest))


def input_digest(raw: bytes) -> Digest:
    return H(INPUT_TAG, raw)


def input_hasher(size: int) -> _Hash:
    """For bytes of this size that come in parts: the length is hashed before them (CAN-001)."""
    return sha3_256(hash_prefix(INPUT_TAG) + size.to_bytes(4, "big"))
