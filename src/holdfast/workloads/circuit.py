"""`circuit`: a QUANTUM job on the stabiliser simulator: all its runs, those that are traps among them (PRF-002).

Chance comes from what was asked for, so that whoever runs the job again gets the same bytes. The output is the
canonical map `{"shots": [bits, …]}`, a text for each run, bit 0 of the circuit first.
"""

from __future__ import annotations

from hashlib import shake_256
from itertools import count, takewhile
from typing import Final

import msgspec

from holdfast.core.canon import canonical
from holdfast.core.job.spec import Ordered, QuantumSpec
from holdfast.core.proof import traps
from holdfast.workloads.qasm import GATES, MEASURE, WIDTH_MAX, Program, Unreadable, read
from holdfast.workloads.stabiliser import Tableau, run

SHOTS_MAX: Final = 100_000
DEPTH_MAX: Final = 10_000
CHANCE_TAG: Final = b"holdfast.circuit.v1"
CAPABILITY: Final = {"gates": list(GATES), "depth_max": DEPTH_MAX, "width_max": WIDTH_MAX}
"""What it can do, as providers tell it (MAT-002)."""


def circuit(payload: Ordered) -> bytes:
    """Every run in order. What cannot be run as it was asked for is not run at all."""
    spec = msgspec.convert(payload.spec, QuantumSpec)
    program = _program(spec)
    planned = traps.plan(payload.raw, spec.shots, spec.width, spec.trap_ppm)
    begun, coin = _Begun(program), _Coin(payload.raw)
    shots = []
    for at in range(spec.shots):
        answer = planned.answers.get(at)
        asked = begun if answer is None else _Begun(read(traps.circuit(answer)))
        shots.append(asked.shot(coin))
    return canonical({"shots": shots})


def _program(spec: QuantumSpec) -> Program:
    if spec.shots > SHOTS_MAX:
        raise Unreadable(f"shots: at most {SHOTS_MAX} here")
    program = read(spec.circuit)
    if program.bits != spec.width:
        raise Unreadable(f"width: {spec.width}, and the circuit has {program.bits} bits")
    if program.depth > spec.depth:
        raise Unreadable(f"depth: {spec.depth}, and the circuit's is {program.depth}")
    if spec.gates and (more := sorted(program.gates - set(spec.gates))):
        raise Unreadable(f"gates: the circuit also has {' '.join(more)}")
    return program


class _Begun:
    """A program, run as far as its first measurement: up to there all runs are alike."""

    def __init__(self, program: Program) -> None:
        self._bits, self._state = program.bits, Tableau(program.qubits)
        alike = list(takewhile(lambda step: step.name != MEASURE, program.steps))
        run(self._state, alike, [], lambda: 0)
        self._rest = program.steps[len(alike) :]

    def shot(self, coin: _Coin) -> str:
        bits = [0] * self._bits
        run(self._state.copy(), self._rest, bits, coin)
        return "".join(map(str, bits))


class _Coin:
    """Fair, and the same for whoever has the same request."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._blocks, self._word, self._left = seed, count(), 0, 0

    def __call__(self) -> int:
        if not self._left:
            block = next(self._blocks).to_bytes(8, "big")
            self._word, self._left = int.from_bytes(shake_256(CHANCE_TAG + block + self._seed).digest(1_024)), 8_192
        self._left -= 1
        return self._word >> self._left & 1
