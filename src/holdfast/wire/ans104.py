"""ANS-104 data items: the signed envelope in which bytes are archived (ARC-004).

    u16le signature type | signature | owner | target flag (+32) | anchor flag (+32)
    | u64le tag count | u64le tag bytes | tags (Avro) | data

An item's id is the SHA-256 of its signature. The signature covers a SHA-384 deep hash of everything else, for which the
data is hashed as it passes: an item of any size is built, signed and checked in little memory.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.ports import Signer

Tag = tuple[bytes, bytes]
"""Name and value. They are bytes: what other programs signed need not be text."""

TAGS_MAX, NAME_MAX, VALUE_MAX = 128, 1_024, 3_072
TAG_BYTES_MAX: Final = TAGS_MAX * (NAME_MAX + VALUE_MAX + 8)
"""More than tags within their limits can take."""
PORTABLE_TAG_BYTES: Final = 4_096
"""Items with more tag bytes do not verify with arbundles, the library that most programs use."""
POINTER_BYTES: Final = 32
"""Target and anchor have this size where they are present."""
ID_CHARS: Final = 43


class SignatureType(IntEnum):
    """The signature schemes that we know."""

    ARWEAVE = 1
    ED25519 = 2
    ETHEREUM = 3


class _Sizes(NamedTuple):
    signature: int
    owner: int


SIZES: Final = {
    SignatureType.ARWEAVE: _Sizes(512, 512),
    SignatureType.ED25519: _Sizes(64, 32),
    SignatureType.ETHEREUM: _Sizes(65, 65),
}
_COUNTS: Final = struct.Struct("<QQ")
HEADER_BYTES_MAX: Final = 2 + 512 + 512 + 2 * (1 + POINTER_BYTES) + _COUNTS.size + TAG_BYTES_MAX


class ItemHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of an item but its data."""

    type: SignatureType
    signature: bytes
    owner: bytes
    target: bytes
    """Empty where there is none."""
    anchor: bytes
    raw_tags: bytes
    """As they were signed."""
    tags: tuple[Tag, ...]

    @property
    def id(self) -> str:
        return item_id(self.signature)

    @property
    def owner_address(self) -> str:
        return base64url(hashlib.sha256(self.owner).digest())

    def encode(self) -> bytes:
        return b"".join(
            (
                struct.pack("<H", self.type),
                self.signature,
                self.owner,
                b"\1" + self.target if self.target else b"\0",
                b"\1" + self.anchor if self.anchor else b"\0",
                _COUNTS.pack(len(self.tags), len(self.raw_tags)),
                self.raw_tags,
            )
        )


class DataHash:
    """The deep hash of an item's data, taken while the data passes."""

    __slots__ = ("_hash", "length")

    def __init__(self, data: bytes = b"") -> None:
        self._hash, self.length = hashlib.sha384(data), len(data)

    def update(self, chunk: bytes | memoryview) -> None:
        self._hash.update(chunk)
        self.length += len(chunk)

    def digest(self) -> bytes:
        return _sha384(_sha384(b"blob%d" % self.length) + self._hash.digest())


# ------------------------------------------------------------------------------------------------ ids and hashes


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def item_id(signature: bytes) -> str:
    """43 characters: the SHA-256 of the signature."""
    return base64url(hashlib.sha256(signature).digest())


def is_item_id(text: str) -> bool:
    """Whether some signature could have this id: 32 bytes in the only spelling that base64url has for them."""
    if len(text) != ID_CHARS or not text.isascii():
        return False
    try:
        raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except ValueError:
        return False
    return base64url(raw) == text


def signed_message(header: ItemHeader, data: DataHash) -> bytes:
    """The 48 bytes that the owner signs."""
    return _deep_hash(header.type, header.owner, header.target, header.anchor, header.raw_tags, data)


def _deep_hash(
    kind: SignatureType, owner: bytes, target: bytes, anchor: bytes, raw_tags: bytes, data: DataHash
) -> bytes:
    parts = (b"dataitem", b"1", b"%d" % kind, owner, target, anchor, raw_tags)
    digest = _sha384(b"list%d" % (len(parts) + 1))
    for child in (*(DataHash(part).digest() for part in parts), data.digest()):
        digest = _sha384(digest + child)
    return digest


def _sha384(raw: bytes) -> bytes:
    return hashlib.sha384(raw).digest()


# ------------------------------------------------------------------------------------------------ building


def sign_header(
    signer: Signer, tags: Sequence[Tag], data: DataHash, *, target: bytes = b"", anchor: bytes = b""
) -> ItemHeader | Refused:
    """The header of an item with this data, signed with an Ed25519 key: the same input gives the same id."""
    if (why_not := why_not_tags(tags)) is not None:
        return why_not
    raw_tags = encode_tags(tags)
    message = _deep_hash(SignatureType.ED25519, signer.public, target, anchor, raw_tags, data)
    return ItemHeader(
        type=SignatureType.ED25519,
        signature=signer.sign(message),
        owner=signer.public,
        target=target,
        anchor=anchor,
        raw_tags=raw_tags,
        tags=tuple(tags),
    )


