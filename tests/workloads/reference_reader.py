"""Circuits as the reference parser of OpenQASM 3 reads them: its syntax tree, interpreted the plain way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import openqasm3
from openqasm3 import ast

from holdfast.workloads.qasm.program import MEASURE, RESET, Program, Step

SUBSET = (
    *(ast.Include, ast.QubitDeclaration, ast.ClassicalDeclaration, ast.BitType, ast.AliasStatement),
    *(ast.QuantumGate, ast.QuantumGateDefinition, ast.QuantumReset, ast.QuantumBarrier),
    *(ast.QuantumMeasurementStatement, ast.QuantumMeasurement, ast.IndexedIdentifier),
    *(ast.DiscreteSet, ast.RangeDefinition, ast.Concatenation),
    *(ast.IntegerLiteral, ast.FloatLiteral, ast.UnaryExpression, ast.BinaryExpression, ast.FunctionCall),
    *(ast.Span, ast.Program, ast.UnaryOperator),
)
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "**", "|", "^", "&", "<<", ">>", "~"})


QUIRKS = re.compile(r"(?<!\*)[-+*/%|&^~]=|\[--")
"""Where the reference parser is not the grammar: `c += measure q` has the tree of `c = measure q`, and the size `--4`
is called negative."""


def read_reference(text: str) -> ast.Program | None:
    """The syntax tree; None where the grammar does not accept the text."""
    try:
        return openqasm3.parse(text) if text.strip() else ast.Program([])
    except openqasm3.parser.QASM3ParsingError:
        return None


def is_of_subset(tree: ast.Program) -> bool:
    """Whether it has only what docs/how-to/provider.md lists."""
    aliases = [each.value for each in tree.statements if isinstance(each, ast.AliasStatement)]
    parts = {id(part) for value in aliases for each in _concatenated(value) for part in _indexed(each)}
    return all(id(node) in parts if isinstance(node, ast.IndexExpression) else _is_known(node) for node in _nodes(tree))


def _is_known(node: Any) -> bool:
    match node:
        case ast.QuantumGate(modifiers=modifiers, duration=duration):
            return not modifiers and duration is None
        case ast.ClassicalDeclaration(init_expression=initial, type=kind):
            return isinstance(kind, ast.BitType) and (initial is None or isinstance(initial, ast.QuantumMeasurement))
        case ast.AliasStatement(value=value):
            return all(isinstance([*_indexed(each)][-1], ast.Identifier) for each in _concatenated(value))
        case ast.Identifier(name=name):
            return not name.startswith("$")  # a qubit of the hardware
        case ast.UnaryExpression(op=op) | ast.BinaryExpression(op=op):
            return op.name in ARITHMETIC
    return isinstance(node, SUBSET)


def _indexed(value: Any) -> Iterator[Any]:
    """A part of a register, and what it is a part of."""
    yield value
    while isinstance(value, ast.IndexExpression):
        value = value.collection
        yield value


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for each in node:
            yield from _nodes(each)
    elif isinstance(node, ast.QASMNode):
        yield node
        for name, value in vars(node).items():
            if name != "span":
                yield from _nodes(value)


def _concatenated(value: Any) -> Iterator[Any]:
    if isinstance(value, ast.Concatenation):
        yield from _concatenated(value.lhs)
        yield from _concatenated(value.rhs)
    else:
        yield value


class ReferenceReader:
    """Registers are lists of numbers, and definitions are expanded at every call."""

    def __init__(self) -> None:
        self.registers: dict[str, list[int]] = {}
        self.definitions: dict[str, ast.QuantumGateDefinition] = {}
        self.counts = {"qubits": 0, "bits": 0}
        self.steps: list[Step] = []

    def read(self, tree: ast.Program) -> Program:
        for statement in tree.statements:
            self._statement(statement)
        return Program(self.counts["qubits"], self.counts["bits"], tuple(self.steps))

    def _statement(self, statement: Any) -> None:
        match statement:
            case ast.QubitDeclaration(qubit=name, size=size):
                self._declare("qubits", name.name, size)
            case ast.ClassicalDeclaration(type=ast.BitType(size=size), identifier=name, init_expression=initial):
                self._declare("bits", name.name, size)
                if isinstance(initial, ast.QuantumMeasurement):
                    self._measure(initial, name)
            case ast.AliasStatement(target=name, value=value):
                self.registers[name.name] = [index for part in _concatenated(value) for index in self._indexes(part)]
            case ast.QuantumGateDefinition(name=name):
                self.definitions[name.name] = statement
            case ast.QuantumGate(name=name, qubits=qubits):
                self._broadcast(name.name, [self._indexes(each) for each in qubits])
            case ast.QuantumReset(qubits=qubits):
                self.steps += [Step(RESET, (qubit,)) for qubit in self._indexes(qubits)]
            case ast.QuantumMeasurementStatement(measure=measured, target=target):
                self._measure(measured, target)

    def _declare(self, kind: str, name: str, size: Any) -> None:
        first, count = self.counts[kind], 1 if size is None else whole(size)
        self.registers[name] = list(range(first, first + count))
        self.counts[kind] += count

    def _measure(self, measured: ast.QuantumMeasurement, target: Any) -> None:
        qubits = self._indexes(measured.qubit)
        if target is None:
            self.steps += [Step(MEASURE, (qubit,)) for qubit in qubits]
        else:
            self.steps += [Step(MEASURE, pair) for pair in zip(qubits, self._indexes(target), strict=True)]

    def _broadcast(self, name: str, operands: list[list[int]]) -> None:
        size = max(map(len, operands))
        for at in range(size):
            self._apply(name, [each[at if len(each) > 1 else 0] for each in operands])

    def _apply(self, name: str, on: list[int]) -> None:
        definition = self.definitions.get(name)
        if definition is None:
            self.steps.append(Step({"CX": "cx"}.get(name, name), tuple(on)))
            return
        formals = dict(zip((each.name for each in definition.qubits), on, strict=True))
        for each in definition.body:
            if isinstance(each, ast.QuantumGate):
                self._apply(each.name.name, [formals[str(qubit.name)] for qubit in each.qubits])

    def _indexes(self, value: Any) -> list[int]:
        match value:
            case ast.Identifier(name=name):
                return self.registers[name]
            case ast.IndexedIdentifier(name=ast.Identifier(name=register), indices=indices):
                chosen = self.registers[register]
                for index in indices:
                    chosen = pick(chosen, index)
                return chosen
            case ast.IndexExpression(collection=collection, index=index):
                return pick(self._indexes(collection), index)
        raise AssertionError(value)


def pick(chosen: list[int], index: Any) -> list[int]:
    if isinstance(index, ast.DiscreteSet):
        return [chosen[whole(each)] for each in index.values]
    (only,) = index
    if not isinstance(only, ast.RangeDefinition):
        return [chosen[whole(only)]]
    step = 1 if only.step is None else whole(only.step)
    ends = (0, len(chosen) - 1) if step > 0 else (len(chosen) - 1, 0)
    begin, end = (
        ends[at] if each is None else whole(each) % len(chosen) for at, each in enumerate((only.start, only.end))
    )
    return [chosen[at] for at in range(begin, end + (1 if step > 0 else -1), step)]


def whole(value: Any) -> int:
    match value:
        case ast.IntegerLiteral(value=number):
            return int(number)
        case ast.UnaryExpression(op=op, expression=inner):
            return -whole(inner) if op.name == "-" else ~whole(inner)
        case ast.BinaryExpression(op=op, lhs=left, rhs=right):
            return int(eval(f"left {op.name.replace('/', '//')} right", {"left": whole(left), "right": whole(right)}))
    raise AssertionError(value)
