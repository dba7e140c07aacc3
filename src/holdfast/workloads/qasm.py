"""Parses the part of OpenQASM 2 and 3 that circuits of Clifford gates need: registers, gates, measurements.

An unknown statement is refused with its line, never skipped: the circuit that runs is the circuit that was submitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

ONE_QUBIT_GATES: Final = frozenset({"id", "x", "y", "z", "h", "s", "sdg"})
TWO_QUBIT_GATES: Final = frozenset({"cx", "cy", "cz", "swap"})
GATES: Final = tuple(sorted(ONE_QUBIT_GATES | TWO_QUBIT_GATES))
MEASURE: Final = "measure"
WIDTH_MAX, STEPS_MAX = 256, 100_000

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IGNORED: Final = re.compile(r'OPENQASM\s+[23](\.\d+)?|include\s+"[^"]*"|barrier\b.*', re.DOTALL)
_REGISTER: Final = re.compile(
    r"(?P<old>qreg|creg)\s+(?P<named>\w+)\s*\[\s*(?P<count>\d{1,4})\s*\]"
    r"|(?P<new>qubit|bit)\s*(?:\[\s*(?P<many>\d{1,4})\s*\])?\s+(?P<name>\w+)"
)
_MEASURE: Final = re.compile(
    r"measure\s+(?P<from>[^\s>-]+)\s*->\s*(?P<to>\S+)|(?P<into>[^\s=]+)\s*=\s*measure\s+(?P<of>\S+)"
)
_GATE: Final = re.compile(r"(?P<name>[a-z]\w*)\s+(?P<on>.+)", re.DOTALL)
_OPERAND: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\s*\[\s*(?P<index>\d{1,4})\s*\])?")


class Step(NamedTuple):
    """A gate on its qubits, or the measurement of a qubit into a bit."""

    name: str
    operands: tuple[int, ...]


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
            on = step.operands[:1] if step.name == MEASURE else step.operands
            level = 1 + max(levels[qubit] for qubit in on)
            for qubit in on:
                levels[qubit] = level
        return max(levels, default=0)

    @property
    def gates(self) -> frozenset[str]:
        return frozenset(step.name for step in self.steps) - {MEASURE}


class InvalidCircuit(ValueError):
    """The circuit is refused; the message has the line and the reason."""


def parse(text: str) -> Program:
    """The circuit; raises `InvalidCircuit`."""
    parser = _Parser()
    for line, statement in _statements(text):
        try:
            parser.parse_statement(statement)
        except InvalidCircuit as fault:
            raise InvalidCircuit(f"circuit, line {line}: {fault}") from None
    if not any(step.name == MEASURE for step in parser.steps):
        raise InvalidCircuit("circuit: it measures nothing")
    return Program(parser.count("q"), parser.count("c"), tuple(parser.steps))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with its line; the line ends of comments are kept."""
    bare = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n") or " ", text)
    line = 1
    *parts, rest = bare.split(";")
    for part in parts:
        yield line + _blank_lines(part), part.strip()
        line += part.count("\n")
    if rest.strip():
        raise InvalidCircuit(f"circuit, line {line + _blank_lines(rest)}: the last statement does not end with ';'")


def _blank_lines(part: str) -> int:
    """Line ends before the statement begins."""
    return part[: len(part) - len(part.lstrip())].count("\n")


class _Parser:
    """Collects the registers and steps of one circuit."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._registers: dict[str, tuple[str, range]] = {}

    def count(self, kind: str) -> int:
        return sum(len(indexes) for each, indexes in self._registers.values() if each == kind)

    def parse_statement(self, statement: str) -> None:
        if not statement or _IGNORED.fullmatch(statement):
            return
        if match := _REGISTER.fullmatch(statement):
            kind = "q" if (match["old"] or match["new"]).startswith("q") else "c"
            self._declare(kind, match["named"] or match["name"], int(match["count"] or match["many"] or 1))
        elif match := _MEASURE.fullmatch(statement):
            self._measure(match["from"] or match["of"], match["to"] or match["into"])
        elif match := _GATE.fullmatch(statement):
            self._gate(match["name"], match["on"].split(","))
        else:
            raise InvalidCircuit(f"{statement[:40]!r} is not understood")

    def _declare(self, kind: str, name: str, count: int) -> None:
        first = self.count(kind)
        if name in self._registers:
            raise InvalidCircuit(f"{name!r} is declared twice")
        if count < 1 or first + count > WIDTH_MAX:
            raise InvalidCircuit(f"1 to {WIDTH_MAX} qubits or bits in all")
        self._registers[name] = (kind, range(first, first + count))

    def _measure(self, source: str, target: str) -> None:
        qubits, bits = self._operand_range(source, "q"), self._operand_range(target, "c")
        if len(qubits) != len(bits):
            raise InvalidCircuit(f"{len(qubits)} qubits do not go into {len(bits)} bits")
        for pair in zip(qubits, bits, strict=True):
            self._add(MEASURE, pair)

    def _gate(self, name: str, operands: list[str]) -> None:
        if name not in ONE_QUBIT_GATES | TWO_QUBIT_GATES:
            raise InvalidCircuit(f"unknown gate {name[:20]!r}, known are {' '.join(GATES)}")
        if len(operands) != (1 if name in ONE_QUBIT_GATES else 2):
            raise InvalidCircuit(f"{name} has {len(operands)} operands")
        ranges = [self._operand_range(each, "q") for each in operands]
        size = max(map(len, ranges))
        if any(len(each) not in (1, size) for each in ranges):
            raise InvalidCircuit("registers of different sizes")
        for index in range(size):
            on = tuple(each[index if len(each) > 1 else 0] for each in ranges)
            if len(set(on)) < len(on):
                raise InvalidCircuit(f"{name} of a qubit with itself")
            self._add(name, on)

    def _add(self, name: str, on: tuple[int, ...]) -> None:
        if len(self.steps) >= STEPS_MAX:
            raise InvalidCircuit(f"more than {STEPS_MAX} steps")
        self.steps.append(Step(name, on))

    def _operand_range(self, operand: str, kind: str) -> range:
        match = _OPERAND.fullmatch(operand.strip())
        register = self._registers.get(match["name"]) if match else None
        if match is None or register is None or register[0] != kind:
            raise InvalidCircuit(f"{operand.strip()[:40]!r} is not a {'qubit' if kind == 'q' else 'bit'}")
        if match["index"] is None:
            return register[1]
        index = int(match["index"])
        if index >= len(register[1]):
            raise InvalidCircuit(f"{operand.strip()!r} is beyond its register")
        return register[1][index : index + 1]
