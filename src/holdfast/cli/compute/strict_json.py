"""Strict JSON: one object, nothing repaired or guessed; every fault is reported with its path (CMP-001)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.core.base.canonical import DEPTH_MAX
from holdfast.system.json_depth import is_nested_deeper
from holdfast.system.strict_json import duplicates

INPUT: Final = "standard input"


class InputFault(NamedTuple):
    """One fault: where, what, and how to repair it."""

    path: str
    message: str
    hint: str = ""


class InvalidInput(ValueError):
    """An input that cannot be used, with all its faults."""

    def __init__(self, *faults: InputFault) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.message}" for fault in faults))
        self.faults = list(faults)


def read_object(raw: bytes) -> tuple[dict[str, object], dict[str, list[InputFault]]]:
    """The object, and the faults inside it by top-level field; raises InvalidInput if it is not an object."""
    text = _text(raw)
    if is_nested_deeper(raw, DEPTH_MAX + 1):  # the object, and a value as deep as canonical bytes can be
        raise InvalidInput(InputFault(_deep_field(text), f"nested deeper than {DEPTH_MAX}"))
    document = _parse(text)
    if not isinstance(document, dict):
        raise InvalidInput(InputFault(INPUT, f"{json_type_of(document)}, expected one JSON object"))
    faults: dict[str, list[InputFault]] = {}
    for path, field, leaf in _top_leaves(document):
        if isinstance(leaf, _Rejected):
            faults.setdefault(field, []).append(InputFault(path, leaf.message, leaf.hint))
    return document, faults


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Everything in `value` that is neither object nor array, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            here = join_path(path, key)
            if _has_lone_surrogate(key):
                yield here, _SURROGATE
            yield from leaves(item, here)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, _SURROGATE if isinstance(value, str) and _has_lone_surrogate(value) else value


def join_path(path: str, key: str) -> str:
    """The path of `key` in the object at `path`; a key that is not a plain word is quoted, a long one is cut."""
    if _WORD.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key if len(key) <= 64 else key[:61] + '...')}]"


def json_type_of(value: object) -> str:
    """The JSON name of a value's type."""
    return _KINDS.get(type(value), "something else")


_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KINDS: Final = {
    dict: "an object",
    list: "an array",
    str: "text",
    int: "an integer",
    bool: "a boolean",
    type(None): "null",
}

# ------------------------------------------------------------------------------------------------ parsing


class _Rejected(NamedTuple):
    """Replaces, in the parsed document, what JSON allows and we refuse, until its path is known."""

    message: str
    hint: str = ""


_DUPLICATE: Final = _Rejected("a duplicate key", "which of the two is meant?")
_SURROGATE: Final = _Rejected("a lone surrogate is not text")
_OUT_OF_RANGE: Final = 2**128


def _float(spelling: str) -> _Rejected:
    return _Rejected(f"a float ({spelling[:24]}) is refused", "scale it to an integer")


def _int(digits: str) -> int:
    # Python refuses to parse thousands of digits. JSON has no leading zeros, so a number this long is out of any range.
    if len(digits) > 32:
        return -_OUT_OF_RANGE if digits[0] == "-" else _OUT_OF_RANGE
    return int(digits)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        parsed |= dict.fromkeys(duplicates(key for key, _ in pairs), _DUPLICATE)
    return parsed


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_float=_float, parse_constant=_float, parse_int=_int, object_pairs_hook=_object)
    except json.JSONDecodeError as fault:
        message = "more after the end of the object" if fault.msg == "Extra data" else f"not JSON: {fault.msg}"
        raise InvalidInput(InputFault(INPUT, f"{message}, at line {fault.lineno} column {fault.colno}")) from None


def _top_leaves(document: dict[str, object]) -> Iterator[tuple[str, str, object]]:
    for field, value in document.items():
        for path, leaf in leaves({field: value}, ""):
            yield path, field, leaf


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as fault:
        raise InvalidInput(InputFault(INPUT, f"not UTF-8, at byte {fault.start}")) from None
    if not text.strip(" \t\r\n"):
        raise InvalidInput(InputFault(INPUT, "empty, expected one JSON object"))
    if text[0] == "\ufeff":
        raise InvalidInput(InputFault(INPUT, "begins with a byte order mark", "save it as plain UTF-8"))
    return text


# ------------------------------------------------------------------------------------------------ depth

# Strings are matched whole, so that brackets inside them do not count; an unfinished one reaches to the end.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}:]', re.DOTALL)


def _deep_field(text: str) -> str:
    """The top-level field that is nested too deeply, found without parsing: the parser would exhaust its stack."""
    depth, word, field = 0, "", INPUT
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth > DEPTH_MAX + 1:
                break
        elif sign in ("]", "}"):
            depth -= 1
        elif depth == 1:
            if sign == ":":
                field = join_path("", word)
            word = sign[1:-1]
    return field
