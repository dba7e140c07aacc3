"""What is checked of a job before its command goes to the owner (JOB-003): RPC, host calls and quotes share it.

Inputs of the work that comes with Holdfast are checked as a whole: circuits and pictures. A large circuit is parsed in
a process of its own, so that no other request waits for it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.api.rpc.job_inputs import why_not_input
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Kind, Tier
from holdfast.core.job.spec import QuantumSpec
from holdfast.core.policy import Policy
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.ports.inputs import Inputs
from holdfast.system.child_process import CallFailed, CallTimedOut, ChildEnded, ChildProcess
from holdfast.workloads.circuit import circuit_fault
from holdfast.workloads.digits import picture_fault

CIRCUIT_BYTES_MAX: Final = 256 << 10
CIRCUIT_MS_MAX: Final = 50
"""Processor time for parsing one circuit."""
INLINE_BYTES_MAX: Final = 2 << 10
"""Up to this size parsing takes about a millisecond and needs no other process."""
WAITING_MAX: Final = 64
"""How many circuits may wait for the process."""
ANSWER_S_MAX: Final = 5.0
"""How long the process may take on a busy machine; then it is replaced."""


class InputChecker:
    """Checks inputs; its process is started with the first large one and replaced where it hangs or dies."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "checking")
        self._child: ChildProcess | None = None
        self._waiting = 0

    async def why_not(self, kind: Kind, spec: dict[str, Any]) -> Refused | None:
        """JOB-003: why an input can never be computed; `spec` has the fields of its kind already."""
        if kind is Kind.AI:
            text = spec.get("prompt") if spec.get("prompt") is not None else spec.get("input")
            fault = None
            if spec["model"] == "digits":
                fault = "missing: the picture" if text is None else picture_fault(str(text))
            return None if fault is None else _refuse_input("prompt", fault)
        if kind is not Kind.QUANTUM:
            return None
        circuit = msgspec.convert(spec, QuantumSpec)
        size = len(circuit.circuit.encode(errors="replace"))
        if size > CIRCUIT_BYTES_MAX:
            return _refuse_input("circuit", f"{size} bytes, at most {CIRCUIT_BYTES_MAX}")
        if size <= INLINE_BYTES_MAX:
            fault = circuit_fault(circuit, CIRCUIT_MS_MAX)
        elif self._waiting >= WAITING_MAX:
            return Refused("JOB-005", f"{WAITING_MAX} circuits wait to be checked", "try again later", "BackPressure")
        else:
            fault = await self._check_elsewhere(circuit)
        return (
            None
            if fault is None
            else _refuse_input("circuit", fault.removeprefix("circuit, ").removeprefix("circuit: "))
        )

    async def _check_elsewhere(self, circuit: QuantumSpec) -> str | None:
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, circuit)
        finally:
            self._waiting -= 1

    def _call(self, circuit: QuantumSpec) -> str | None:
        try:
            if self._child is None or not self._child.is_alive:
                self._child = ChildProcess("spawn")
                self._child.start(30.0)
            return self._child.call(circuit_fault, circuit, CIRCUIT_MS_MAX, timeout_s=ANSWER_S_MAX)
        except (CallTimedOut, ChildEnded, CallFailed, OSError):
            self.close_child()
            return "it could not be checked in time"

    def close_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(OSError):
                child.close()

    async def close(self) -> None:
        """End the process; a circuit that is being checked is refused."""
        if self._child is not None:
            self._child.kill()
        await asyncio.to_thread(self._threads.shutdown)
        self.close_child()


async def checked_enqueue(
    checker: InputChecker,
    policy: Policy,
    caller: AccountId,
    tier: Tier,
    payload: Any,
    max_fee: int,
    nonce: int,
    idempotency: bytes = b"",
    inputs: Inputs | None = None,
    raw_input: bytes | None = None,
    not_before_ms: int = 0,
) -> Enqueue | Refused:
    """The command that admits this job; refused where no provider could ever compute or prove it."""
    command = build_enqueue(policy, caller, tier, payload, max_fee, nonce, idempotency, not_before_ms)
    if isinstance(command, Refused):
        return command
    if refusal := await checker.why_not(command.kind, payload["spec"]):
        return refusal
    if not command.input_digest:
        return command
    size = payload["input"]["size"]
    return await why_not_input(inputs, caller, command.input_digest, size, raw_input) or command


def _refuse_input(field: str, message: str) -> Refused:
    return Refused("JOB-003", f"payload.spec.{field}: {message}", name="InvalidParams")
