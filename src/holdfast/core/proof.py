"""A proof: what a provider shows for its work, and the nullifier that lets it count only once."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from holdfast.core.canon import Domain, canonical
from holdfast.core.values import Digest, Height

NULLIFIER: Final = Domain("animica.proof.nullifier", (1,))


class ProofType(IntEnum):
    """PRF-001: the kind of work, as the number that is hashed."""

    AI = 1
    QUANTUM = 2


def window_of(enqueue_height: Height, window_blocks: int) -> int:
    """PRF-001: the window that a job enqueued at that height belongs to."""
    return enqueue_height // window_blocks


def nullifier(type: ProofType, window: int, body: object) -> Digest:
    """PRF-001: one proof, one nullifier, whoever submits it again."""
    return NULLIFIER.make(int(type), window, canonical(body))
