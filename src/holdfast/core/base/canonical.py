"""Canonical bytes: the hash `H` (CAN-001) and deterministic CBOR (CAN-002), the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha3_256
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn

from holdfast.core.base.values import U64_MAX, Digest

DEPTH_MAX: Final = 256
"""Arrays and maps nested deeper are refused, in both directions."""

# ------------------------------------------------------------------------------------------------ hashing


def H(tag: str, *fields: bytes | int) -> Digest:  # noqa: N802 - the specification's own name
    """CAN-001: SHA3-256 over `u32be(len)‖bytes` of the tag and of every field; integers are 8 bytes, big endian."""
    return hash_from(hash_prefix(tag), *fields)


def hash_from(prefix: bytes, *fields: bytes | int) -> Digest:
    """`H` where its beginning is framed already (`hash_prefix`): the hashes of a run begin alike."""
    return sha3_256(prefix + framed(*fields)).digest()  # type: ignore[return-value]  # a call of `Digest` takes time


def framed(*fields: bytes | int) -> bytes:
    """Each field with its length before it, as it is hashed."""
    raw = b""
    for field in fields:
        if isinstance(field, int):
            raw += b"\0\0\0\x08" + field.to_bytes(8, "big")
        else:
            n = len(field)
            raw += _LENGTHS[n] if n < 256 else n.to_bytes(4, "big")
            raw += field
    return raw


@lru_cache(maxsize=256)
def hash_prefix(tag: str, *fields: bytes | int) -> bytes:
    """The tag and the first fields as `H` frames them."""
    return framed(tag.encode("ascii"), *fields)


_LENGTHS: Final = tuple(n.to_bytes(4, "big") for n in range(256))


class HashDomain(NamedTuple):
    """CAN-003: the domain of an id and its live versions: usually one, two during a grace window."""

    name: str
    versions: tuple[int, ...]
    """Oldest first: the last one makes new ids."""

    def make(self, *fields: bytes | int) -> Digest:
        """A new id, under the newest tag."""
        return H(_versioned(self.name, self.versions[-1]), *fields)

    def make_at(self, version: int, *fields: bytes | int) -> Digest:
        """The same under the tag of one version."""
        return H(_versioned(self.name, version), *fields)

    def prefix_at(self, version: int, *fields: bytes | int) -> bytes:
        """What all ids of a version with these first fields begin with (`hash_from`)."""
        return hash_prefix(_versioned(self.name, version), *fields)

    def matching_version(self, digest: bytes, *fields: bytes | int) -> int | None:
        """The live version under which these fields have this id, None where there is none."""
        return next((v for v in reversed(self.versions) if self.make_at(v, *fields) == digest), None)


@lru_cache(maxsize=64)
def _versioned(name: str, version: int) -> str:
    return f"{name}.v{version}"


def live_versions(height: int, upgrade_height: int, grace_blocks: int) -> tuple[int, ...]:
    """CAN-003: the versions of a tag that count at a height: first the old one, then both, then the new one."""
    if not upgrade_height or height < upgrade_height:
        return (1,)
    return (1, 2) if height < upgrade_height + grace_blocks else (2,)


KNOWN_VERSIONS: Final = (1, 2)
"""All versions that stored ids can have."""


# ------------------------------------------------------------------------------------------------ encoding


class NotCanonical(ValueError):
    """A value without canonical bytes, or bytes that are not canonical, with the place and the reason."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path, self.message = path, message


def canonical(value: object) -> bytes:
    """CAN-002: deterministic CBOR of None, bool, int, str, bytes, list, tuple and dict; anything else is refused."""
    out: list[bytes] = []
    try:
        _encode(value, out.append, DEPTH_MAX)
    except NotCanonical:
        _locate_fault(value, "", DEPTH_MAX)
        raise
    return b"".join(out)


def packed_int(value: int) -> bytes:
    """The canonical bytes of one integer, for callers that build the bytes of a known shape themselves, too."""
    if 0x10000 <= value < 0x100000000:  # most events
        return _HEAD_32(0x1A, value)
    if 0 <= value <= U64_MAX:
        return _head(0, value)
    if -1 - U64_MAX <= value < 0:
        return _head(1, -1 - value)
    raise NotCanonical("", "an integer outside −2⁶⁴ … 2⁶⁴−1")


def packed_bytes(value: bytes) -> bytes:
    """The same of a byte string."""
    n = len(value)
    return (_HEADS[2][n] if n < 0x100 else _head(2, n)) + value


