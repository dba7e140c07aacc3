"""A result: what came out, known for ever by its digest."""

from __future__ import annotations

from typing import Final

from holdfast.core.canon import Domain
from holdfast.core.values import Digest

RESULT: Final = Domain("animica.cap.result", (1,))


def result_digest(output: bytes) -> Digest:
    """RES-004: nothing that consensus sees depends on fetching the bytes behind it."""
    return RESULT.make(output)
