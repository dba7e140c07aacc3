"""Gates by name: those that are known, and those that a circuit defines, as the steps they stand for.

A definition is expanded once, when it is read, and may use only gates before it: nothing refers to itself, and a chain
of definitions costs what it expands to, which is bounded with the steps of the circuit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.workloads.qasm.program import CLIFFORD_GATES, GATES, ONE_QUBIT_GATES, Dialect, InvalidCircuit, Step

LANGUAGE_GATES: Final = frozenset({"U", "CX"})
_QELIB1: Final = "u3 u2 u1 cx id x y z h s sdg t tdg rx ry rz cz cy ch ccx crz cu1 cu3"
_STDGATES: Final = (
    "p x y z h s sdg t tdg sx rx ry rz cx cy cz cp crx cry crz ch swap ccx cswap cu CX phase cphase id u1 u2 u3"
)
LIBRARIES: Final = {"qelib1.inc": frozenset(_QELIB1.split()), "stdgates.inc": frozenset(_STDGATES.split())}
"""The standard libraries of both versions, and the gates that a circuit that includes them cannot define."""
_SPELLINGS: Final = {"CX": "cx"}
"""Gates of OpenQASM 2 itself that the library of version 3 spells otherwise."""


class Gate(NamedTuple):
    """What a name stands for: steps on its operands, which are numbered from 0. None: it takes any number."""

    name: str
    operands: int | None
    params: int | None
    steps: tuple[Step, ...] | None
    """None for a gate that is a step itself."""

    def check_form(self, params: int, operands: int) -> None:
        if self.operands not in (None, operands):
            raise InvalidCircuit(f"{self.name} has {operands} operands")
        if self.params not in (None, params):
            raise InvalidCircuit(f"{self.name} has {params} parameters")

    def on(self, qubits: tuple[int, ...]) -> Sequence[Step]:
        """Its steps on these qubits."""
        if len(qubits) > 1 and len(set(qubits)) < len(qubits):
            raise InvalidCircuit(f"{self.name} of a qubit with itself")
        if self.steps is None:
            return (Step(self.name, qubits),)
        return [Step(step.name, tuple([qubits[at] for at in step.operands])) for step in self.steps]

    def cost(self, operands: int) -> int:
        """What applying it once counts of `STEPS_MAX`: each step, and operands where there are many."""
        own = operands if operands > 2 else 1
        return own if self.steps is None else max(own, step_cost(self.steps))


def step_cost(steps: Sequence[Step]) -> int:
    return sum(len(step.operands) if len(step.operands) > 2 else 1 for step in steps)


class GateTable:
    """The gates that a circuit can use at some place."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._gates: dict[str, Gate] = {}
        self._reserved = set(LANGUAGE_GATES)
        self.defined: set[str] = set()

    def include(self, library: str) -> None:
        if library not in LIBRARIES:
            known = " and ".join(LIBRARIES)
            raise InvalidCircuit(f"{library[:40]!r} cannot be included, only the standard libraries {known}")
        names = LIBRARIES[library]
        if self.defined & names:
            raise InvalidCircuit(f"{min(self.defined & names)!r} is declared twice: {library} has it, too")
        self._reserved |= names

    def find(self, name: str) -> Gate:
        """The gate; from then on its name means this one."""
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = self._known(_SPELLINGS.get(name, name))
        return gate

    def _known(self, name: str) -> Gate:
        if name in CLIFFORD_GATES:
            return Gate(name, 1 if name in ONE_QUBIT_GATES else 2, 0, None)
        if not self._dialect.is_any_gate:
            raise InvalidCircuit(f"unknown gate {name[:20]!r}, known are {' '.join(GATES)}")
        return Gate(name, None, None, None)

    def define(self, gate: Gate) -> None:
        self.check_new(gate.name)
        self._gates[gate.name] = gate
        self.defined.add(gate.name)

    def check_new(self, name: str) -> None:
        if name in self._reserved or name in self.defined:
            raise InvalidCircuit(f"{name[:40]!r} is declared twice")
        if name in self._gates:
            raise InvalidCircuit(f"gate {name[:40]!r} is used before its definition")
