"""`circuit`: a QUANTUM job on the stabiliser simulator: all its runs, traps included (PRF-002).

Randomness is derived from the payload, so that running the job again gives the same bytes. The output is the canonical
map `{"shots": [bits, …]}`, one text for each run, bit 0 of the circuit first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import shake_256
from itertools import count, takewhile
from typing import Final

import msgspec

from holdfast.core.base.canonical import canonical
from holdfast.core.job.spec import QuantumSpec, WorkPayload
from holdfast.workloads import traps
from holdfast.workloads.qasm.parser import parse
from holdfast.workloads.qasm.program import (
    ANY_GATES,
    GATES,
    MEASURE,
    RESET,
    WIDTH_MAX,
    Dialect,
    InvalidCircuit,
    Program,
)
from holdfast.workloads.stabiliser import Tableau, run

SHOTS_MAX: Final = 100_000
DEPTH_MAX: Final = 10_000
RANDOMNESS_TAG: Final = b"holdfast.circuit.v1"
CAPABILITY: Final = {"gates": list(GATES), "depth_max": DEPTH_MAX, "width_max": WIDTH_MAX}
"""Its capability, as providers register it (MAT-002)."""


def run_circuit(payload: WorkPayload) -> bytes:
    """Every run in order. A job that cannot be run exactly as specified is refused."""
    spec = msgspec.convert(payload.spec, QuantumSpec)
    program = _program(spec)
    planned = traps.plan_traps(payload.raw, spec.shots, spec.width, spec.trap_ppm)
    prepared, coin = _PreparedCircuit(program), _Coin(payload.raw)
    shots = []
    for number in range(spec.shots):
        answer = planned.answers.get(number)
        circuit = prepared if answer is None else _PreparedCircuit(parse(traps.trap_circuit(answer)))
        shots.append(circuit.shot(coin))
    return canonical({"shots": shots})


def _program(spec: QuantumSpec) -> Program:
    if spec.shots > SHOTS_MAX:
        raise InvalidCircuit(f"shots: at most {SHOTS_MAX}")
    return _as_declared(parse(spec.circuit), spec)


def circuit_fault(spec: QuantumSpec, ms_max: int) -> str | None:
    """JOB-003: what is wrong with a circuit, whatever gates it has; None where it is as the spec declares it."""
    until = time.process_time() + ms_max / 1_000
    try:
        check_circuit(spec, ANY_GATES, lambda: time.process_time() > until)
    except InvalidCircuit as fault:
        return str(fault)
    return None


def check_circuit(spec: QuantumSpec, dialect: Dialect, is_late: Callable[[], bool]) -> Program:
    """The circuit as the spec declares it; raises `InvalidCircuit`."""
    return _as_declared(parse(spec.circuit, dialect, is_late), spec)


def _as_declared(program: Program, spec: QuantumSpec) -> Program:
    if program.bits != spec.width:
        raise InvalidCircuit(f"width: {spec.width}, but the circuit has {program.bits} bits")
    if program.depth > spec.depth:
        raise InvalidCircuit(f"depth: {spec.depth}, but the circuit has {program.depth}")
    if spec.gates and (others := sorted(program.gates - set(spec.gates))):
        raise InvalidCircuit(f"gates: the circuit also has {' '.join(others)}")
    return program


class _PreparedCircuit:
    """A program, run up to its first measurement or reset: until there all runs are alike."""

    def __init__(self, program: Program) -> None:
        self._bits, self._state = program.bits, Tableau(program.qubits)
        common = list(takewhile(lambda step: step.name not in (MEASURE, RESET), program.steps))
        run(self._state, common, [], lambda: 0)
        self._rest = program.steps[len(common) :]

    def shot(self, coin: _Coin) -> str:
        bits = [0] * self._bits
        run(self._state.copy(), self._rest, bits, coin)
        return "".join(map(str, bits))


class _Coin:
    """Fair random bits that depend on the payload alone."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._blocks, self._word, self._left = seed, count(), 0, 0

    def __call__(self) -> int:
        if not self._left:
            block = next(self._blocks).to_bytes(8, "big")
            self._word, self._left = int.from_bytes(shake_256(RANDOMNESS_TAG + block + self._seed).digest(1_024)), 8_192
        self._left -= 1
        return self._word >> self._left & 1
