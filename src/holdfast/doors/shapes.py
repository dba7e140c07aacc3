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


def read_params(kind: type[T], params: object) -> T | Refused:
    """The command that `params` spell; unknown, missing and malformed fields are refused by name, all at once."""
    if not isinstance(params, Mapping):
        return _bad("params", "must be an object with named fields")
    hints, wrong, values = _hints(kind), [], {}
    wrong += [f"{name}: missing" for name in sorted(_required(kind) - params.keys())]
    for name, value in params.items():
        if name not in hints:
            wrong.append(f"{name}: no such field (known: {', '.join(hints)})")
            continue
        try:
            values[name] = _value(hints[name], value)
        except (msgspec.ValidationError, ValueError) as fault:
            wrong.append(f"{name}: {fault}")
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


def _value(kind: Any, value: object) -> object:
    if kind is not bytes:
        return msgspec.convert(value, kind)
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError("must be lower-case hex without 0x")
    return bytes.fromhex(value)


@cache
def _required(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.required)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Field types with our distinct types (HoldId, Amount …) resolved to what they are made of."""
    return {name: getattr(hint, "__supertype__", hint) for name, hint in get_type_hints(kind).items()}


def _bad(path: str, says: str) -> Refused:
    return Refused("RPC-001", f"{path}: {says}", name="InvalidParams")
