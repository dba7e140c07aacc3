"""JSON in and out: parameters to typed commands with the path of a bad field named, records to plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from holdfast.core.refusal import Refused

T = TypeVar("T", bound=msgspec.Struct)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")
_UNSIGNED: Final = {"chain_id": 2**64}
"""What is compared and stored nowhere has one bit more."""
_STRANGE_MAX: Final = 8
"""How many fields that do not exist are named: an answer is not many times as long as what was asked."""


def read_params(kind: type[T], params: object) -> T | Refused:
    """The command that `params` spell; unknown, missing and malformed fields are refused by name, all at once."""
    if not isinstance(params, Mapping):
        return _bad("params", "must be an object with named fields")
    hints, wrong, values = _hints(kind), [], {}
    wrong += [f"{name}: missing" for name in sorted(_required(kind) - params.keys())]
    strange: list[str] = []
    for name, value in params.items():
        if name not in hints:
            strange.append(name)
            continue
        try:
            values[name] = _value(hints[name], value, _UNSIGNED.get(name, 2**63))
        except (msgspec.ValidationError, ValueError) as fault:
            wrong.append(f"{name}: {fault!s:.200}")
    wrong += [f"{name:.80}: no such field (known: {', '.join(hints)})" for name in strange[:_STRANGE_MAX]]
    return _bad("params", "; ".join(wrong)) if wrong else kind(**values)


def plain(value: object) -> Any:
    """A value as JSON has it: records as objects, bytes as lower-case hex."""
    match value:
        case bytes():
            return value.hex()
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
    return value


def _value(kind: Any, value: object, end: int) -> object:
    """SEC-001: what no store could hold, a number beyond 64 bits or a NUL in a text, is nobody's parameter."""
    if kind is bytes:
        if not isinstance(value, str) or not _HEX.fullmatch(value):
            raise ValueError("must be lower-case hex without 0x")
        return bytes.fromhex(value)
    found = msgspec.convert(value, kind)
    if isinstance(found, int) and not -(2**63) <= found < end:
        raise ValueError("must fit into 64 bits")
    if isinstance(found, str) and "\0" in found:
        raise ValueError("must not hold a NUL")
    return found


@cache
def _required(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.required)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Field types with our distinct types (HoldId, Amount …) resolved to what they are made of."""
    return {name: getattr(hint, "__supertype__", hint) for name, hint in get_type_hints(kind).items()}


def _bad(path: str, says: str) -> Refused:
    return Refused("RPC-001", f"{path}: {says}", name="InvalidParams")
