"""The digest that identifies a result."""

from __future__ import annotations

from hashlib import sha3_256
from typing import TYPE_CHECKING, Final

from holdfast.core.base.canonical import HashDomain
from holdfast.core.base.values import Digest

if TYPE_CHECKING:
    from hashlib import _Hash

RESULT: Final = HashDomain("animica.cap.result", (1,))


def result_digest(output: bytes) -> Digest:
    """RES-004: consensus uses only this digest and never fetches the bytes."""
    return RESULT.make(output)


def result_hasher(size: int) -> _Hash:
    """The same digest of `size` bytes that follow in parts."""
    tag = f"{RESULT.name}.v{RESULT.versions[-1]}".encode()
    return sha3_256(len(tag).to_bytes(4, "big") + tag + size.to_bytes(4, "big"))
