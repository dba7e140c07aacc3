"""Readers: what a field of a JSON object must look like, and the value it becomes (CMP-001)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum, StrEnum
from typing import Final, NamedTuple, NoReturn

from holdfast.cli.compute.strict_json import InputFault, InvalidInput, join_path, json_type_of, leaves
from holdfast.core.base.values import U64_MAX
from holdfast.system.did_you_mean import closest, did_you_mean


class Missing(Enum):
    """Markers for the default of a field; None is not one, since null is a value."""

    MISSING = "missing"
    """The field is required."""
    LEFT_OUT = "left out"
    """The field is optional: if it is absent, its object is built without it."""


class FieldReader(NamedTuple):
    """How a field is described in help texts, how it is read, and its value if it is absent."""

    description: str
    read: Callable[[object, str], object]
    default: object = Missing.MISSING


def integer(least: int = 0, most: int = U64_MAX) -> FieldReader:
    """A whole number. true and false are not numbers here, although they are in Python."""

    def read(value: object, path: str) -> int:
        if type(value) is not int:
            _fail_type(path, value, "an integer", "write it without quotes" if isinstance(value, str) else "")
        if not least <= value <= most:
            _fail(path, f"outside {least} to {most}")
        return value

    return FieldReader("integer", read)


def hex_bytes(least: int = 0, most: int | None = None) -> FieldReader:
    """Bytes as lower-case hex without 0x."""

    def read(value: object, path: str) -> bytes:
        if not isinstance(value, str):
            _fail_type(path, value, "bytes as lower-case hex")
        for is_fault, message, hint in _HEX_FAULTS:
            if is_fault(value):
                _fail(path, message, hint)
        size = len(value) // 2
        if size < least:
            _fail(path, f"{size} bytes, at least {least}")
        if most is not None and size > most:
            _fail(path, f"{size} bytes, at most {most}")
        return bytes.fromhex(value)

    return FieldReader("hex" if most is None else f"hex of {least} to {most} bytes", read)


_HEX_FAULTS: Final[tuple[tuple[Callable[[str], object], str, str], ...]] = (
    (lambda text: text[:2] in ("0x", "0X"), "begins with 0x", "write lower-case hex without 0x"),
    (lambda text: re.search("[^0-9a-fA-F]", text), "not hex", "write bytes as digits 0-9 and a-f, two for each byte"),
    (lambda text: re.search("[A-F]", text), "upper-case hex", "write it in lower case"),
    (lambda text: len(text) % 2, "an odd number of hex digits", "each byte takes two"),
)


def array_of(item: FieldReader) -> FieldReader:
    """An array whose items are all read the same way."""

    def read(value: object, path: str) -> list[object]:
        if not isinstance(value, list):
            _fail_type(path, value, "an array")
        return read_all((item, each, f"{path}[{index}]") for index, each in enumerate(value))

    return FieldReader(f"[{item.description}]", read)


def number_by_name() -> FieldReader:
    """A whole number, or an object of whole numbers by name."""
    number = integer()

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            return number.read(value, path)
        numbers = read_all((number, each, join_path(path, name)) for name, each in value.items())
        return dict(zip(value, numbers, strict=True))

    return FieldReader("integer or {name: integer}", read)


def one_of(names: type[StrEnum]) -> FieldReader:
    """A name of the enumeration, spelt exactly."""
    known = [str(name) for name in names]

    def read(value: object, path: str) -> StrEnum:
        if not isinstance(value, str):
            _fail_type(path, value, "a name", f"one of {', '.join(known)}")
        if value not in known:
            _fail(path, f"unknown name {_shown(value)}", suggest(value.upper(), known))
        return names(value)

    return FieldReader(" or ".join(known), read)


def text() -> FieldReader:
    """Any text, as it is."""

    def read(value: object, path: str) -> str:
        if not isinstance(value, str):
            _fail_type(path, value, "text")
        return value

    return FieldReader("text", read)


def number_of(numbers: type[IntEnum]) -> FieldReader:
    """A number of the enumeration."""
    description = " or ".join(f"{number.value} {number.name}" for number in numbers)
    known = {number.value: number for number in numbers}

    def read(value: object, path: str) -> IntEnum:
        if type(value) is not int:
            _fail_type(path, value, "an integer", description)
        if value not in known:
            _fail(path, "unknown number", description)
        return known[value]

    return FieldReader(description, read)


def json_value() -> FieldReader:
    """Any JSON without floats, unchanged; null, too. Its integers fit canonical bytes (CAN-002)."""

    def read(value: object, path: str) -> object:
        low, high = -1 - U64_MAX, U64_MAX
        outside = [
            InputFault(where, f"outside {low} to {high}")
            for where, leaf in leaves(value, path)
            if type(leaf) is int and not low <= leaf <= high
        ]
        if outside:
            raise InvalidInput(*outside)
        return value

    return FieldReader("JSON without floats", read)


def optional_fields(make: Callable[..., object], known: Mapping[str, FieldReader]) -> FieldReader:
    """An optional object of optional fields. An unknown field is refused, since it would silently do nothing."""
    reader = fields({name: optional(field) for name, field in known.items()}, make, is_strict=True)
    return FieldReader(f"{reader.description}, each optional", reader.read, default=make())


def fields(
    known: Mapping[str, FieldReader], make: Callable[..., object] = dict, *, is_strict: bool = False
) -> FieldReader:
    """An object of named fields. Unknown fields are ignored (CAN-005); `is_strict` refuses them."""

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _fail_type(path, value, "an object")
        unknown = [name for name in value if name not in known]
        readings = [
            (
                reader if name in value else default_or_missing(reader, name, unknown),
                value.get(name),
                join_path(path, name),
            )
            for name, reader in known.items()
        ]
        if is_strict:
            readings += [(_unknown_field(name, known), value[name], join_path(path, name)) for name in unknown]
        values = dict(zip(known, read_all(readings), strict=False))
        return make(**{name: each for name, each in values.items() if each is not Missing.LEFT_OUT})

    return FieldReader("{" + ", ".join(known) + "}", read)


def optional(reader: FieldReader, default: object = Missing.LEFT_OUT) -> FieldReader:
    """A field that may be absent."""
    return FieldReader(f"{reader.description}, optional", reader.read, default)


def default_or_missing(reader: FieldReader, name: str, unknown: Iterable[str]) -> FieldReader:
    """Replaces the reader of an absent field: reads its default, or fails with what was expected."""

    def read(value: object, path: str) -> object:
        if reader.default is not Missing.MISSING:
            return reader.default
        near = closest(name, unknown)
        _fail(path, "missing", f"expected {reader.description}" + (f"; there is a field {near}" if near else ""))

    return FieldReader(reader.description, read)


def _unknown_field(name: str, known: Mapping[str, FieldReader]) -> FieldReader:
    def read(value: object, path: str) -> NoReturn:
        _fail(path, "unknown field", suggest(name, known))

    return FieldReader("", read)


# ------------------------------------------------------------------------------------------------ faults


def read_all(readings: Iterable[tuple[FieldReader, object, str]]) -> list[object]:
    """All the values; raises InvalidInput with all the faults."""
    values, faults = [], []
    for reader, value, path in readings:
        try:
            values.append(reader.read(value, path))
        except InvalidInput as fault:
            faults += fault.faults
    if faults:
        raise InvalidInput(*faults)
    return values


def suggest(word: str, known: Iterable[str]) -> str:
    """A hint with the known word that was probably meant, and all of them."""
    words = list(known)
    return f"{did_you_mean(word, words)} one of {', '.join(words)}".lstrip()


def _fail_type(path: str, value: object, expected: str, hint: str = "") -> NoReturn:
    _fail(path, f"{json_type_of(value)}, expected {expected}", hint)


def _fail(path: str, message: str, hint: str = "") -> NoReturn:
    raise InvalidInput(InputFault(path, message, hint))


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 32 else text[:29] + "...")
