"""What a circuit is once it is read: steps on numbered qubits and bits."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.workloads.invalid_input import InvalidJobInput

ONE_QUBIT_GATES: Final = frozenset({"id", "x", "y", "z", "h", "s", "sdg"})
TWO_QUBIT_GATES: Final = frozenset({"cx", "cy", "cz", "swap"})
CLIFFORD_GATES: Final = ONE_QUBIT_GATES | TWO_QUBIT_GATES
GATES: Final = tuple(sorted(CLIFFORD_GATES))
MEASURE: Final = "measure"
RESET: Final = "reset"
WIDTH_MAX, STEPS_MAX = 256, 100_000


class Step(NamedTuple):
    """A gate on its qubits, the reset of a qubit, or the measurement of a qubit, into a bit where it names one."""

    name: str
    operands: tuple[int, ...]

    @property
    def qubits(self) -> tuple[int, ...]:
        return self.operands[:1] if self.name == MEASURE else self.operands


class Program(NamedTuple):
    """A parsed circuit."""

    qubits: int
    bits: int
    steps: tuple[Step, ...]

    @property
    def depth(self) -> int:
        """The length of the longest path: steps on different qubits run at the same time."""
        levels = [0] * self.qubits
        for step in self.steps:
            on = step.qubits
            level = 1 + max(levels[qubit] for qubit in on)
            for qubit in on:
                levels[qubit] = level
        return max(levels, default=0)

    @property
    def gates(self) -> frozenset[str]:
        return frozenset(step.name for step in self.steps) - {MEASURE, RESET}


class InvalidCircuit(InvalidJobInput):
    """The circuit is refused; the message has the line and the reason."""


class UnknownSyntax(InvalidCircuit):
    """The text is not part of what is read: no OpenQASM, or more of it than circuits need."""


class Dialect(NamedTuple):
    """What a reader accepts."""

    is_any_gate: bool = False
    width_max: int = WIDTH_MAX


CLIFFORD: Final = Dialect()
"""What the simulator runs."""
ANY_GATES: Final = Dialect(is_any_gate=True, width_max=9_999)
"""What some provider may run: which one, matching decides by its gates."""
