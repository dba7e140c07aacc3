"""The digest that identifies a result."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.canonical import HashDomain
from holdfast.core.base.values import Digest

RESULT: Final = HashDomain("animica.cap.result", (1,))


def result_digest(output: bytes) -> Digest:
    """RES-004: consensus uses only this digest and never fetches the bytes."""
    return RESULT.make(output)
