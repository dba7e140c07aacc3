"""Definitions of gates: `gate name(parameters) qubits { calls of gates before it }`, expanded while they are read."""

from __future__ import annotations

from holdfast.workloads.qasm.builder import CircuitBuilder
from holdfast.workloads.qasm.expressions import expressions
from holdfast.workloads.qasm.gates import Gate
from holdfast.workloads.qasm.program import InvalidCircuit, Step
from holdfast.workloads.qasm.tokens import Tokens


def define_gate(tokens: Tokens, circuit: CircuitBuilder) -> None:
    """Pass a definition up to its `}`, which is the current token afterwards."""
    tokens.advance()
    name = tokens.name()
    circuit.check_new(name)
    circuit.gates.check_new(name)
    params = _formals(tokens, ")") if tokens.take("(") else []
    qubits = _formals(tokens, "{")
    if not qubits:
        raise tokens.unexpected("the gate's qubits are expected")
    body = _Body(tokens, circuit, frozenset(params), {qubit: at for at, qubit in enumerate(qubits)})
    steps = body.read()
    circuit.define(Gate(name, len(qubits), len(params), steps))


def _formals(tokens: Tokens, close: str) -> list[str]:
    names: dict[str, None] = {}
    while not tokens.take(close):
        if tokens.text in names:
            raise InvalidCircuit(f"{tokens.text[:40]!r} is declared twice")
        names[tokens.name()] = None
        if not tokens.take(","):
            tokens.expect(close)
            break
    return list(names)


class _Body:
    """The statements between the braces: calls of gates, and barriers, which are no steps."""

    def __init__(self, tokens: Tokens, circuit: CircuitBuilder, params: frozenset[str], qubits: dict[str, int]) -> None:
        self._tokens, self._circuit, self._params, self._qubits = tokens, circuit, params, qubits
        self._steps: list[Step] = []

    def read(self) -> tuple[Step, ...]:
        tokens = self._tokens
        while tokens.text != "}":
            if tokens.take("barrier"):
                if tokens.text != ";":
                    self._operands()
            else:
                self._call()
            tokens.expect(";")
        return tuple(self._steps)

    def _call(self) -> None:
        tokens, circuit = self._tokens, self._circuit
        name = tokens.name()
        params = len(expressions(tokens, self._params, ")")) if tokens.take("(") else 0
        on = self._operands()
        gate = circuit.gates.find(name)
        gate.check_form(params, len(on))
        circuit.spend(gate.cost(len(on)))
        self._steps += gate.on(on)

    def _operands(self) -> tuple[int, ...]:
        on = [self._operand()]
        while self._tokens.take(",") and self._tokens.text != ";":
            on.append(self._operand())
        return tuple(on)

    def _operand(self) -> int:
        name = self._tokens.name()
        if name not in self._qubits:
            raise InvalidCircuit(f"{name[:40]!r} is not a qubit of this gate")
        if self._tokens.text == "[":
            raise InvalidCircuit(f"{name[:40]!r} is one qubit and has no index")
        return self._qubits[name]
