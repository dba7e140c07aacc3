"""Parses the part of OpenQASM 2 and 3 that circuits need: registers, gates and their definitions, resets, measurements.

An unknown statement is refused with its line, never skipped: the circuit that runs is the circuit that was submitted.
The simulator knows Clifford gates; a reader of `ANY_GATES` accepts gates of all names, with parameters (JOB-003). Time
is linear in the length of the text and in the steps that it expands to, which are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from holdfast.workloads.qasm.builder import CircuitBuilder
from holdfast.workloads.qasm.definitions import define_gate
from holdfast.workloads.qasm.expressions import expressions
from holdfast.workloads.qasm.program import CLIFFORD, MEASURE, Dialect, InvalidCircuit, Program, Step
from holdfast.workloads.qasm.registers import BIT, QUBIT, RegisterSlice, select, whole_number_at
from holdfast.workloads.qasm.tokens import BLANK, END, KEYWORDS, NAME, Tokens

_TIME_CHECK_COST: Final = 64
"""Statements and steps between two looks at the time."""
_VERSION: Final = re.compile(r"OPENQASM[ \t\r\n]+(?P<major>[0-9]++)(?:\.[0-9]++)?+")
_INCLUDE: Final = re.compile(r"include[ \t\r\n]*(?:\"(?P<one>[^\"\r\t\n]+)\"|'(?P<two>[^'\r\t\n]+)')")
_FACTOR: Final = r"(?:pi|[0-9]++(?:\.[0-9]++)?+)"
_TERM: Final = rf"-?{_FACTOR}(?:[*/]{_FACTOR})*+"
_PLAIN_CALL: Final = re.compile(
    rf"{BLANK}([A-Za-z_]\w*+)(\({_TERM}(?:, ?{_TERM})*+\))?[ \t]*+([A-Za-z_][\w\[\], ]*+);", re.ASCII
)
"""A gate, its plain parameters and its operands, which may have been read before."""


def parse(text: str, dialect: Dialect = CLIFFORD, is_late: Callable[[], bool] = lambda: False) -> Program:
    """The circuit; raises `InvalidCircuit`, also where `is_late` says that it takes too long."""
    parser = _Parser(text, dialect)
    checked_at = 0
    try:
        for done in parser.read():
            if done >= checked_at:
                checked_at = done + _TIME_CHECK_COST
                if is_late():
                    raise InvalidCircuit("it takes too long to be checked")
    except InvalidCircuit as fault:
        raise type(fault)(f"circuit, line {parser.line}: {fault}") from None
    program = parser.circuit.program()
    if not any(step.name == MEASURE and len(step.operands) > 1 for step in program.steps):
        raise InvalidCircuit("circuit: it measures nothing")
    return program


class _Parser:
    """Reads one statement after the other into a circuit."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.circuit = CircuitBuilder(dialect)
        self._text, self._tokens = text, Tokens(text)
        self._operands: dict[str, RegisterSlice] = {}
        """Qubits that were read, by their text: most circuits name the same ones again and again."""
        self._calls: dict[tuple[str, int, str], tuple[int, Sequence[Step]]] = {}
        """Calls that were expanded, by gate, number of parameters and operands."""

    @property
    def line(self) -> int:
        return 1 + self._text.count("\n", 0, self._tokens.at)

    def read(self) -> Iterator[int]:
        """All statements; says after each how much was done."""
        tokens, circuit, statements = self._tokens, self.circuit, 0
        yield 0
        tokens.advance()
        if tokens.text == "OPENQASM":
            self._version()
            tokens.advance()
        while tokens.kind != END:
            self._statement()
            yield (statements := statements + 1) + circuit.cost
            while self._repeat():
                yield (statements := statements + 1) + circuit.cost
            tokens.advance()

    # ------------------------------------------------------------------------------------ statements

    def _repeat(self) -> bool:
        """Pass a plain call of a gate whose operands were read before; anything else is left to `_statement`."""
        match = _PLAIN_CALL.match(self._text, self._tokens.end)
        if match is None:
            return False
        name, params, on = match.groups()
        call = name, 0 if params is None else params.count(",") + 1, on
        expanded = self._calls.get(call)
        self._tokens.at = match.end()
        if expanded is None:
            expanded = self._expand(*call)
            if expanded is None:
                return False
            self._calls[call] = expanded
        self._tokens.end = match.end()
        self.circuit.add(*expanded)
        return True

    def _expand(self, name: str, params: int, on: str) -> tuple[int, Sequence[Step]] | None:
        registers = [self._operands.get(each.strip(" ")) for each in on.split(",")]
        if name in KEYWORDS or None in registers:
            return None
        gate = self.circuit.gates.find(name)
        return self.circuit.expand(gate, params, [each for each in registers if each is not None])

    def _statement(self) -> None:
        """One statement; its last sign is the current token afterwards."""
        tokens = self._tokens
        read = _STATEMENTS.get(tokens.text)
        if read is not None:
            read(self)
        elif tokens.kind == NAME and tokens.text not in KEYWORDS:
            self._call_or_assignment()
        else:
            raise tokens.unexpected("no statement of a circuit begins with it")

    def _end_statement(self) -> None:
        if self._tokens.text != ";":
            raise self._tokens.unexpected("';' is expected")

    def _raw(self, pattern: re.Pattern[str], why: str) -> re.Match[str]:
        """What has tokens of its own, such as a version."""
        match = pattern.match(self._text, self._tokens.at)
        if match is None:
            raise self._tokens.unexpected(why)
        self._tokens.end = match.end()
        self._tokens.advance()
        self._end_statement()
        return match

    def _version(self) -> None:
        match = self._raw(_VERSION, "a version is expected, such as OPENQASM 3.0")
        if match["major"] not in {"2", "3"}:
            raise InvalidCircuit(f"OpenQASM {match['major'][:20]} is not known, only 2 and 3")

    def _include(self) -> None:
        match = self._raw(_INCLUDE, "the name of a library is expected")
        self.circuit.gates.include(match["one"] or match["two"])

    def _define(self) -> None:
        define_gate(self._tokens, self.circuit)

    def _declare_old(self) -> None:
        tokens = self._tokens
        kind = QUBIT if tokens.text == "qreg" else BIT
        tokens.advance()
        name = tokens.name()
        size = self._size()
        self._end_statement()
        self.circuit.declare(kind, name, size)

    def _declare_new(self) -> None:
        tokens = self._tokens
        kind = tokens.text
        tokens.advance()
        size = self._size()
        name = tokens.name()
        measured = self._measured() if kind == BIT and tokens.take("=") else None
        self._end_statement()
        register = self.circuit.declare(kind, name, size)
        if measured is not None:
            self.circuit.measure(measured, register)

    def _size(self) -> int:
        if not self._tokens.take("["):
            return 1
        size = whole_number_at(self._tokens)
        self._tokens.expect("]")
        return size

    def _alias(self) -> None:
        tokens = self._tokens
        tokens.advance()
        name = tokens.name()
        tokens.expect("=")
        parts = [self._operand(None)]
        while tokens.take("++"):
            parts.append(self._operand(None))
        self._end_statement()
        self.circuit.alias(name, parts)

    def _barrier(self) -> None:
        """It orders what hardware does; the steps of a circuit are in order already."""
        self._tokens.advance()
        if self._tokens.text != ";":
            self._qubits()
        self._end_statement()

    def _reset(self) -> None:
        self._tokens.advance()
        register = self._operand(QUBIT)
        self._end_statement()
        self.circuit.reset(register)

    def _measure(self) -> None:
        source = self._measured()
        target = self._operand(BIT) if self._tokens.take("->") else None
        self._end_statement()
        self.circuit.measure(source, target)

    def _measured(self) -> RegisterSlice:
        self._tokens.expect(MEASURE)
        return self._operand(QUBIT)

    def _call_or_assignment(self) -> None:
        tokens = self._tokens
        name, begin = tokens.text, tokens.at
        tokens.advance()
        if tokens.text in {"=", "["}:
            target = self._part(name, begin, BIT)
            tokens.expect("=")
            source = self._measured()
            self._end_statement()
            self.circuit.measure(source, target)
            return
        params = len(expressions(tokens, (), ")")) if tokens.take("(") else 0
        registers = self._qubits()
        self._end_statement()
        self.circuit.add(*self.circuit.expand(self.circuit.gates.find(name), params, registers))

    # ------------------------------------------------------------------------------------ operands

    def _qubits(self) -> list[RegisterSlice]:
        registers = [self._operand(QUBIT)]
        while self._tokens.take(",") and self._tokens.text != ";":
            registers.append(self._operand(QUBIT))
        return registers

    def _operand(self, kind: str | None) -> RegisterSlice:
        begin = self._tokens.at
        return self._part(self._tokens.name(), begin, kind)

    def _part(self, name: str, begin: int, kind: str | None) -> RegisterSlice:
        """A register or a part of it; its name was the token before the current one."""
        tokens, register = self._tokens, self.circuit.register(name, kind)
        while tokens.text == "[":
            register = select(tokens, register)
            self.circuit.spend(register.cost)
        if register.kind == QUBIT:
            self._operands[self._text[begin : tokens.before]] = register
        return register


_STATEMENTS: Final[dict[str, Callable[[_Parser], None]]] = {
    "include": _Parser._include,
    "qreg": _Parser._declare_old,
    "creg": _Parser._declare_old,
    "qubit": _Parser._declare_new,
    "bit": _Parser._declare_new,
    "let": _Parser._alias,
    "gate": _Parser._define,
    "barrier": _Parser._barrier,
    "reset": _Parser._reset,
    "measure": _Parser._measure,
}
