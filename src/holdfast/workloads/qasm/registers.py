"""Registers, and what an index selects of them: one element, a set, or a range with both ends, also from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.workloads.qasm.expressions import expression
from holdfast.workloads.qasm.program import InvalidCircuit
from holdfast.workloads.qasm.tokens import Tokens

QUBIT, BIT = "qubit", "bit"
_NOTHING: Final[frozenset[str]] = frozenset()


class RegisterSlice(NamedTuple):
    """Some qubits or bits by their numbers: a declared register, an alias, or a part of one."""

    kind: str
    indexes: Sequence[int]
    is_single: bool = False
    """One element by its index, which has no elements itself."""

    @property
    def cost(self) -> int:
        """A range is no work to make; a list is."""
        return 0 if isinstance(self.indexes, range) else len(self.indexes)


def select(tokens: Tokens, register: RegisterSlice) -> RegisterSlice:
    """Pass one `[…]` and return what it selects of the register."""
    if register.is_single:
        raise InvalidCircuit("one element has no index")
    tokens.expect("[")
    selected = _set(tokens, register) if tokens.take("{") else _range(tokens, register)
    tokens.expect("]")
    return selected


def joined(parts: Sequence[RegisterSlice]) -> RegisterSlice:
    """`a ++ b`: all elements in this order, none twice."""
    if len(parts) == 1:
        return parts[0]
    if len({part.kind for part in parts}) > 1:
        raise InvalidCircuit("qubits and bits do not go into one alias")
    return RegisterSlice(parts[0].kind, _distinct([index for part in parts for index in part.indexes]))


def _set(tokens: Tokens, register: RegisterSlice) -> RegisterSlice:
    chosen = [_position(register, whole_number_at(tokens))]
    while tokens.take(",") and tokens.text != "}":
        chosen.append(_position(register, whole_number_at(tokens)))
    tokens.expect("}")
    return RegisterSlice(register.kind, _distinct([register.indexes[at] for at in chosen]))


def _range(tokens: Tokens, register: RegisterSlice) -> RegisterSlice:
    first = None if tokens.text == ":" else whole_number_at(tokens)
    if not tokens.take(":"):
        _no_more(tokens)
        at = _position(register, first or 0)
        return RegisterSlice(register.kind, register.indexes[at : at + 1], is_single=True)
    middle = None if tokens.text in {":", "]", ","} else whole_number_at(tokens)
    step, last = 1, middle
    if tokens.take(":"):
        step, last = (1 if middle is None else middle), whole_number_at(tokens)
    _no_more(tokens)
    return RegisterSlice(register.kind, _slice(register, first, step, last))


def _slice(register: RegisterSlice, first: int | None, step: int, last: int | None) -> Sequence[int]:
    """Both ends belong to a range; a missing one is the register's."""
    if step == 0:
        raise InvalidCircuit("a range has the step 0")
    ends = (0, -1) if step > 0 else (-1, 0)
    begin = _position(register, ends[0] if first is None else first)
    end = _position(register, ends[1] if last is None else last)
    chosen = range(begin, end + (1 if step > 0 else -1), step)
    if not chosen:
        raise InvalidCircuit("a range selects nothing")
    indexes = register.indexes
    if isinstance(indexes, range):
        after = indexes[chosen[-1]] + (1 if indexes.step * step > 0 else -1)
        return range(indexes[begin], after, indexes.step * step)
    return tuple(indexes[at] for at in chosen)


def _no_more(tokens: Tokens) -> None:
    """A trailing comma is nothing; a second index is for arrays."""
    if tokens.take(",") and tokens.text != "]":
        raise InvalidCircuit("a register has one index; several of its elements are a set, as in q[{0, 2}]")


def whole_number_at(tokens: Tokens) -> int:
    """Pass an expression that is a whole number."""
    begin = tokens.at
    value = expression(tokens, _NOTHING)
    if value is None:
        raise InvalidCircuit(f"{tokens.source[begin : min(tokens.before, begin + 40)]!r} is not a whole number")
    return value


def _position(register: RegisterSlice, index: int) -> int:
    size = len(register.indexes)
    if not -size <= index < size:
        raise InvalidCircuit(f"index {index} is beyond its register of {size}")
    return index % size


def _distinct(indexes: list[int]) -> Sequence[int]:
    if len(set(indexes)) < len(indexes):
        raise InvalidCircuit("an element is selected twice")
    return tuple(indexes)
