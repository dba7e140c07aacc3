"""Runs circuits of Clifford gates exactly: a tableau of stabilisers (Aaronson and Gottesman, 2004) in whole numbers.

A state of n qubits is 2n rows of Pauli operators: row i < n is the destabiliser of row n + i. The rows of one qubit are
the bits of one number, so that a gate is a few operations on numbers, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.workloads.qasm.program import MEASURE, RESET, Step

Coin = Callable[[], int]
"""Returns 0 or 1, for a measurement whose outcome is random."""


class Tableau:
    """The state of some qubits; all are 0 at the beginning."""

    def __init__(self, qubits: int) -> None:
        self.qubits = qubits
        self.x = [1 << at for at in range(qubits)]
        self.z = [1 << (qubits + at) for at in range(qubits)]
        self.signs = 0

    def copy(self) -> Tableau:
        """An independent copy of the state."""
        copy = Tableau(0)
        copy.qubits, copy.x, copy.z, copy.signs = self.qubits, [*self.x], [*self.z], self.signs
        return copy

    # ------------------------------------------------------------------------------------ gates

    def h(self, at: int) -> None:
        self.signs ^= self.x[at] & self.z[at]
        self.x[at], self.z[at] = self.z[at], self.x[at]

    def s(self, at: int) -> None:
        self.signs ^= self.x[at] & self.z[at]
        self.z[at] ^= self.x[at]

    def sdg(self, at: int) -> None:
        self.z[at] ^= self.x[at]
        self.signs ^= self.x[at] & self.z[at]

    def flip_x(self, at: int) -> None:
        self.signs ^= self.z[at]

    def flip_y(self, at: int) -> None:
        self.signs ^= self.x[at] ^ self.z[at]

    def flip_z(self, at: int) -> None:
        self.signs ^= self.x[at]

    def cx(self, control: int, at: int) -> None:
        x, z = self.x, self.z
        self.signs ^= x[control] & z[at] & ~(x[at] ^ z[control])
        x[at] ^= x[control]
        z[control] ^= z[at]

    def cy(self, control: int, at: int) -> None:
        self.sdg(at)
        self.cx(control, at)
        self.s(at)

    def cz(self, control: int, at: int) -> None:
        self.h(at)
        self.cx(control, at)
        self.h(at)

    def swap(self, one: int, other: int) -> None:
        for rows in (self.x, self.z):
            rows[one], rows[other] = rows[other], rows[one]

    # ------------------------------------------------------------------------------------ measuring

    def measure(self, at: int, coin: Coin) -> int:
        """The outcome; the coin is tossed only where both outcomes are possible."""
        open_rows = self.x[at] >> self.qubits
        if not open_rows:
            return self._deterministic_outcome(at)
        row = self.qubits + (open_rows & -open_rows).bit_length() - 1
        self._multiply(self.x[at] & ~(1 << row), row)
        return self._collapse(at, row, coin())

    def reset(self, at: int, coin: Coin) -> None:
        """The qubit is measured, and flipped where it is 1: what it was entangled with keeps the outcome."""
        if self.measure(at, coin):
            self.flip_x(at)

    def _collapse(self, at: int, row: int, outcome: int) -> int:
        """The row becomes its own destabiliser; Z of the qubit, with this outcome as its sign, replaces the row."""
        old, here = 1 << (row - self.qubits), 1 << row
        for rows in (self.x, self.z):
            for qubit, column in enumerate(rows):
                moved = column & ~(old | here)
                rows[qubit] = moved | old if column & here else moved
        self.signs = self.signs & ~(old | here) | (old if self.signs & here else 0) | (here if outcome else 0)
        self.z[at] |= here
        return outcome

    def _deterministic_outcome(self, at: int) -> int:
        """The sign of the product of the stabilisers whose destabilisers do not commute with Z of the qubit."""
        rows = [self.qubits + n for n in range(self.qubits) if self.x[at] >> n & 1]
        work = self.copy()
        first, *others = rows
        for row in others:
            work._multiply(1 << first, row)
        return work.signs >> first & 1

    def _multiply(self, targets: int, by: int) -> None:
        """Multiply each of these rows by row `by`; powers of i are counted modulo 4 in two numbers, one bit per row."""
        ones = twos = 0
        for qubit in range(self.qubits):
            x, z = self.x[qubit], self.z[qubit]
            by_x, by_z = x >> by & 1, z >> by & 1
            if not by_x and not by_z:
                continue
            if by_x and by_z:
                plus, minus = z & ~x, x & ~z
            elif by_x:
                plus, minus = z & x, z & ~x
            else:
                plus, minus = x & ~z, x & z
            twos ^= ones & plus
            ones ^= plus
            twos ^= ~ones & minus
            ones ^= minus
            self.x[qubit] ^= targets if by_x else 0
            self.z[qubit] ^= targets if by_z else 0
        self.signs ^= targets & (twos ^ (-1 if self.signs >> by & 1 else 0))


_GATES: Final[dict[str, Callable[..., None]]] = {
    "id": lambda _, __: None,
    "x": Tableau.flip_x,
    "y": Tableau.flip_y,
    "z": Tableau.flip_z,
    **{name: getattr(Tableau, name) for name in ("h", "s", "sdg", "cx", "cy", "cz", "swap")},
}


def run(state: Tableau, steps: Sequence[Step], bits: list[int], coin: Coin) -> None:
    """Run all steps in order and store the measured bits."""
    for name, on in steps:
        if name == MEASURE:
            outcome = state.measure(on[0], coin)
            for bit in on[1:]:
                bits[bit] = outcome
        elif name == RESET:
            state.reset(on[0], coin)
        else:
            _GATES[name](state, *on)
