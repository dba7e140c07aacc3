"""The node's own word on an input that a provider calls invalid (JOB-012), for the work that comes with Holdfast."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from holdfast.core.base.values import Kind
from holdfast.core.job.spec import QuantumSpec, WorkPayload
from holdfast.workloads.circuit import SHOTS_MAX, check_circuit
from holdfast.workloads.digits import picture_fault
from holdfast.workloads.echo import sleep_ms
from holdfast.workloads.invalid_input import InvalidJobInput
from holdfast.workloads.qasm.program import ANY_GATES, CLIFFORD

CIRCUIT_MS_MAX: Final = 50
"""Processor time for parsing one circuit."""


def is_input_valid(payload: WorkPayload) -> bool | None:
    """Whether this work can be computed by whoever offers it; None where the node cannot say."""
    try:
        check = _CHECKS.get(payload.kind)
        return None if check is None else check(payload)
    except InvalidJobInput:
        return False
    except TimeoutError:
        return None


def _is_circuit_valid(payload: WorkPayload) -> bool | None:
    """What the simulator cannot run, somebody else perhaps can: it is their word alone."""
    spec, until = msgspec.convert(payload.spec, QuantumSpec), time.thread_time() + CIRCUIT_MS_MAX / 1_000

    def check_time() -> bool:
        if time.thread_time() > until:
            raise TimeoutError
        return False

    check_circuit(spec, ANY_GATES, check_time)
    try:
        check_circuit(spec, CLIFFORD, check_time)
    except InvalidJobInput:
        return None
    return True if spec.shots <= SHOTS_MAX else None


def _is_prompt_valid(payload: WorkPayload) -> bool | None:
    spec = payload.spec
    if payload.input is not None:
        return None
    match spec.get("model"):
        case "digits":
            return picture_fault(str(spec["prompt"] if spec.get("prompt") is not None else spec.get("input"))) is None
        case "echo":
            return True
        case "sleep":
            sleep_ms(payload)
            return True
    return None


_CHECKS: Final = {Kind.AI: _is_prompt_valid, Kind.QUANTUM: _is_circuit_valid}
"""What a COMPUTE runtime accepts, only its providers know."""
