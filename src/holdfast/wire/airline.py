"""Between a v0.1 message and its line: a record is kept as the JSON line that its sender spools, whichever way it came.

The line has the fields of v0.1 in their order; a payload has the fields of its message, zero values included, since the
wire does not tell them from absent ones; only what is `optional` may be missing. 64-bit numbers are written as numbers
and read as numbers or as texts of digits.
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
"""The types of records, as lines name them."""
_WHOLE: Final = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
    }
)
_encode: Final = msgspec.json.Encoder().encode


def line_of(message: pb.EvidenceFromAir) -> bytes | str:
    """The record's line without its end, or why the message is no record."""
    kind = message.WhichOneof("payload")
    if kind is None:
        return "it has no payload that v0.1 knows"
    if kind == HELLO:
        return "a hello is no record"
    record: dict[str, object] = {name: getattr(message, name) for name in ENVELOPE}
    record |= {"payload_type": kind.upper(), "payload": _fields(getattr(message, kind))}
    return _encode(record)


def message_of(line: bytes) -> pb.EvidenceFromAir | str:
    """The message of a spooled line, or why v0.1 has none for it: it knows these types of payloads alone."""
    try:
        record = msgspec.json.decode(line, type=dict[str, Any])
        payload_type, payload = record["payload_type"], record["payload"]
        envelope = {name: _value(pb.EvidenceFromAir, name, record[name]) for name in ENVELOPE}
        field = PAYLOADS.get(payload_type)
        if field is None:
            return f"v0.1 knows no {payload_type!r:.60}"
        message = pb.EvidenceFromAir(**envelope)
        part = getattr(message, field.name)
        part.SetInParent()
        for name in type(part).DESCRIPTOR.fields_by_name:
            if name in payload:
                setattr(part, name, _value(type(part), name, payload[name]))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as fault:
        return f"not a whole record: {type(fault).__name__} {fault}"
    return message


def _fields(part: Any) -> dict[str, object]:
    fields = part.DESCRIPTOR.fields
    return {each.name: getattr(part, each.name) for each in fields if not each.has_presence or part.HasField(each.name)}


def _value(kind: Any, name: str, told: object) -> Any:
    """WIRE: writers differ in how they write 64-bit numbers."""
    is_whole = kind.DESCRIPTOR.fields_by_name[name].type in _WHOLE
    return int(told) if is_whole and isinstance(told, str) else told
