"""Traps (PRF-002): runs of a circuit with a known answer, hidden among the others by a draw that anyone can repeat.

Of the `shots` runs of a job with traps, some run another circuit: X gates on drawn qubits, so that the answer is
certain. Which runs and which qubits are drawn follows from the job's payload.
"""

from __future__ import annotations

from hashlib import sha3_256
from typing import Final

import msgspec

from holdfast.core.base.values import PPM

TRAP_TAG: Final = "holdfast.trap.v1"


class TrapPlan(msgspec.Struct, frozen=True):
    """The traps of one job: the number of each trap run with its expected answer, as a text of bits."""

    shots: int
    width: int
    answers: dict[int, str]


def plan_traps(payload: bytes, shots: int, width: int, trap_ppm: int) -> TrapPlan:
    """As many runs as `trap_ppm` of the shots, rounded up, drawn without repetition."""
    count = -(-shots * trap_ppm // PPM)
    order: dict[int, str] = {}
    words, draw = _TrapHashes(payload), 0
    while len(order) < count:
        at = int.from_bytes(words.at(draw)[:8], "big") % shots
        if at not in order:
            order[at] = _bits(words, draw, width)
        draw += 1
    return TrapPlan(shots, width, dict(sorted(order.items())))


def _bits(hashes: _TrapHashes, draw: int, width: int) -> str:
    bits = "".join(f"{byte:08b}" for part in range(-(-width // 256)) for byte in hashes.at(draw, part))
    return bits[:width]


class _TrapHashes:
    """`H(TRAP_TAG, payload, numbers …)` (CAN-001), the payload hashed once: one job may have a million draws."""

    def __init__(self, payload: bytes) -> None:
        self._prefix = sha3_256()
        for field in (TRAP_TAG.encode(), payload):
            self._prefix.update(len(field).to_bytes(4, "big") + field)

    def at(self, *numbers: int) -> bytes:
        hasher = self._prefix.copy()
        for number in numbers:
            hasher.update(_NUMBER + number.to_bytes(8, "big"))
        return hasher.digest()


_NUMBER: Final = (8).to_bytes(4, "big")


def trap_circuit(answer: str) -> str:
    """The trap as OpenQASM 3: qubit i is flipped where bit i of the answer is 1."""
    flips = "".join(f"x q[{at}];\n" for at, bit in enumerate(answer) if bit == "1")
    return f"OPENQASM 3.0;\nqubit[{len(answer)}] q;\nbit[{len(answer)}] c;\n{flips}c = measure q;\n"
