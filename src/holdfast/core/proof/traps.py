"""Traps (PRF-002): runs of a circuit whose answer is known, hidden among the others by a draw that anybody repeats.

A job that asks for a share of traps has, in its `shots` runs, some that run another circuit: X gates on qubits that the
draw names, so that the answer is certain. Which runs and which qubits follows from what the job asks for.
"""

from __future__ import annotations

from hashlib import sha3_256
from typing import Final

import msgspec

TRAP_TAG: Final = "holdfast.trap.v1"
PPM: Final = 1_000_000


class Plan(msgspec.Struct, frozen=True):
    """The traps of one job: the number of each trapped run with the answer it must give, as a text of bits."""

    shots: int
    width: int
    answers: dict[int, str]


def plan(payload: bytes, shots: int, width: int, trap_ppm: int) -> Plan:
    """As many runs as the share asks for, rounded up, drawn without repetition; the first one drawn is the first."""
    count = -(-shots * trap_ppm // PPM)
    order: dict[int, str] = {}
    words, draw = _Words(payload), 0
    while len(order) < count:
        at = int.from_bytes(words.at(draw)[:8], "big") % shots
        if at not in order:
            order[at] = _bits(words, draw, width)
        draw += 1
    return Plan(shots, width, dict(sorted(order.items())))


def _bits(words: _Words, draw: int, width: int) -> str:
    found = "".join(f"{byte:08b}" for part in range(-(-width // 256)) for byte in words.at(draw, part))
    return found[:width]


class _Words:
    """`H(TRAP_TAG, payload, numbers …)` (CAN-001), the payload hashed once: one job may have a million draws."""

    def __init__(self, payload: bytes) -> None:
        self._begun = sha3_256()
        for field in (TRAP_TAG.encode(), payload):
            self._begun.update(len(field).to_bytes(4, "big") + field)

    def at(self, *numbers: int) -> bytes:
        hasher = self._begun.copy()
        for number in numbers:
            hasher.update(_NUMBER + number.to_bytes(8, "big"))
        return hasher.digest()


_NUMBER: Final = (8).to_bytes(4, "big")


def circuit(answer: str) -> str:
    """The trap as OpenQASM 3: qubit i is flipped where the answer's sign i is 1."""
    flips = "".join(f"x q[{at}];\n" for at, bit in enumerate(answer) if bit == "1")
    return f"OPENQASM 3.0;\nqubit[{len(answer)}] q;\nbit[{len(answer)}] c;\n{flips}c = measure q;\n"
