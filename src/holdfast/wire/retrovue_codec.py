"""Converts between a v0.1 message and its line: a record is stored as the JSON line that its sender spools.

The line has the fields of v0.1 in their order. A payload has all fields of its message, zero values included, since the
wire does not distinguish them from absent ones; only `optional` fields may be missing. 64-bit numbers are written as
numbers and read as numbers or strings of digits.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor

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
_encode: Final = msgspec.json.Encoder().encode


def line_of(message: pb.EvidenceFromAir) -> bytes | str:
    """The record's line without its end, or why the message is not a record."""
    kind = message.WhichOneof("payload")
    if kind is None:
        return "it has no payload of v0.1"
    if kind == HELLO:
        return "a hello is not a record"
    record: dict[str, object] = {name: getattr(message, name) for name in ENVELOPE}
    record |= {"payload_type": kind.upper(), "payload": _fields(getattr(message, kind))}
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


def _fields(part: Any) -> dict[str, object]:
    present = (field for field in part.DESCRIPTOR.fields if not field.has_presence or part.HasField(field.name))
    return {field.name: getattr(part, field.name) for field in present}


def _value(kind: Any, name: str, value: object) -> Any:
    """Senders write 64-bit numbers as numbers or as strings."""
    is_integer = kind.DESCRIPTOR.fields_by_name[name].type in _INTEGER_TYPES
    return int(value) if is_integer and isinstance(value, str) else value
