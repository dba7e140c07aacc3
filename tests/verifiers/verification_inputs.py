"""Verifiers that behave badly, and cases for them: functions of a module, so that another process finds them."""

from __future__ import annotations

import os
import time
from typing import Any

from holdfast.core.base.canonical import canonical
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.result import result_digest
from holdfast.ports.verifier import VerificationInput, VerificationResult

KEY, GOOD = b"k" * 32, b"good"


def verify(public: bytes, _: bytes, signature: bytes) -> bool:
    return public == KEY and signature == GOOD


def verification_input(
    payload: object, output: bytes, signature: bytes = GOOD, kind: int = 1, method: str = "recompute"
) -> VerificationInput:
    body = body_of(b"t" * 32, b"l" * 32, b"p" * 32, result_digest(output), len(output), {})
    return VerificationInput(Envelope(kind, method, body, signature), KEY, canonical(payload), output, b"chance")


def ai(prompt: str = "hi", model: str = "echo") -> dict[str, Any]:
    return {"kind": "AI", "spec": {"model": model, "prompt": prompt}}


def circuit(shots: int = 200, trap_ppm: int = 100_000, width: int = 5) -> dict[str, Any]:
    spec = {"circuit": "OPENQASM 3.0;", "shots": shots, "width": width, "depth": 3, "trap_ppm": trap_ppm}
    return {"kind": "QUANTUM", "spec": spec}


def says_yes(_: VerificationInput) -> VerificationResult:
    return VerificationResult(True, f"seen by {os.getpid()}")


def hangs(_: VerificationInput) -> VerificationResult:
    while True:
        time.sleep(60)


def crashes(_: VerificationInput) -> VerificationResult:
    os.kill(os.getpid(), 11)
    return VerificationResult(True, "never said")


def leaves(_: VerificationInput) -> VerificationResult:
    os._exit(3)


def eats_memory(_: VerificationInput) -> VerificationResult:
    hoard = [bytearray(16 << 20) for _ in range(64)]  # 1 GiB, whatever the limit
    return VerificationResult(bool(hoard), "nothing stopped it")


def raises(_: VerificationInput) -> VerificationResult:
    raise ValueError("not my kind of proof")


def answers_nonsense(_: VerificationInput) -> Any:
    return "yes"


def ends_at_once(*_: object) -> None:
    """A process that never gets as far as answering."""
