"""Strict JSON: one object, nothing repaired, nothing guessed; every fault inside it is named by its path (CMP-001)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.core.canon import DEPTH_MAX

INPUT: Final = "standard input"


class Fault(NamedTuple):
    """One thing wrong: where, what, and what to do about it."""

    path: str
    says: str
    hint: str = ""


class Faulty(ValueError):
    """An input that cannot be used, with everything that is wrong with it."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.says}" for fault in faults))
        self.faults = list(faults)


def read_object(raw: bytes) -> tuple[dict[str, object], dict[str, list[Fault]]]:
    """The object that `raw` spells, and what is wrong inside it by top-level field; Faulty where it is no object."""
    text = _text(raw)
    _check_depth(text)
    found = _parse(text)
    if not isinstance(found, dict):
        raise Faulty(Fault(INPUT, f"{kind_of(found)}, expected one JSON object"))
    faults: dict[str, list[Fault]] = {}
    for path, field, leaf in _top_leaves(found):
        if isinstance(leaf, _Bad):
            faults.setdefault(field, []).append(Fault(path, leaf.says, leaf.hint))
    return found, faults


def leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Everything in `value` that is neither object nor array, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            here = under(path, key)
            if _is_broken(key):
                yield here, _SURROGATE
            yield from leaves(item, here)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, _SURROGATE if isinstance(value, str) and _is_broken(value) else value


def under(path: str, key: str) -> str:
    """The path of `key` in the object at `path`; a key that is no plain word is quoted, a long one cut."""
    if _WORD.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key if len(key) <= 64 else key[:61] + '...')}]"


def kind_of(value: object) -> str:
    """What a parsed value is called in JSON's own words."""
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


class _Bad(NamedTuple):
    """Stands in the parsed document where something was that JSON allows and we do not, until its path is known."""

    says: str
    hint: str = ""


_DUPLICATE: Final = _Bad("a duplicate key", "which of the two is meant?")
_SURROGATE: Final = _Bad("a lone surrogate is not text")
_OUT_OF_RANGE: Final = 2**128


def _float(spelling: str) -> _Bad:
    return _Bad(f"a float ({spelling[:24]}) is refused", "scale it to an integer")


def _int(digits: str) -> int:
    # Python refuses to read thousands of digits. JSON has no leading zeros, so what is this long is out of any range.
    if len(digits) > 32:
        return -_OUT_OF_RANGE if digits[0] == "-" else _OUT_OF_RANGE
    return int(digits)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found[key] = _DUPLICATE
            seen.add(key)
    return found


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_float=_float, parse_constant=_float, parse_int=_int, object_pairs_hook=_object)
    except json.JSONDecodeError as fault:
        says = "more after the end of the object" if fault.msg == "Extra data" else f"not JSON: {fault.msg}"
        raise Faulty(Fault(INPUT, f"{says}, at line {fault.lineno} column {fault.colno}")) from None


def _top_leaves(found: dict[str, object]) -> Iterator[tuple[str, str, object]]:
    for field, value in found.items():
        for path, leaf in leaves({field: value}, ""):
            yield path, field, leaf


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as fault:
        raise Faulty(Fault(INPUT, f"not UTF-8, at byte {fault.start}")) from None
    if not text.strip(" \t\r\n"):
        raise Faulty(Fault(INPUT, "empty, expected one JSON object"))
    if text[0] == "\ufeff":
        raise Faulty(Fault(INPUT, "begins with a byte order mark", "save it as plain UTF-8"))
    return text


# ------------------------------------------------------------------------------------------------ depth

# Strings are matched whole, so that brackets inside them do not count; an unfinished one reaches to the end.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}:]', re.DOTALL)


def _check_depth(text: str) -> None:
    """Before parsing, since the parser's own answer to a hundred thousand brackets is to run out of stack."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth, word, field = 0, "", INPUT
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth > DEPTH_MAX + 1:  # the object itself, and a value that is as deep as canonical bytes can be
                raise Faulty(Fault(field, f"nested deeper than {DEPTH_MAX}"))
        elif sign in ("]", "}"):
            depth -= 1
        elif depth == 1:
            if sign == ":":
                field = under("", word)
            word = sign[1:-1]
