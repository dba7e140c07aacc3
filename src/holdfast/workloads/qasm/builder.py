"""Collects the registers and steps of one circuit, and bounds what they expand to."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.workloads.qasm.gates import Gate, GateTable
from holdfast.workloads.qasm.program import MEASURE, RESET, STEPS_MAX, Dialect, InvalidCircuit, Program, Step
from holdfast.workloads.qasm.registers import BIT, QUBIT, RegisterSlice, joined


class CircuitBuilder:
    """What was read of a circuit so far."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.gates = GateTable(dialect)
        self.cost = 0
        """Steps, and what definitions, aliases and sets hold: at most `STEPS_MAX` in all."""
        self._registers: dict[str, RegisterSlice] = {}
        self._counts = {QUBIT: 0, BIT: 0}
        self._steps: list[Step] = []

    def program(self) -> Program:
        return Program(self._counts[QUBIT], self._counts[BIT], tuple(self._steps))

    def spend(self, cost: int) -> None:
        self._check_room(cost)
        self.cost += cost

    def _check_room(self, cost: int) -> None:
        if self.cost + cost > STEPS_MAX:
            raise InvalidCircuit(f"more than {STEPS_MAX} steps, with what definitions and aliases expand to")

    # ------------------------------------------------------------------------------------ names

    def check_new(self, name: str) -> None:
        if name in self._registers or name in self.gates.defined:
            raise InvalidCircuit(f"{name[:40]!r} is declared twice")

    def declare(self, kind: str, name: str, size: int) -> RegisterSlice:
        self.check_new(name)
        first = self._counts[kind]
        if size < 1 or first + size > self._dialect.width_max:
            raise InvalidCircuit(f"1 to {self._dialect.width_max} qubits or bits in all")
        self._counts[kind] += size
        register = self._registers[name] = RegisterSlice(kind, range(first, first + size))
        return register

    def alias(self, name: str, parts: Sequence[RegisterSlice]) -> None:
        self.check_new(name)
        if len(parts) > 1:
            self.spend(sum(len(part.indexes) for part in parts))
        self._registers[name] = joined(parts)

    def define(self, gate: Gate) -> None:
        self.check_new(gate.name)
        self.gates.define(gate)

    def register(self, name: str, kind: str | None) -> RegisterSlice:
        """The register or alias; of this kind where one is wanted."""
        register = self._registers.get(name)
        if register is None or kind not in (None, register.kind):
            raise InvalidCircuit(f"{name[:40]!r} is not a {kind or 'register'}")
        return register

    # ------------------------------------------------------------------------------------ steps

    def expand(self, gate: Gate, params: int, registers: Sequence[RegisterSlice]) -> tuple[int, Sequence[Step]]:
        """The steps of a gate on single qubits, or on each of a register's, with what they cost."""
        gate.check_form(params, len(registers))
        size = max([len(each.indexes) for each in registers])
        cost = size * gate.cost(len(registers))
        self._check_room(cost)
        if size == 1:
            return cost, gate.on(tuple([each.indexes[0] for each in registers]))
        if any(len(each.indexes) not in (1, size) for each in registers):
            raise InvalidCircuit("registers of different sizes")
        columns = [each.indexes if len(each.indexes) > 1 else [each.indexes[0]] * size for each in registers]
        return cost, [step for qubits in zip(*columns, strict=True) for step in gate.on(qubits)]

    def add(self, cost: int, steps: Sequence[Step]) -> None:
        self.spend(cost)
        self._steps += steps

    def reset(self, register: RegisterSlice) -> None:
        self.add(len(register.indexes), [Step(RESET, (qubit,)) for qubit in register.indexes])

    def measure(self, source: RegisterSlice, target: RegisterSlice | None) -> None:
        """Without a target the outcome is forgotten; the qubit has it all the same."""
        qubits = source.indexes
        if target is not None and len(qubits) != len(target.indexes):
            raise InvalidCircuit(f"{len(qubits)} qubits do not go into {len(target.indexes)} bits")
        operands = zip(qubits) if target is None else zip(qubits, target.indexes, strict=True)
        self.add(len(qubits), [Step(MEASURE, each) for each in operands])