def build_item(signer: Signer, tags: Sequence[Tag], data: bytes) -> tuple[str, bytes] | Refused:
    """Id and bytes of a whole item."""
    header = sign_header(signer, tags, DataHash(data))
    return header if isinstance(header, Refused) else (header.id, header.encode() + data)


def encode_tags(tags: Iterable[Tag]) -> bytes:
    """One Avro block of pairs and the closing zero; no bytes at all where there are no tags."""
    pairs = list(tags)
    if not pairs:
        return b""
    parts = [_zigzag(len(pairs))]
    for name, value in pairs:
        parts += (_zigzag(len(name)), name, _zigzag(len(value)), value)
    return b"".join((*parts, b"\0"))


def why_not_tags(tags: Sequence[Tag]) -> Refused | None:
    """ANS-104's limits: at most 128 tags, none empty, names up to 1 024 bytes, values up to 3 072."""
    if len(tags) > TAGS_MAX:
        return _refuse(f"{len(tags)} tags, at most {TAGS_MAX}")
    for number, (name, value) in enumerate(tags):
        for what, raw, most in (("name", name, NAME_MAX), ("value", value, VALUE_MAX)):
            if not 1 <= len(raw) <= most:
                return _refuse(f"tag {number}: a {what} of {len(raw)} bytes, expected 1 to {most}")
    return None


def _zigzag(number: int) -> bytes:
    rest, parts = number << 1, bytearray()  # lengths are never negative
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


# ------------------------------------------------------------------------------------------------ parsing


def header_length(prefix: bytes) -> int | Refused | None:
    """How long the header is of an item that begins with these bytes; None where more of them are needed."""
    reader = _Reader(prefix)
    try:
        _read_fixed(reader)
        _, tag_bytes = _COUNTS.unpack(reader.take(_COUNTS.size))
    except _EndsEarly:
        return None
    except _BadItem as fault:
        return _refuse(str(fault))
    if tag_bytes > TAG_BYTES_MAX:
        return _refuse(f"{tag_bytes} bytes of tags, at most {TAG_BYTES_MAX}")
    return reader.at + int(tag_bytes)


def parse_header(raw: bytes) -> ItemHeader | Refused:
    """The header at the beginning of these bytes. Its signature is not checked."""
    length = header_length(raw)
    if isinstance(length, Refused):
        return length
    if length is None or length > len(raw):
        return _refuse(f"{len(raw)} bytes end inside the header")
    reader = _Reader(raw)
    kind, signature, owner, target, anchor = _read_fixed(reader)
    count, tag_bytes = _COUNTS.unpack(reader.take(_COUNTS.size))
    raw_tags = reader.take(tag_bytes)
    tags = decode_tags(raw_tags)
    if isinstance(tags, Refused):
        return tags
    if len(tags) != count:
        return _refuse(f"{len(tags)} tags, the header says {count}")
    return ItemHeader(
        type=kind, signature=signature, owner=owner, target=target, anchor=anchor, raw_tags=raw_tags, tags=tags
    )


def decode_tags(raw: bytes) -> tuple[Tag, ...] | Refused:
    """The pairs of an Avro array. A writer may divide it into blocks; a negative count is followed by a size."""
    if not raw:
        return ()
    reader, tags = _Reader(raw), list[Tag]()
    try:
        while count := reader.number():
            if count < 0:
                reader.number()
            if len(tags) + abs(count) > TAGS_MAX:
                return _refuse(f"more than {TAGS_MAX} tags")
            tags += [(reader.take(reader.number()), reader.take(reader.number())) for _ in range(abs(count))]
    except _EndsEarly:
        return _refuse("the tags end early")
    except _BadItem as fault:
        return _refuse(str(fault))
    if reader.at != len(raw):
        return _refuse(f"{len(raw) - reader.at} bytes after the tags")
    return why_not_tags(tags) or tuple(tags)


class _EndsEarly(Exception):
    """More bytes are needed."""


class _BadItem(Exception):
    """These bytes are no item that we know."""


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self._raw, self.at = raw, 0

    def take(self, count: int) -> bytes:
        if count < 0:
            raise _BadItem(f"a length of {count}")
        end = self.at + count
        if end > len(self._raw):
            raise _EndsEarly
        part, self.at = self._raw[self.at : end], end
        return part

    def pointer(self, name: str) -> bytes:
        flag = self.take(1)
        if flag not in (b"\0", b"\1"):
            raise _BadItem(f"{name}: its flag is {flag[0]}, expected 0 or 1")
        return self.take(POINTER_BYTES) if flag == b"\1" else b""

    def number(self) -> int:
        """A zigzag varint of at most 64 bits."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise _BadItem("a number of more than 64 bits")


def _read_fixed(reader: _Reader) -> tuple[SignatureType, bytes, bytes, bytes, bytes]:
    (number,) = struct.unpack("<H", reader.take(2))
    try:
        kind = SignatureType(number)
    except ValueError:
        raise _BadItem(f"unknown signature type {number}") from None
    sizes = SIZES[kind]
    return (
        kind,
        reader.take(sizes.signature),
        reader.take(sizes.owner),
        reader.pointer("target"),
        reader.pointer("anchor"),
    )


def _refuse(message: str) -> Refused:
    return Refused("ARC-004", message, "this is not a valid ANS-104 data item", "InvalidItem")
