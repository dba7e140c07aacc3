"""Parses the part of OpenQASM 2 and 3 that circuits need: registers, gates, measurements.

An unknown statement is refused with its line, never skipped: the circuit that runs is the circuit that was submitted.
The simulator knows Clifford gates; a reader of `ANY_GATES` accepts gates of all names, with parameters (JOB-003). Time
is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from holdfast.workloads.invalid_input import InvalidJobInput

ONE_QUBIT_GATES: Final = frozenset({"id", "x", "y", "z", "h", "s", "sdg"})
TWO_QUBIT_GATES: Final = frozenset({"cx", "cy", "cz", "swap"})
CLIFFORD_GATES: Final = ONE_QUBIT_GATES | TWO_QUBIT_GATES
GATES: Final = tuple(sorted(CLIFFORD_GATES))
MEASURE: Final = "measure"
WIDTH_MAX, STEPS_MAX = 256, 100_000
_TIME_CHECK_STATEMENTS: Final = 64

_COMMENT: Final = re.compile(r"//|/\*")
_IGNORED: Final = re.compile(r"OPENQASM\s+[23](\.\d+)?|include\s+(?:\"[^\"]*\"|'[^']*')|barrier\b.*", re.DOTALL)
_REGISTER: Final = re.compile(
    r"(?P<old>qreg|creg)\s+(?P<named>\w+)\s*\[\s*(?P<count>\w{1,12})\s*\]"
    r"|(?P<new>qubit|bit)\s*(?:\[\s*(?P<many>\w{1,12})\s*\])?\s*\b(?P<name>[A-Za-z_]\w*)"
    r"(?:\s*=\s*measure\s+(?P<measured>[^=>]+))?"
)
_MEASURE: Final = re.compile(
    r"measure\s+(?P<from>[^=>-]+)->\s*(?P<to>[^=>-]+)|(?P<into>[^=>-]+)=\s*measure\s+(?P<of>[^=>-]+)"
)
_INTEGER: Final = re.compile(r"(?P<decimal>[0-9](?:_?[0-9])*)|0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+")
_SPELLINGS: Final = {"CX": "cx"}
"""Gates of OpenQASM 2 itself that the library of version 3 spells otherwise."""
_GATE: Final = re.compile(r"(?P<name>[a-zA-Z_]\w*)\s*(?P<params>\([^()]*\))?\s*(?P<on>[\s\w\[\],]+)")
_OPERAND: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\s*\[\s*(?P<index>\w{1,12})\s*\])?")


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


class InvalidCircuit(InvalidJobInput):
    """The circuit is refused; the message has the line and the reason."""


class Dialect(NamedTuple):
    """What a reader accepts."""

    is_any_gate: bool = False
    width_max: int = WIDTH_MAX


CLIFFORD: Final = Dialect()
"""What the simulator runs."""
ANY_GATES: Final = Dialect(is_any_gate=True, width_max=9_999)
"""What some provider may run: which one, matching decides by its gates."""


def parse(text: str, dialect: Dialect = CLIFFORD, is_late: Callable[[], bool] = lambda: False) -> Program:
    """The circuit; raises `InvalidCircuit`, also where `is_late` says that it takes too long."""
    parser = _Parser(dialect)
    for number, (line, statement) in enumerate(_statements(text)):
        if number % _TIME_CHECK_STATEMENTS == 0 and is_late():
            raise InvalidCircuit("circuit: it takes too long to be checked")
        try:
            parser.parse_statement(statement)
        except InvalidCircuit as fault:
            raise InvalidCircuit(f"circuit, line {line}: {fault}") from None
    if not any(step.name == MEASURE for step in parser.steps):
        raise InvalidCircuit("circuit: it measures nothing")
    return Program(parser.count("q"), parser.count("c"), tuple(parser.steps))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with its line; the line ends of comments are kept."""
    bare, line = _without_comments(text), 1
    *parts, rest = bare.split(";")
    for part in parts:
        yield line + _blank_lines(part), part.strip()
        line += part.count("\n")
    if rest.strip():
        raise InvalidCircuit(f"circuit, line {line + _blank_lines(rest)}: the last statement does not end with ';'")


