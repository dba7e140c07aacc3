"""Readers: what a field of a JSON object must look like, and the value it stands for (CMP-001)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum, IntEnum, StrEnum
from typing import Final, NamedTuple, NoReturn

from holdfast.cli.strict_json import Fault, Faulty, kind_of, leaves, under
from holdfast.core.values import U64_MAX


class Missing(Enum):
    """Says that a field must be there; None cannot, since null is a value."""

    MISSING = "missing"
    LEFT_OUT = "left out"
    """What an optional field is where it is not there: its object is made without it."""


class Reader(NamedTuple):
    """How a field is described to a human, how it is read, and what it is where it may be left out."""

    says: str
    read: Callable[[object, str], object]
    absent: object = Missing.MISSING


def integer(least: int = 0, most: int = U64_MAX) -> Reader:
    """A whole number; true and false are none, although Python thinks so."""

    def read(value: object, path: str) -> int:
        if type(value) is not int:
            _wrong(path, value, "an integer", "write it without quotes" if isinstance(value, str) else "")
        if not least <= value <= most:
            _blame(path, f"outside {least} to {most}")
        return value

    return Reader("integer", read)


def hex_bytes(least: int = 0, most: int | None = None) -> Reader:
    """Bytes as lower-case hex without 0x."""

    def read(value: object, path: str) -> bytes:
        if not isinstance(value, str):
            _wrong(path, value, "bytes as lower-case hex")
        for is_fault, says, hint in _HEX_FAULTS:
            if is_fault(value):
                _blame(path, says, hint)
        size = len(value) // 2
        if size < least:
            _blame(path, f"{size} bytes, at least {least}")
        if most is not None and size > most:
            _blame(path, f"{size} bytes, at most {most}")
        return bytes.fromhex(value)

    return Reader("hex" if most is None else f"hex of {least} to {most} bytes", read)


_HEX_FAULTS: Final[tuple[tuple[Callable[[str], object], str, str], ...]] = (
    (lambda text: text[:2] in ("0x", "0X"), "begins with 0x", "write lower-case hex without it"),
    (lambda text: re.search("[^0-9a-fA-F]", text), "not hex", "write bytes as digits 0-9 and a-f, two for each byte"),
    (lambda text: re.search("[A-F]", text), "upper-case hex", "write it in lower case"),
    (lambda text: len(text) % 2, "an odd number of hex digits", "each byte takes two"),
)


def each(item: Reader) -> Reader:
    """An array whose items are all read the same way."""

    def read(value: object, path: str) -> list[object]:
        if not isinstance(value, list):
            _wrong(path, value, "an array")
        return gather((item, one, f"{path}[{index}]") for index, one in enumerate(value))

    return Reader(f"[{item.says}]", read)


def one_of(names: type[StrEnum]) -> Reader:
    """A name, spelt exactly as it is."""
    known = [str(name) for name in names]

    def read(value: object, path: str) -> StrEnum:
        if not isinstance(value, str):
            _wrong(path, value, "a name", f"one of {', '.join(known)}")
        if value not in known:
            _blame(path, f"unknown name {_shown(value)}", nearest(value.upper(), known))
        return names(value)

    return Reader(" or ".join(known), read)


def text() -> Reader:
    """Any text, as it is."""

    def read(value: object, path: str) -> str:
        if not isinstance(value, str):
            _wrong(path, value, "text")
        return value

    return Reader("text", read)


def number_of(numbers: type[IntEnum]) -> Reader:
    """A number that stands for something."""
    says = " or ".join(f"{number.value} {number.name}" for number in numbers)
    known = {number.value: number for number in numbers}

    def read(value: object, path: str) -> IntEnum:
        if type(value) is not int:
            _wrong(path, value, "an integer", says)
        if value not in known:
            _blame(path, "unknown number", says)
        return known[value]

    return Reader(says, read)


def json_value() -> Reader:
    """Anything JSON can say without floats, as it is; null too. Its integers fit canonical bytes (CAN-002)."""

    def read(value: object, path: str) -> object:
        low, high = -1 - U64_MAX, U64_MAX
        outside = [
            Fault(where, f"outside {low} to {high}")
            for where, leaf in leaves(value, path)
            if type(leaf) is int and not low <= leaf <= high
        ]
        if outside:
            raise Faulty(*outside)
        return value

    return Reader("JSON without floats", read)


def knobs(make: Callable[..., object], known: Mapping[str, Reader]) -> Reader:
    """An optional object of optional numbers; a knob nobody knows is refused, since it would silently do nothing."""

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _wrong(path, value, "an object")
        readings = [
            (known.get(knob, _unknown_knob(knob, known)), one, under(path, knob)) for knob, one in value.items()
        ]
        return make(**dict(zip(value, gather(readings), strict=True)))

    return Reader("{" + ", ".join(known) + "}, each optional", read, absent=make())


def fields(known: Mapping[str, Reader], make: Callable[..., object] = dict, *, is_strict: bool = False) -> Reader:
    """An object of named fields. One that nobody knows is ignored (CAN-005), unless it would silently do nothing."""

    def read(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _wrong(path, value, "an object")
        strangers = [name for name in value if name not in known]
        readings = [
            (reader if name in value else _left_out(reader, name, strangers), value.get(name), under(path, name))
            for name, reader in known.items()
        ]
        if is_strict:
            readings += [(_unknown_knob(name, known), value[name], under(path, name)) for name in strangers]
        found = dict(zip(known, gather(readings), strict=False))
        return make(**{name: one for name, one in found.items() if one is not Missing.LEFT_OUT})

    return Reader("{" + ", ".join(known) + "}", read)


def optional(reader: Reader, absent: object = Missing.LEFT_OUT) -> Reader:
    """A field that may be left out of its object."""
    return Reader(f"{reader.says}, optional", reader.read, absent)


def _left_out(reader: Reader, name: str, strangers: Iterable[str]) -> Reader:
    near = get_close_matches(name, strangers)

    def read(value: object, path: str) -> object:
        if reader.absent is not Missing.MISSING:
            return reader.absent
        _blame(path, "missing", f"expected {reader.says}" + (f"; there is a field {near[0]}" if near else ""))

    return Reader(reader.says, read)


def _unknown_knob(knob: str, known: Mapping[str, Reader]) -> Reader:
    def read(value: object, path: str) -> NoReturn:
        _blame(path, "unknown field", nearest(knob, known))

    return Reader("", read)


def absent(reader: Reader, strangers: Iterable[str]) -> Reader:
    """Stands in for the reader of a field that is not there: its default, or a fault that says what was expected."""

    def read(value: object, path: str) -> object:
        if reader.absent is not Missing.MISSING:
            return reader.absent
        near = get_close_matches(path, strangers)
        _blame(path, "missing", f"expected {reader.says}" + (f"; there is a field {near[0]}" if near else ""))

    return Reader(reader.says, read)


# ------------------------------------------------------------------------------------------------ faults


def gather(readings: Iterable[tuple[Reader, object, str]]) -> list[object]:
    """All the values, or Faulty with all the faults."""
    values, faults = [], []
    for reader, value, path in readings:
        try:
            values.append(reader.read(value, path))
        except Faulty as fault:
            faults += fault.faults
    if faults:
        raise Faulty(*faults)
    return values


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that says which known word was probably meant, and which there are."""
    every = list(known)
    near = get_close_matches(word[:64], every)
    return (f"did you mean {' or '.join(near)}? " if near else "") + f"one of {', '.join(every)}"


def _wrong(path: str, value: object, expected: str, hint: str = "") -> NoReturn:
    _blame(path, f"{kind_of(value)}, expected {expected}", hint)


def _blame(path: str, says: str, hint: str = "") -> NoReturn:
    raise Faulty(Fault(path, says, hint))


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 32 else text[:29] + "...")