def _text(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise NotCanonical("", "a lone surrogate is not text") from None
    return _head(3, len(raw)) + raw


_HEADS: Final = tuple(
    tuple(bytes([major << 5 | n]) if n < 24 else bytes([major << 5 | 24, n]) for n in range(0x100))
    for major in range(8)
)


def _head(major: int, n: int) -> bytes:
    if n < 0x100:
        return _HEADS[major][n]
    base = major << 5
    if n < 0x10000:
        return _HEAD_16(base | 25, n)
    return _HEAD_32(base | 26, n) if n < 0x100000000 else _HEAD_64(base | 27, n)


_HEAD_16, _HEAD_32, _HEAD_64 = (Struct(form).pack for form in (">BH", ">BI", ">BQ"))


_KEYS: Final[dict[type, Callable[[Any], bytes]]] = {str: _text, int: packed_int, bytes: packed_bytes}
_SCALARS: Final = _KEYS | {bool: lambda value: b"\xf5" if value else b"\xf4", type(None): lambda _: b"\xf6"}


def _encode(value: Any, put: Callable[[bytes], None], depth: int) -> None:
    kind = type(value)
    if (scalar := _SCALARS.get(kind)) is not None:
        put(scalar(value))
    elif kind is dict:
        _encode_map(value, put, depth)
    elif kind is list or kind is tuple:
        _check_depth(depth)
        put(_head(4, len(value)))
        for item in value:
            _encode(item, put, depth - 1)
    else:
        raise NotCanonical("", _why_not_encoded(value))


def _encode_map(value: dict[object, object], put: Callable[[bytes], None], depth: int) -> None:
    _check_depth(depth)
    put(_head(5, len(value)))
    keys = tuple(value)
    for encoded, key in _ORDERS.get(keys) or _key_order(keys):
        put(encoded)
        _encode(value[key], put, depth - 1)


KeyOrder = tuple[tuple[bytes, object], ...]
_ORDERS: Final[dict[tuple[object, ...], KeyOrder]] = {}
"""The key order of maps that were encoded before: most maps have one of a few sets of keys, all of them text."""
ORDERS_MAX, ORDER_KEYS_MAX, ORDER_BYTES_MAX = 1_024, 16, 512


def _key_order(keys: tuple[object, ...]) -> KeyOrder:
    """RFC 8949 §4.2.1: bytewise order of the encoded keys."""
    order = tuple(sorted((_encoded_key(key), key) for key in keys))
    is_small = len(keys) <= ORDER_KEYS_MAX and sum(len(encoded) for encoded, _ in order) <= ORDER_BYTES_MAX
    if is_small and len(_ORDERS) < ORDERS_MAX and all(type(key) is str for key in keys):
        _ORDERS[keys] = order
    return order


def _encoded_key(key: object) -> bytes:
    if (encoder := _KEYS.get(type(key))) is not None:
        return encoder(key)
    raise NotCanonical("", f"a key of type {type(key).__name__} is refused: keys are text, integers or bytes")


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise NotCanonical("", f"nested deeper than {DEPTH_MAX}")


def _why_not_encoded(value: object) -> str:
    if isinstance(value, float):
        return "a float is refused: scale it to an integer"
    return f"a value of type {type(value).__name__} has no canonical bytes"


def _locate_fault(value: object, path: str, depth: int) -> None:
    """Find the first bad value again, now with its path, so that only refused values pay for the path."""
    if isinstance(value, dict) and depth:
        for key, item in value.items():
            here = f"{path}.{key}" if path else str(key)
            _locate_leaf_fault({key: None}, here.encode("utf-8", "backslashreplace").decode())
            _locate_fault(item, here, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for index, item in enumerate(value):
            _locate_fault(item, f"{path}[{index}]", depth - 1)
    else:
        _locate_leaf_fault(value, path, depth)


def _locate_leaf_fault(value: object, path: str, depth: int = DEPTH_MAX) -> None:
    try:
        _encode(value, lambda _: None, depth)
    except NotCanonical as fault:
        raise NotCanonical(path, fault.message) from None


# ------------------------------------------------------------------------------------------------ decoding


def decode(raw: bytes) -> object:
    """The value with the canonical bytes `raw`; any other encoding of it (CAN-002) is refused, never repaired."""
    value, end = _decode(raw, 0, DEPTH_MAX)
    if end != len(raw):
        _bad(end, f"{len(raw) - end} bytes after the end")
    return value


def _bad(at: int, message: str) -> NoReturn:
    raise NotCanonical(f"byte {at}", message)


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


def _decode(raw: bytes, at: int, depth: int) -> tuple[object, int]:
    first = raw[at] if at < len(raw) else _PAST_END
    n = first & 31
    if n < 24:  # nearly all values begin with a one-byte head: no function call for it
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
            _bad(at, "cut short")  # before any memory is allocated for it
        return _decode_array(raw, start, n, depth - 1) if major == 4 else _decode_map(raw, start, n, depth - 1)
    if major == 7 and n in _SIMPLE:
        return _SIMPLE[n], start
    return _bad(at, "a tag" if major == 6 else "an unknown simple value")


_SIMPLE: Final = {20: False, 21: True, 22: None}
_PAST_END: Final = 31
"""Stands for a missing first byte: not a short form, so `_decode_head` reads it and refuses."""


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
