"""Converts between a v0.1 message and its line: a record is stored as the JSON line that its sender spools.

The line has the fields of v0.1 in their order. A payload has all fields of its message, zero values included, since the
wire does not distinguish them from absent ones; only `optional` fields may be missing. 64-bit numbers are written as
numbers and read as numbers or strings of digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb

SCHEMA_VERSION: Final = 1
HELLO: Final = "hello"
ENVELOPE: Final = ("schema_version", "channel_id", "playout_session_id", "sequence", "event_uuid", "emitted_utc")
PAYLOADS: Final = {
    field.name.upper(): field
    for field in pb.EvidenceFromAir.DESCRIPTOR.oneofs_by_name["payload"].fields
    if field.name != HELLO
}
"""The payload types, as they are named in lines."""
_INTEGER_TYPES: Final = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
    }
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Bytes that no text for people has. Tabs and line ends are not among them."""
_encode: Final = msgspec.json.Encoder().encode


class UnreadableMessage(msgspec.Struct, frozen=True, gc=False):
    """A message whose session and sequence can be read, but not its texts: senders do not check that they are UTF-8."""

    channel_id: str
    playout_session_id: str
    sequence: int
    raw: bytes

    def ByteSize(self) -> int:  # noqa: N802 - as messages call it
        return len(self.raw)


def read_message(raw: bytes) -> pb.EvidenceFromAir | UnreadableMessage:
    """Decode a message. DecodeError where not even its session and sequence can be read."""
    try:
        return pb.EvidenceFromAir.FromString(raw)
    except DecodeError:
        found = _unreadable(raw)
        if found is None:
            raise
        return found


def _unreadable(raw: bytes) -> UnreadableMessage | None:
    """The envelope's own fields, read by hand: 2 channel, 3 session, 4 sequence (varint, protobuf's wire types)."""
    texts, sequence, at = {2: "", 3: ""}, 0, 0
    try:
        while at < len(raw):
            key, at = _varint(raw, at)
            number, kind = key >> 3, key & 7
            if kind == 0:
                value, at = _varint(raw, at)
                sequence = value if number == 4 else sequence
            elif kind == 2:
                length, at = _varint(raw, at)
                if at + length > len(raw):
                    return None
                if number in texts:
                    texts[number] = raw[at : at + length].decode("utf-8", "replace")
                at += length
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                return None
    except (IndexError, ValueError):
        return None
    return UnreadableMessage(texts[2], texts[3], sequence, raw) if sequence and texts[2] and texts[3] else None


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def why_not_record(raw: bytes) -> str:
    """Why a message that was kept as received is not a record."""
    try:
        line = line_of(pb.EvidenceFromAir.FromString(raw))
    except DecodeError:
        return "a text in it is not UTF-8"
    return line if isinstance(line, str) else "not a complete record"


def line_of(message: pb.EvidenceFromAir) -> bytes | str:
    """The record's line without its end, or why the message is not a record."""
    kind = message.WhichOneof("payload")
    if kind is None:
        return "it has no payload of v0.1"
    if kind == HELLO:
        return "a hello is not a record"
    record: dict[str, object] = {name: getattr(message, name) for name in ENVELOPE}
    record |= {"payload_type": kind.upper(), "payload": _fields(getattr(message, kind))}
    for name, value in (*record.items(), *_fields(getattr(message, kind)).items()):
        if isinstance(value, str) and _CONTROL.search(value):
            return f"{name} has control bytes"
    return _encode(record)


def message_of(line: bytes) -> pb.EvidenceFromAir | str:
    """The message of a spooled line, or why v0.1 has none: it has only these payload types."""
    try:
        record = msgspec.json.decode(line, type=dict[str, Any])
        payload_type, payload = record["payload_type"], record["payload"]
        envelope = {name: _value(pb.EvidenceFromAir, name, record[name]) for name in ENVELOPE}
        field = PAYLOADS.get(payload_type)
        if field is None:
            return f"v0.1 has no payload type {payload_type!r:.60}"
        message = pb.EvidenceFromAir(**envelope)
        part = getattr(message, field.name)
        part.SetInParent()
        for name in type(part).DESCRIPTOR.fields_by_name:
            if name in payload:
                setattr(part, name, _value(type(part), name, payload[name]))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as fault:
        return f"not a complete record: {type(fault).__name__} {fault}"
    return message


def raw_message_of(line: bytes) -> bytes | None:
    """The message of a complete line whose texts hold raw bytes, as its own program sends it; None where it has none.

    A message does not take texts that are not UTF-8. So these fields are written by hand, behind the others.
    """
    try:
        record = json.loads(line.decode("utf-8", "surrogateescape"), strict=False)
        field = PAYLOADS[record["payload_type"]]
        part = getattr(pb.EvidenceFromAir(), field.name)
        body = _raw_fields(type(part), record["payload"], type(part).DESCRIPTOR.fields_by_name)
        return _raw_fields(pb.EvidenceFromAir, record, ENVELOPE) + _raw_field(field.number, body)
    except (ValueError, KeyError, TypeError):
        return None


def _raw_fields(kind: Any, values: dict[str, Any], names: Iterable[str]) -> bytes:
    fields = {name: _value(kind, name, values[name]) for name in names if name in values}
    is_raw = {name: isinstance(value, str) and _is_raw(value) for name, value in fields.items()}
    raw = kind(**{name: value for name, value in fields.items() if not is_raw[name]}).SerializeToString()
    for name, value in fields.items():
        if is_raw[name]:
            number = kind.DESCRIPTOR.fields_by_name[name].number
            raw += _raw_field(number, value.encode("utf-8", "surrogateescape"))
    return bytes(raw)


def _is_raw(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _raw_field(number: int, value: bytes) -> bytes:
    """A field of bytes as it is on the wire."""
    return _to_varint(number << 3 | 2) + _to_varint(len(value)) + value


def _to_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _fields(part: Any) -> dict[str, object]:
    present = (field for field in part.DESCRIPTOR.fields if not field.has_presence or part.HasField(field.name))
    return {field.name: getattr(part, field.name) for field in present}


def _value(kind: Any, name: str, value: object) -> Any:
    """Senders write 64-bit numbers as numbers or as strings."""
    is_integer = kind.DESCRIPTOR.fields_by_name[name].type in _INTEGER_TYPES
    return int(value) if is_integer and isinstance(value, str) else value
