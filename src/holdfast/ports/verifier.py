"""The input and the result of a verifier (PRF-002): the interface of every proof method."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.proof.envelope import Envelope

ATTESTED: Final = "attested"
"""The method whose proof is the provider's signature."""
ATTESTED_REASON: Final = "signed by the leased provider"


class Isolation(StrEnum):
    """Where a verifier runs: never in the event loop."""

    THREAD = "thread"
    """For a check that takes microseconds and cannot hang: many proofs are verified in one call."""
    PROCESS = "process"
    """For a computation: it runs in a process with limits of time and memory, and is killed beyond them."""


class VerificationInput(msgspec.Struct, frozen=True, gc=False):
    """All that a verifier may read. It is pickled on its way to another process."""

    envelope: Envelope
    public_key: bytes
    """The key of the provider that held the lease."""
    payload: bytes = b""
    """The job's payload, as canonical bytes; empty unless the method needs it."""
    output: bytes | None = None
    """The submitted output, checked against its digest; None unless the method needs it."""
    sampling_seed: bytes = b""
    """The seed that samples are drawn from: no one, not even the node, knew it before the submission."""


class VerificationResult(msgspec.Struct, frozen=True):
    """The verdict and its reasons. A refusal is the provider's fault; a verifier that cannot decide raises instead."""

    is_good: bool
    reasons: str


class ProofMethod(msgspec.Struct, frozen=True):
    """One proof method, as a plug-in provides it."""

    description: str
    """One sentence: what is proved by it."""
    verify: Callable[[VerificationInput], VerificationResult]
    """For a process it must be picklable: a function of a module, or an object that can be pickled."""
    isolation: Isolation = Isolation.PROCESS
    needs_payload: bool = False
    needs_output: bool = False
