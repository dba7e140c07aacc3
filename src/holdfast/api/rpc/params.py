"""JSON in and out: parameters to typed records, with every wrong field named; records to plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import astuple

from holdfast.core.base.errors import Refused

T = TypeVar("T", bound=msgspec.Struct)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")
_UNSIGNED: Final = {"chain_id": 2**64}
"""Fields that are never stored may use all 64 bits."""
_PLAIN: Final = frozenset({str, int, bool, float, type(None)})
"""Types that JSON has: most fields of a record are of one."""
NOT_HEX: Final = "must be lower-case hex without 0x"
FINDERS: Final = {
    "provider_id": "aicf.findProvider finds a provider by its name or the beginning of its id",
    "task_id": "cap.findJob finds a job by the beginning of its id",
}
"""Methods that find an id."""
_UNKNOWN_FIELDS_MAX: Final = 8
"""How many unknown fields are named, so that an answer is not many times as long as its request."""


class NoParams(msgspec.Struct, frozen=True):
    """A method without parameters."""


def read_params(kind: type[T], params: object) -> T | Refused:
    """The record that `params` describe; unknown, missing and malformed fields are refused by name, all at once."""
    if not isinstance(params, Mapping):
        return _invalid_params("params", "must be an object with named fields")
    hints, wrong, values = _hints(kind), [], {}
    wrong += [f"{name}: missing" for name in sorted(_required(kind) - params.keys())]
    unknown: list[str] = []
    for name, value in params.items():
        if name not in hints:
            unknown.append(name)
            continue
        try:
            values[name] = _value(hints[name], value, _UNSIGNED.get(name, 2**63))
        except (msgspec.ValidationError, ValueError) as fault:
            wrong.append(f"{name}: {fault!s:.200}")
    wrong += [f"{name:.80}: no such field (known: {', '.join(hints)})" for name in unknown[:_UNKNOWN_FIELDS_MAX]]
    if not wrong:
        return kind(**values)
    return _invalid_params("params", "; ".join(wrong), next(filter(None, map(_find_hint, wrong)), ""))


def to_json(value: object) -> Any:
    """A value as JSON has it: records as objects, bytes as lower-case hex."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is bytes:
        return value.hex()  # type: ignore[attr-defined]
    match value:
        case msgspec.Struct():
            fields = dict(zip(value.__struct_fields__, astuple(value), strict=True))
            for name in _fields_to_convert(kind):
                fields[name] = to_json(fields[name])
            return fields
        case list() | tuple():
            return [to_json(item) for item in value]
        case dict():
            return {str(key): to_json(item) for key, item in value.items()}
    return value


@cache
def _fields_to_convert(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a record that may hold what JSON does not have: all but texts, numbers and truth values."""
    hints = _hints(kind)
    return tuple(name for name in kind.__struct_fields__ if not _is_plain(hints[name]))


def _is_plain(hint: Any) -> bool:
    hint = getattr(hint, "__supertype__", hint)
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_plain, get_args(hint)))
    return isinstance(hint, type) and hint in _PLAIN


def _value(kind: Any, value: object, end: int) -> object:
    """SEC-001: a number beyond 64 bits or a NUL in a text is refused, since a store could not hold it."""
    if kind is bytes:
        if isinstance(value, bytes):  # of a protobuf message; JSON has hex
            return value
        if not isinstance(value, str) or not _HEX.fullmatch(value):
            raise ValueError(NOT_HEX)
        return bytes.fromhex(value)
    converted: object = msgspec.convert(value, kind)
    if isinstance(converted, int) and not -(2**63) <= converted < end:
        raise ValueError("must fit into 64 bits")
    if isinstance(converted, str) and "\0" in converted:
        raise ValueError("must not hold a NUL")
    return converted


@cache
def _required(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.required)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Field types, with our distinct types (ReservationId, Amount …) resolved to what they are made of."""
    return {name: getattr(hint, "__supertype__", hint) for name, hint in get_type_hints(kind).items()}


def _invalid_params(path: str, message: str, hint: str = "") -> Refused:
    return Refused("RPC-001", f"{path}: {message}", hint, "InvalidParams")


def _find_hint(fault: str) -> str:
    """How to get an id from what a person knows of it."""
    name, _, why = fault.partition(": ")
    return FINDERS.get(name, "") if why == NOT_HEX else ""
