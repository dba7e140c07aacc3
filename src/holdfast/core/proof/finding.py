"""What a verifier is shown and what it answers (PRF-002): the shape that every method of proof has."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from holdfast.core.proof.envelope import Envelope


class Where(StrEnum):
    """Where a verifier runs: never in the event loop."""

    THREAD = "thread"
    """For what takes microseconds and cannot hang: many proofs are judged in one go."""
    PROCESS = "process"
    """For what computes: it has a process, limits of time and memory, and is killed beyond them."""


class Case(msgspec.Struct, frozen=True, gc=False):
    """All that a verifier may look at. It is pickled on its way to another process."""

    envelope: Envelope
    public: bytes
    """The key of the provider that held the lease."""
    payload: bytes = b""
    """What the job asked for, as canonical bytes; empty unless the method needs it."""
    output: bytes | None = None
    """What was handed in, checked against its digest; None unless the method needs it."""
    chance: bytes = b""
    """Nobody knew this before the result was handed in, the node neither: what samples are drawn from."""


class Finding(msgspec.Struct, frozen=True):
    """What a verifier found, and why. A no is the provider's fault; a verifier that cannot tell raises instead."""

    is_good: bool
    reasons: str


class Method(msgspec.Struct, frozen=True):
    """One method of proof, as it plugs in."""

    says: str
    """One sentence: what is proved by it."""
    find: Callable[[Case], Finding]
    """In a process it is found by its name: a function of a module, or an object that can be pickled."""
    where: Where = Where.PROCESS
    needs_payload: bool = False
    needs_output: bool = False
