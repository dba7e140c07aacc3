"""JSON in which no object names a key twice (SEC-001): two readers would take different values for meant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.system.json_depth import count_pairs

T = TypeVar("T")
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises where a sender's bytes are no JSON, no UTF-8, or nested too deeply."""


class DuplicateKey(msgspec.ValidationError):
    """An object names a key twice."""


def decode_json(raw: bytes, type_: type[T] = Any) -> T:  # type: ignore[assignment]
    """The value; raises msgspec.DecodeError where it is not JSON, DuplicateKey where a key comes twice."""
    value: Any = msgspec.json.decode(raw)
    keys = _count_keys(value)
    if keys != raw.count(b":") and keys != count_pairs(raw):
        raise DuplicateKey(f"a duplicate key: {_find(raw)!r:.80}")
    return value if type_ is Any else msgspec.json.decode(raw, type=type_)


def duplicates(keys: Iterable[str]) -> set[str]:
    """The keys that come more than once."""
    return {key for key, times in Counter(keys).items() if times > 1}


def _count_keys(value: Any) -> int:
    keys, waiting = 0, [value]
    for each in waiting:  # grows meanwhile
        if type(each) is dict:
            keys += len(each)
            waiting += [item for item in each.values() if type(item) in (dict, list)]
        elif type(each) is list:
            waiting += [item for item in each if type(item) in (dict, list)]
    return keys


def _find(raw: bytes) -> str:
    """A key that comes twice, for the message."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        found.extend(duplicates(key for key, _ in pairs))

    json.loads(raw.decode(), object_pairs_hook=look, parse_int=len, parse_float=len)
    return found[0]
