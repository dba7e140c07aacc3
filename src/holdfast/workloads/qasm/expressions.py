"""Constant expressions: parameters of gates and indexes of registers.

Whole numbers are computed, since they name qubits; of everything else only the form is checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from typing import Final

from holdfast.workloads.qasm.program import InvalidCircuit
from holdfast.workloads.qasm.tokens import FLOAT, INTEGER, KEYWORDS, NAME, Tokens, whole_number

NESTING_MAX: Final = 64
"""Parentheses in parentheses, and signs before signs."""
_LARGEST: Final = 1 << 64
CONSTANTS: Final = frozenset({"pi", "tau", "euler", "π", "τ", "ℇ"})
_LEVELS: Final = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_UNARY_LEVEL: Final = 7


def expression(tokens: Tokens, names: Container[str], depth: int = 0, level: int = 1) -> int | None:
    """Pass an expression; its value where it is a whole number, else None. `names` are parameters that it may use."""
    value = _operand(tokens, names, depth)
    while (own := _LEVELS.get(tokens.text, 0)) >= level:
        sign = tokens.text
        tokens.advance()
        value = _combine(sign, value, expression(tokens, names, depth, own + 1))
    return value


def expressions(tokens: Tokens, names: Container[str], close: str) -> list[int | None]:
    """Several, with commas between them, up to the closing sign, which is passed."""
    values: list[int | None] = []
    while not tokens.take(close):
        values.append(expression(tokens, names))
        if not tokens.take(","):
            tokens.expect(close)
            break
    return values


def _operand(tokens: Tokens, names: Container[str], depth: int) -> int | None:
    if depth > NESTING_MAX:
        raise InvalidCircuit(f"an expression is nested more than {NESTING_MAX} deep")
    if tokens.text in {"-", "~"}:
        sign = tokens.text
        tokens.advance()
        value = _operand(tokens, names, depth + 1)
        return value if value is None else _bounded(-value if sign == "-" else ~value)
    value = _atom(tokens, names, depth)
    if tokens.take("**"):
        value = _combine("**", value, _operand(tokens, names, depth + 1))
    return value


def _atom(tokens: Tokens, names: Container[str], depth: int) -> int | None:
    kind, text = tokens.kind, tokens.text
    if kind == INTEGER:
        tokens.advance()
        return _bounded(whole_number(text))
    if kind == FLOAT:
        tokens.advance()
        return None
    if kind == NAME and text not in KEYWORDS:
        tokens.advance()
        if tokens.take("("):
            _arguments(tokens, names, depth)
        elif text not in names and text not in CONSTANTS:
            raise InvalidCircuit(f"unknown parameter {text[:40]!r}")
        return None
    if tokens.take("("):
        value = expression(tokens, names, depth + 1)
        tokens.expect(")")
        return value
    raise tokens.unexpected("a number is expected")


def _arguments(tokens: Tokens, names: Container[str], depth: int) -> None:
    """Those of a function of any name, as gates are: nothing here computes it."""
    while not tokens.take(")"):
        expression(tokens, names, depth + 1)
        if not tokens.take(","):
            tokens.expect(")")
            return


def _combine(sign: str, left: int | None, right: int | None) -> int | None:
    """The value of two whole numbers where it is one, and not beyond all registers."""
    if left is None or right is None or not _is_defined(sign, left, right):
        return None
    return _bounded(_OPERATIONS[sign](left, right))


def _is_defined(sign: str, left: int, right: int) -> bool:
    if sign in {"/", "%"}:
        return right != 0 and (sign == "%" or left % right == 0)
    return sign not in {"**", "<<", ">>"} or 0 <= right <= NESTING_MAX


def _bounded(value: int) -> int | None:
    return value if abs(value) < _LARGEST else None


_OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
