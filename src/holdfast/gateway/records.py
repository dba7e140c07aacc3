"""What is stored of an item beside its data: the item's record, and a record of each way it was uploaded (ARC-004).

    data/XX/ID         the data section, as it was uploaded
    items/XX/ID        its header and the hashes of its data: the same bytes whoever uploads it
    meta/XX/ID.WHERE   when, by which key and into which bucket: written last, so that what has one is complete
    buckets/BUCKET     the key that a bucket belongs to

XX are the id's first two characters: no folder gets very large. The index is made from these records, and can be
made again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeVar

import msgspec

from holdfast.core.base.errors import Corrupt, Refused
from holdfast.wire.ans104 import ItemHeader, parse_header

CHUNK_BYTES: Final = 1 << 20
"""Data is hashed in chunks of this size, so that a range can be checked without reading the rest."""
DEFAULT_TYPE: Final = "application/octet-stream"
PUBLIC: Final = "public"
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_TYPE: Final = re.compile(r"[!-~][ -~]{0,253}")
R = TypeVar("R", bound=msgspec.Struct)


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of an item but its data; a function of the item alone."""

    header: bytes
    data_size: int
    chunks: tuple[bytes, ...]
    """The SHA-256 of each chunk."""

    @property
    def size(self) -> int:
        """Of the whole item."""
        return len(self.header) + self.data_size

    def parsed(self) -> ItemHeader:
        header = parse_header(self.header)
        if isinstance(header, Refused):
            raise Corrupt("ARC-004", f"a stored header cannot be read: {header.message}", "run holdfast gateway check")
        return header


class UploadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which an item was uploaded; the first upload counts."""

    id: str
    created_ms: int
    key_id: str
    bucket: str = ""
    """Empty where the item is public."""
    folder: str = ""
    name: str = ""

    @property
    def is_public(self) -> bool:
        return not self.bucket

    @property
    def key(self) -> str:
        """Where it is stored."""
        if self.is_public:
            return f"{meta_prefix(self.id)}{PUBLIC}"
        place = "\0".join((self.bucket, self.folder, self.name)).encode()
        return f"{meta_prefix(self.id)}{hashlib.sha256(place).hexdigest()[:32]}"


class BucketRecord(msgspec.Struct, frozen=True, kw_only=True):
    """To whom a bucket belongs."""

    key_id: str
    created_ms: int


def data_key(id_: str) -> str:
    return f"data/{id_[:2]}/{id_}"


def item_key(id_: str) -> str:
    return f"items/{id_[:2]}/{id_}"


def meta_prefix(id_: str) -> str:
    """What the keys of an item's uploads begin with."""
    return f"meta/{id_[:2]}/{id_}."


def id_of_meta(key: str) -> str:
    return key.rpartition("/")[2].partition(".")[0]


def is_bucket(name: str) -> bool:
    """Whether a bucket may have this name: it becomes part of a key."""
    return _BUCKET.fullmatch(name) is not None


def bucket_key(bucket: str) -> str:
    return f"buckets/{bucket}"


def content_type_of(header: ItemHeader) -> str:
    """The item's Content-Type tag; the default where it has none, or one that cannot be sent in a header."""
    for name, value in header.tags:
        if name.lower() == b"content-type":
            text = value.decode("latin-1")
            return text if _TYPE.fullmatch(text) else DEFAULT_TYPE
    return DEFAULT_TYPE


def encode(record: ItemRecord | UploadRecord | BucketRecord) -> bytes:
    """JSON, and the hash of it: damage is seen before it is believed."""
    raw = msgspec.json.encode(record)
    return raw + b"\n" + hashlib.sha256(raw).hexdigest().encode() + b"\n"


def decode_item(raw: bytes, key: str) -> ItemRecord:
    return _decode(raw, key, ItemRecord)


def decode_upload(raw: bytes, key: str) -> UploadRecord:
    return _decode(raw, key, UploadRecord)


def decode_bucket(raw: bytes, key: str) -> BucketRecord:
    return _decode(raw, key, BucketRecord)


def _decode(raw: bytes, key: str, kind: type[R]) -> R:
    """Corrupt where these are not the bytes that were stored."""
    body, _, check = raw.rstrip(b"\n").rpartition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() == check:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError:
            pass
    raise Corrupt("ARC-004", f"{key} is damaged", "restore it from a backup, or upload the item again")