def _without_comments(text: str) -> str:
    parts, at = list[str](), 0
    while (comment := _COMMENT.search(text, at)) is not None:
        parts.append(text[at : comment.start()])
        mark = "\n" if comment[0] == "//" else "*/"
        end = text.find(mark, comment.end())
        if end < 0 and mark == "*/":
            line = 1 + text.count("\n", 0, comment.start())
            raise InvalidCircuit(f"circuit, line {line}: a comment is not closed")
        at = len(text) if end < 0 else end + (mark == "*/") * len(mark)
        parts.append("\n" * text.count("\n", comment.start(), at) or " ")
    parts.append(text[at:])
    return "".join(parts)


def _blank_lines(part: str) -> int:
    """Line ends before the statement begins."""
    return part[: len(part) - len(part.lstrip())].count("\n")


def _integer(text: str) -> int:
    """As both grammars write it: also hexadecimal, octal and binary, with underscores between digits."""
    match = _INTEGER.fullmatch(text)
    digits = text.replace("_", "")
    if match is None or (not digits[2:] and match["decimal"] is None):
        raise InvalidCircuit(f"{text!r} is not a number")
    return int(digits) if match["decimal"] is not None else int(digits, 0)


class _Parser:
    """Collects the registers and steps of one circuit."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.steps: list[Step] = []
        self._ranges: dict[tuple[str, str], range] = {}
        """Operands that were read, by kind: most circuits name the same ones again and again."""
        self._registers: dict[str, tuple[str, range]] = {}

    def count(self, kind: str) -> int:
        return sum(len(indexes) for each, indexes in self._registers.values() if each == kind)

    def parse_statement(self, statement: str) -> None:
        if not statement or _IGNORED.fullmatch(statement):
            return
        if match := _REGISTER.fullmatch(statement):
            kind = "q" if (match["old"] or match["new"]).startswith("q") else "c"
            name = match["named"] or match["name"]
            self._declare(kind, name, _integer(match["count"] or match["many"] or "1"))
            if match["measured"] is not None:
                self._measure(match["measured"], name)
        elif match := _MEASURE.fullmatch(statement):
            self._measure(match["from"] or match["of"], match["to"] or match["into"])
        elif match := _GATE.fullmatch(statement):
            params = (match["params"] or "")[1:-1].strip()
            self._gate(_SPELLINGS.get(match["name"], match["name"]), params, match["on"].split(","))
        else:
            raise InvalidCircuit(f"{statement[:40]!r} is not understood")

    def _declare(self, kind: str, name: str, count: int) -> None:
        first = self.count(kind)
        if name in self._registers:
            raise InvalidCircuit(f"{name!r} is declared twice")
        if count < 1 or first + count > self._dialect.width_max:
            raise InvalidCircuit(f"1 to {self._dialect.width_max} qubits or bits in all")
        self._registers[name] = (kind, range(first, first + count))

    def _measure(self, source: str, target: str) -> None:
        qubits, bits = self._operand_range(source, "q"), self._operand_range(target, "c")
        if len(qubits) != len(bits):
            raise InvalidCircuit(f"{len(qubits)} qubits do not go into {len(bits)} bits")
        for pair in zip(qubits, bits, strict=True):
            self._add(MEASURE, pair)

    def _gate(self, name: str, params: str, operands: list[str]) -> None:
        if name in CLIFFORD_GATES and not params:
            if len(operands) != (1 if name in ONE_QUBIT_GATES else 2):
                raise InvalidCircuit(f"{name} has {len(operands)} operands")
        elif not self._dialect.is_any_gate:
            raise InvalidCircuit(f"unknown gate {name[:20]!r}, known are {' '.join(GATES)}")
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
        if (known := self._ranges.get((operand, kind))) is None:
            known = self._ranges[operand, kind] = self._read_operand(operand, kind)
        return known

    def _read_operand(self, operand: str, kind: str) -> range:
        match = _OPERAND.fullmatch(operand.strip())
        register = self._registers.get(match["name"]) if match else None
        if match is None or register is None or register[0] != kind:
            raise InvalidCircuit(f"{operand.strip()[:40]!r} is not a {'qubit' if kind == 'q' else 'bit'}")
        if match["index"] is None:
            return register[1]
        index = _integer(match["index"])
        if index >= len(register[1]):
            raise InvalidCircuit(f"{operand.strip()!r} is beyond its register")
        return register[1][index : index + 1]
