"""Archive notices as other programs read and write them (NTC-001): 1 body, 2 signature {1 value}; versions 0 and 1."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.archive.notice import ADDRESS_BYTES, ArchiveNotice, notice_body, proto_field
from holdfast.core.base.errors import Refused

NOTICE_BYTES_MAX: Final = 16_384
SIGNATURE_BYTES: Final = 64
_NUMBERS: Final = {1: "height", 2: "round", 3: "blob_index", 9: "archived_at", 10: "chain_id"}
_BYTES: Final = {4: "kzg_commitment", 5: "blob_keccak", 11: "versioned_hash"}
_TEXTS: Final = {6: "provider_id", 7: "locator"}
_V1: Final = frozenset({10, 11})
_VARINT, _LENGTH = 0, 2
ProtoFields = dict[int, Any]


def encode_notice(notice: ArchiveNotice) -> bytes:
    return proto_field(1, notice_body(notice)) + proto_field(2, proto_field(1, notice.signature))


def decode_notice(raw: bytes) -> ArchiveNotice | Refused:
    """A notice that has one of the fields of version 1 is of version 1. Its signature is not checked here."""
    if len(raw) > NOTICE_BYTES_MAX:
        return _refuse(f"{len(raw)} bytes, at most {NOTICE_BYTES_MAX}")
    try:
        outer = _fields(raw)
        body, signature = _fields(_get(outer, 1, b"")), _get(_fields(_get(outer, 2, b"")), 1, b"")
        named: dict[str, Any] = {name: _get(body, number, 0) for number, name in _NUMBERS.items()}
        named |= {name: _get(body, number, b"") for number, name in _BYTES.items()}
        named |= {name: _get(body, number, b"").decode("utf-8") for number, name in _TEXTS.items()}
        named["archived_by"] = _get(_fields(_get(body, 8, b"")), 1, b"")
    except (ValueError, IndexError) as fault:
        return _refuse(f"malformed: {fault}")
    if named["round"] >= 2**63:
        named["round"] -= 2**64
    notice = ArchiveNotice(version=int(bool(body.keys() & _V1)), signature=signature, **named)
    return _why_not_shape(notice, raw) or notice


def _why_not_shape(notice: ArchiveNotice, raw: bytes) -> Refused | None:
    sizes = {
        "kzg_commitment": (len(notice.kzg_commitment), 48),
        "blob_keccak": (len(notice.blob_keccak), 32),
        "archived_by": (len(notice.archived_by), ADDRESS_BYTES),
        "versioned_hash": (len(notice.versioned_hash), 32 * notice.version),
        "signature": (len(notice.signature), SIGNATURE_BYTES),
    }
    wrong = next((name for name, (size, expected) in sizes.items() if size != expected), None)
    if wrong is not None:
        return _refuse(f"{wrong}: {sizes[wrong][0]} bytes, expected {sizes[wrong][1]}")
    if encode_notice(notice) != raw:
        return _refuse("it is not in its one canonical form")
    return None


def _fields(raw: bytes) -> ProtoFields:
    fields, at = ProtoFields(), 0
    while at < len(raw):
        key, at = _read_varint(raw, at)
        value, at = _read_varint(raw, at)
        if key & 7 == _LENGTH:
            end = at + value
            if end > len(raw):
                raise ValueError("cut")
            fields[key >> 3], at = raw[at:end], end
        elif key & 7 == _VARINT:
            fields[key >> 3] = value
        else:
            raise ValueError(f"wire type {key & 7}")
    return fields


def _get(fields: ProtoFields, number: int, default: Any) -> Any:
    value = fields.get(number, default)
    if type(value) is not type(default):
        raise ValueError(f"field {number} has another type")
    return value


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    if raw[at] < 0x80:
        return raw[at], at + 1
    value = shift = 0
    while True:
        byte = raw[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _refuse(message: str) -> Refused:
    return Refused("NTC-001", message, "this is not a valid archive notice", "InvalidParams")
