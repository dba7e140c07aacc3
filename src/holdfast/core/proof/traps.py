"""Traps (PRF-002): runs of a circuit whose answer is known, hidden among the others by a draw that anybody repeats.

A job that asks for a share of traps has, in its `shots` runs, some that run another circuit: X gates on qubits that the
draw names, so that the answer is certain. Which runs and which qubits follows from what the job asks for.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.canon import H

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
    draw = 0
    while len(order) < count:
        word = H(TRAP_TAG, payload, draw)
        order.setdefault(int.from_bytes(word[:8], "big") % shots, _bits(payload, draw, width))
        draw += 1
    return Plan(shots, width, dict(sorted(order.items())))


def _bits(payload: bytes, draw: int, width: int) -> str:
    found = ""
    part = 0
    while len(found) < width:
        word = H(TRAP_TAG, payload, draw, part)
        found += "".join(f"{byte:08b}" for byte in word)
        part += 1
    return found[:width]


def circuit(answer: str) -> str:
    """The trap as OpenQASM 3: qubit i is flipped where the answer's sign i is 1."""
    flips = "".join(f"x q[{at}];\n" for at, bit in enumerate(answer) if bit == "1")
    return f"OPENQASM 3.0;\nqubit[{len(answer)}] q;\nbit[{len(answer)}] c;\n{flips}c = measure q;\n"
