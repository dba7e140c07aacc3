"""Canonical bytes: the hash `H` (CAN-001) and deterministic CBOR (CAN-002), the same on every machine for ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha3_256
from typing import Final, NamedTuple, NoReturn

from holdfast.core.values import U64_MAX, Digest

DEPTH_MAX: Final = 256
"""Arrays and maps nested deeper are refused, in both directions."""

# ------------------------------------------------------------------------------------------------ hashing


def H(tag: str, *fields: bytes | int) -> Digest:  # noqa: N802 - the specification's own name
    """CAN-001: SHA3-256 over `u32be(len)‖bytes` of the tag and of every field; integers are 8 bytes, big endian."""
    parts = [_framed_tag(tag)]
    for field in fields:
        if isinstance(field, int):
            parts.append(b"\0\0\0\x08" + field.to_bytes(8, "big"))
        else:
            n = len(field)
            parts += (_LENGTHS[n] if n < 256 else n.to_bytes(4, "big"), field)
    return Digest(sha3_256(b"".join(parts)).digest())


_LENGTHS: Final = tuple(n.to_bytes(4, "big") for n in range(256))


@lru_cache(maxsize=256)
def _framed_tag(tag: str) -> bytes:
    return len(tag).to_bytes(4, "big") + tag.encode("ascii")


class Domain(NamedTuple):
    """CAN-003: what an id is made for, with the versions that are live: usually one, two during a grace window."""

    name: str
    versions: tuple[int, ...]
    """Oldest first: the last one makes new ids."""

    def at(self, versions: tuple[int, ...]) -> Domain:
        """The same with other versions live."""
        return Domain(self.name, versions)

    def make(self, *fields: bytes | int) -> Digest:
        """A new id, under the newest tag."""
        return H(_versioned(self.name, self.versions[-1]), *fields)

    def make_at(self, version: int, *fields: bytes | int) -> Digest:
        """The same under the tag of one version."""
        return H(_versioned(self.name, version), *fields)

    def recognise(self, digest: bytes, *fields: bytes | int) -> int | None:
        """The live version under which these fields have this id, None where they have not."""
        return next((v for v in reversed(self.versions) if self.make_at(v, *fields) == digest), None)


@lru_cache(maxsize=64)
def _versioned(name: str, version: int) -> str:
    return f"{name}.v{version}"


def live_versions(height: int, upgrade_height: int, grace_blocks: int) -> tuple[int, ...]:
    """CAN-003: which versions of a tag count at a height: the old one, both during the grace window, the new one."""
    if not upgrade_height or height < upgrade_height:
        return (1,)
    return (1, 2) if height < upgrade_height + grace_blocks else (2,)


KNOWN_VERSIONS: Final = (1, 2)
"""Under which anything stored may have been made."""


# ------------------------------------------------------------------------------------------------ encoding


class NotCanonical(ValueError):
    """A value that has no canonical bytes, or bytes that are not the canonical ones; names where and why."""

    def __init__(self, path: str, says: str) -> None:
        super().__init__(f"{path}: {says}" if path else says)
        self.path, self.says = path, says


def canonical(value: object) -> bytes:
    """CAN-002: deterministic CBOR of None, bool, int, str, bytes, list, tuple and dict; anything else is refused."""
    out: list[bytes] = []
    try:
        _encode(value, out.append, DEPTH_MAX)
    except NotCanonical:
        _blame(value, "", DEPTH_MAX)
        raise
    return b"".join(out)


def packed_int(value: int) -> bytes:
    """The canonical bytes of one integer, for whoever puts a row of known shape together by hand."""
    return _HEADS[0][value] if 0 <= value < 0x100 else _integer(value)


def packed_bytes(value: bytes) -> bytes:
    """The same of a byte string."""
    return _head(2, len(value)) + value


_HEADS: Final = tuple(
    tuple(bytes([major << 5 | n]) if n < 24 else bytes([major << 5 | 24, n]) for n in range(0x100))
    for major in range(8)
)


def _head(major: int, n: int) -> bytes:
    if n < 0x100:
        return _HEADS[major][n]
    base = major << 5
    if n < 0x10000:
        return bytes((base | 25,)) + n.to_bytes(2, "big")
    if n < 0x100000000:
        return bytes((base | 26,)) + n.to_bytes(4, "big")
    return bytes((base | 27,)) + n.to_bytes(8, "big")


def _encode(value: object, put: Callable[[bytes], None], depth: int) -> None:
    kind = type(value)
    if kind is str:
        put(_text(value))  # type: ignore[arg-type]
    elif kind is int:
        put(_integer(value))  # type: ignore[arg-type]
    elif kind is dict:
        _encode_map(value, put, depth)  # type: ignore[arg-type]
    elif kind is bytes:
        put(_head(2, len(value)) + value)  # type: ignore[arg-type, operator]
    elif kind is list or kind is tuple:
        _check_depth(depth)
        put(_head(4, len(value)))  # type: ignore[arg-type]
        for item in value:  # type: ignore[attr-defined]
            if type(item) is bytes:  # most of what is hashed: ids and digests
                put(_head(2, len(item)))
                put(item)
            else:
                _encode(item, put, depth - 1)
    elif value is None:
        put(b"\xf6")
    elif value is True:
        put(b"\xf5")
    elif value is False:
        put(b"\xf4")
    else:
        raise NotCanonical("", _why_not_encoded(value))


def _encode_map(value: dict[object, object], put: Callable[[bytes], None], depth: int) -> None:
    _check_depth(depth)
    put(_head(5, len(value)))
    keys = tuple(value)
    for encoded, key in _ORDERS.get(keys) or _in_order(keys):
        put(encoded)
        _encode(value[key], put, depth - 1)


Order = tuple[tuple[bytes, object], ...]
_ORDERS: Final[dict[tuple[object, ...], Order]] = {}
"""The order of maps that were encoded before: most have one of a few sets of keys. Text equals only text."""
ORDERS_MAX, ORDER_KEYS_MAX, ORDER_BYTES_MAX = 1_024, 16, 512


def _in_order(keys: tuple[object, ...]) -> Order:
    """RFC 8949 §4.2.1: bytewise order of the encoded keys."""
    order = tuple(sorted((_encoded_key(key), key) for key in keys))
    is_small = len(keys) <= ORDER_KEYS_MAX and sum(len(encoded) for encoded, _ in order) <= ORDER_BYTES_MAX
    if is_small and len(_ORDERS) < ORDERS_MAX and all(type(key) is str for key in keys):
        _ORDERS[keys] = order
    return order


def _encoded_key(key: object) -> bytes:
    if type(key) is str:
        return _text(key)
    if type(key) is int:
        return _integer(key)
    if type(key) is bytes:
        return _head(2, len(key)) + key
    raise NotCanonical("", f"a key of type {type(key).__name__} is refused: keys are text, integers or bytes")


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise NotCanonical("", "a lone surrogate is not text") from None
    return _head(3, len(raw)) + raw


def _integer(value: int) -> bytes:
    if 0 <= value <= U64_MAX:
        return _head(0, value)
    if -1 - U64_MAX <= value < 0:
        return _head(1, -1 - value)
    raise NotCanonical("", "an integer outside −2⁶⁴ … 2⁶⁴−1")


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise NotCanonical("", f"nested deeper than {DEPTH_MAX}")


def _why_not_encoded(value: object) -> str:
    if isinstance(value, float):
        return "a float is refused: scale it to an integer"
    return f"a value of type {type(value).__name__} has no canonical bytes"


def _blame(value: object, path: str, depth: int) -> None:
    """Find the first bad value again, this time with its path: only a refused value pays for knowing where it is."""
    if isinstance(value, dict) and depth:
        for key, item in value.items():
            here = f"{path}.{key}" if path else str(key)
            _blame_leaf({key: None}, here.encode("utf-8", "backslashreplace").decode())
            _blame(item, here, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for index, item in enumerate(value):
            _blame(item, f"{path}[{index}]", depth - 1)
    else:
        _blame_leaf(value, path, depth)


def _blame_leaf(value: object, path: str, depth: int = DEPTH_MAX) -> None:
    try:
        _encode(value, lambda _: None, depth)
    except NotCanonical as fault:
        raise NotCanonical(path, fault.says) from None


# ------------------------------------------------------------------------------------------------ decoding


def decode(raw: bytes) -> object:
    """The value whose canonical bytes are `raw`; any other spelling of it (CAN-002) is refused, never repaired."""
    value, end = _decode(raw, 0, DEPTH_MAX)
    if end != len(raw):
        _bad(end, f"{len(raw) - end} bytes after the end")
    return value


def _bad(at: int, says: str) -> NoReturn:
    raise NotCanonical(f"byte {at}", says)


def _decode_head(raw: bytes, at: int) -> tuple[int, int, int]:
    """Major type, argument and where the content starts."""
    if at >= len(raw):
        _bad(at, "cut short")
    major, n = raw[at] >> 5, raw[at] & 31
    if n < 24:
        return major, n, at + 1
    if n > 27 or major == 7:
        _bad(at, "floats, simple values and indefinite lengths are refused")
    size = 1 << (n - 24)
    if at + 1 + size > len(raw):
        _bad(at, "cut short")
    argument = int.from_bytes(raw[at + 1 : at + 1 + size], "big")
    if argument < (24 if size == 1 else 1 << (4 * size)):
        _bad(at, "not the shortest form")
    return major, argument, at + 1 + size


def decode_part(raw: bytes, at: int) -> tuple[object, int]:
    """A value inside an array or a map that begins at `at`, and where it ends."""
    return _decode(raw, at, DEPTH_MAX - 1)


def _decode(raw: bytes, at: int, depth: int) -> tuple[object, int]:
    first = raw[at] if at < len(raw) else _BEYOND
    n = first & 31
    if n < 24:  # one byte says it all: so begin nearly all values, and no function is called for it
        major, start = first >> 5, at + 1
    else:
        major, n, start = _decode_head(raw, at)
    if major == 0:
        return n, start
    if major == 1:
        return -1 - n, start
    if major < 4:
        return _decode_string(raw, start, n, is_text=major == 3)
    if major < 6:
        if depth == 0:
            _bad(at, f"nested deeper than {DEPTH_MAX}")
        if n > len(raw) - start:
            _bad(at, "cut short")  # before any memory is reserved for it
        return _decode_array(raw, start, n, depth - 1) if major == 4 else _decode_map(raw, start, n, depth - 1)
    if major == 7 and n in _SIMPLE:
        return _SIMPLE[n], start
    return _bad(at, "a tag" if major == 6 else "an unknown simple value")


_SIMPLE: Final = {20: False, 21: True, 22: None}
_BEYOND: Final = 31
"""Stands for a first byte that is not there: no short form, so that its head is read, and missed, with care."""


def _decode_string(raw: bytes, start: int, n: int, *, is_text: bool) -> tuple[str | bytes, int]:
    end = start + n
    if end > len(raw):
        _bad(start, "cut short")
    if not is_text:
        return raw[start:end], end
    try:
        return raw[start:end].decode(), end
    except UnicodeDecodeError:
        _bad(start, "text that is not UTF-8")


def _decode_array(raw: bytes, at: int, n: int, depth: int) -> tuple[list[object], int]:
    items = []
    for _ in range(n):
        item, at = _decode(raw, at, depth)
        items.append(item)
    return items, at


def _decode_map(raw: bytes, at: int, n: int, depth: int) -> tuple[dict[object, object], int]:
    entries: dict[object, object] = {}
    before = b""
    for _ in range(n):
        key, end = _decode(raw, at, depth)
        if type(key) not in (str, int, bytes):
            _bad(at, "a key that is not text, an integer or bytes")
        encoded = raw[at:end]
        if encoded <= before:
            _bad(at, "a duplicate key" if encoded == before else "keys out of order")
        before = encoded
        entries[key], at = _decode(raw, end, depth)
    return entries, at
