"""OpenQASM, versions 2 and 3, as far as circuits of Clifford gates need it: registers, gates, measurements.

What is not understood is refused with its line, never skipped: a circuit that is run is the circuit that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

ONE: Final = frozenset({"id", "x", "y", "z", "h", "s", "sdg"})
TWO: Final = frozenset({"cx", "cy", "cz", "swap"})
GATES: Final = tuple(sorted(ONE | TWO))
MEASURE: Final = "measure"
WIDTH_MAX, STEPS_MAX = 256, 100_000

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SILENT: Final = re.compile(r'OPENQASM\s+[23](\.\d+)?|include\s+"[^"]*"|barrier\b.*', re.DOTALL)
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
    on: tuple[int, ...]


class Program(NamedTuple):
    """A circuit that was read."""

    qubits: int
    bits: int
    steps: tuple[Step, ...]

    @property
    def depth(self) -> int:
        """The longest way through it: steps on different qubits are at the same time."""
        levels = [0] * self.qubits
        for step in self.steps:
            on = step.on[:1] if step.name == MEASURE else step.on
            level = 1 + max(levels[qubit] for qubit in on)
            for qubit in on:
                levels[qubit] = level
        return max(levels, default=0)

    @property
    def gates(self) -> frozenset[str]:
        return frozenset(step.name for step in self.steps) - {MEASURE}


class Unreadable(ValueError):
    """Which line, and why."""


def read(text: str) -> Program:
    """The circuit, or `Unreadable`."""
    reader = _Reader()
    for line, statement in _statements(text):
        try:
            reader.take(statement)
        except Unreadable as fault:
            raise Unreadable(f"circuit, line {line}: {fault}") from None
    if not any(step.name == MEASURE for step in reader.steps):
        raise Unreadable("circuit: it measures nothing")
    return Program(reader.count("q"), reader.count("c"), tuple(reader.steps))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each with its line; comments leave their line ends behind."""
    bare = _COMMENT.sub(lambda found: "\n" * found[0].count("\n") or " ", text)
    line = 1
    *whole, rest = bare.split(";")
    for part in whole:
        yield line + _blank_lines(part), part.strip()
        line += part.count("\n")
    if rest.strip():
        raise Unreadable(f"circuit, line {line + _blank_lines(rest)}: its last statement has no end: ';'")


def _blank_lines(part: str) -> int:
    """Before it begins."""
    return part[: len(part) - len(part.lstrip())].count("\n")


class _Reader:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._registers: dict[str, tuple[str, range]] = {}

    def count(self, kind: str) -> int:
        return sum(len(places) for each, places in self._registers.values() if each == kind)

    def take(self, statement: str) -> None:
        if not statement or _SILENT.fullmatch(statement):
            return
        if found := _REGISTER.fullmatch(statement):
            kind = "q" if (found["old"] or found["new"]).startswith("q") else "c"
            self._declare(kind, found["named"] or found["name"], int(found["count"] or found["many"] or 1))
        elif found := _MEASURE.fullmatch(statement):
            self._measure(found["from"] or found["of"], found["to"] or found["into"])
        elif found := _GATE.fullmatch(statement):
            self._gate(found["name"], found["on"].split(","))
        else:
            raise Unreadable(f"{statement[:40]!r} is not understood")

    def _declare(self, kind: str, name: str, count: int) -> None:
        first = self.count(kind)
        if name in self._registers:
            raise Unreadable(f"{name!r} is declared twice")
        if count < 1 or first + count > WIDTH_MAX:
            raise Unreadable(f"1 to {WIDTH_MAX} places in all")
        self._registers[name] = (kind, range(first, first + count))

    def _measure(self, source: str, target: str) -> None:
        qubits, bits = self._places(source, "q"), self._places(target, "c")
        if len(qubits) != len(bits):
            raise Unreadable(f"{len(qubits)} qubits do not go into {len(bits)} bits")
        for pair in zip(qubits, bits, strict=True):
            self._add(MEASURE, pair)

    def _gate(self, name: str, operands: list[str]) -> None:
        if name not in ONE | TWO:
            raise Unreadable(f"gate {name[:20]!r}: there are {' '.join(GATES)}")
        if len(operands) != (1 if name in ONE else 2):
            raise Unreadable(f"{name} has {len(operands)} operands")
        places = [self._places(each, "q") for each in operands]
        many = max(map(len, places))
        if any(len(each) not in (1, many) for each in places):
            raise Unreadable("registers of different sizes")
        for at in range(many):
            on = tuple(each[at if len(each) > 1 else 0] for each in places)
            if len(set(on)) < len(on):
                raise Unreadable(f"{name} of a qubit with itself")
            self._add(name, on)

    def _add(self, name: str, on: tuple[int, ...]) -> None:
        if len(self.steps) >= STEPS_MAX:
            raise Unreadable(f"more than {STEPS_MAX} steps")
        self.steps.append(Step(name, on))

    def _places(self, operand: str, kind: str) -> range:
        found = _OPERAND.fullmatch(operand.strip())
        known = self._registers.get(found["name"]) if found else None
        if found is None or known is None or known[0] != kind:
            raise Unreadable(f"{operand.strip()[:40]!r} is no {'qubit' if kind == 'q' else 'bit'}")
        if found["index"] is None:
            return known[1]
        index = int(found["index"])
        if index >= len(known[1]):
            raise Unreadable(f"{operand.strip()!r} is beyond its register")
        return known[1][index : index + 1]
