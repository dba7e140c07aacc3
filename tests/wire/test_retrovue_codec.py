"""v0.1 messages byte for byte as existing programs write them, and the lines that stand for them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.retrovue_codec import PAYLOADS, line_of, message_of

pytestmark = pytest.mark.rule("EVD-009")


def varint(number: int) -> bytes:
    out = bytearray()
    number &= 2**64 - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | str | bytes | bool) -> bytes:
    """One field as the wire has it, written by hand from the numbers that WIRE prints."""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


PARTS: dict[str, tuple[int, list[tuple[str, int, int | str | bool]]]] = {
    "hello": (10, [("first_sequence_available", 1, 1), ("last_sequence_emitted", 2, 2**64 - 1)]),
    "block_start": (
        11,
        [
            ("block_id", 1, "B"),
            ("swap_tick", 2, 7),
            ("fence_tick", 3, 2**64 - 1),
            ("actual_start_utc_ms", 4, -1),
            ("primed_success", 5, True),
        ],
    ),
    "segment_end": (
        12,
        [
            ("block_id", 1, "B"),
            ("event_id_ref", 2, "E"),
            ("actual_start_utc_ms", 3, 3),
            ("actual_end_utc_ms", 4, 4),
            ("asset_start_frame", 5, -5),
            ("asset_end_frame", 6, 6),
            ("computed_duration_ms", 7, 7),
            ("computed_duration_frames", 8, 8),
            ("status", 9, "AIRED"),
            ("reason", 10, "why"),
            ("fallback_frames_used", 11, 11),
            ("segment_uuid", 12, "u"),
            ("segment_type_name", 13, "content"),
            ("asset_uuid", 14, "a"),
        ],
    ),
    "block_fence": (
        13,
        [
            ("block_id", 1, "B"),
            ("swap_tick", 2, 2),
            ("fence_tick", 3, 3),
            ("actual_end_utc_ms", 4, 4),
            ("ct_at_fence_ms", 5, 5),
            ("total_frames_emitted", 6, 6),
            ("truncated_by_fence", 7, True),
            ("early_exhaustion", 8, True),
            ("primed_success", 9, True),
        ],
    ),
    "channel_terminated": (14, [("termination_utc_ms", 1, 1), ("reason", 2, "R"), ("detail", 3, "D")]),
    "segment_start": (
        15,
        [
            ("block_id", 1, "B"),
            ("event_id", 2, "E"),
            ("segment_index", 3, 3),
            ("actual_start_utc_ms", 4, 4),
            ("asset_start_frame", 5, 5),
            ("scheduled_duration_ms", 6, 6),
            ("join_in_progress", 7, False),
            ("segment_type_name", 8, "promo"),
            ("asset_uri", 9, "file:///x"),
            ("segment_title", 10, "T"),
            ("segment_uuid", 11, "u"),
            ("asset_uuid", 12, "a"),
        ],
    ),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_message_is_byte_for_byte_what_its_numbers_say(kind: str) -> None:
    number, told = PARTS[kind]
    part = b"".join(field(at, value) for _, at, value in told)
    envelope = field(1, 1) + field(2, "c") + field(3, "s") + field(4, 2**64 - 1) + field(5, "u") + field(6, "t")
    raw = envelope + field(number, part)
    message = pb.EvidenceFromAir.FromString(raw)
    assert message.WhichOneof("payload") == kind
    assert {name: getattr(getattr(message, kind), name) for name, _, _ in told} == {name: v for name, _, v in told}
    assert message.SerializeToString(deterministic=True) == raw


def test_an_ack_is_byte_for_byte_what_its_numbers_say() -> None:
    ack = pb.EvidenceAckFromCore(channel_id="c", playout_session_id="s", acked_sequence=300, error="no")
    assert ack.SerializeToString(deterministic=True) == field(1, "c") + field(2, "s") + field(3, 300) + field(4, "no")


def test_the_method_is_called_as_existing_programs_call_it() -> None:
    service = pb.DESCRIPTOR.services_by_name["ExecutionEvidenceService"]
    assert service.full_name == "retrovue.evidence.v1.ExecutionEvidenceService"
    assert [method.name for method in service.methods] == ["EvidenceStream"]


def some(kind: str) -> pb.EvidenceFromAir:
    said: dict[str, Any] = {
        "schema_version": 1,
        "channel_id": "c",
        "playout_session_id": "s",
        "sequence": 5,
        "event_uuid": "u",
    }
    message = pb.EvidenceFromAir(**said, emitted_utc="t")
    part = getattr(message, kind)
    part.SetInParent()
    for name, _, value in PARTS[kind][1]:
        setattr(part, name, value)
    return message


@pytest.mark.parametrize("kind", sorted(PARTS.keys() - {"hello"}))
def test_a_record_goes_to_its_line_and_back_without_loss(kind: str) -> None:
    line = line_of(some(kind))
    assert isinstance(line, bytes)
    assert message_of(line) == some(kind)


def test_64_bit_numbers_are_read_as_numbers_and_as_texts() -> None:
    line = line_of(some("block_start"))
    assert isinstance(line, bytes)
    record = msgspec.json.decode(line)
    record["sequence"], record["payload"]["fence_tick"] = "5", str(2**64 - 1)
    record["payload"]["actual_start_utc_ms"] = "-1"
    assert message_of(msgspec.json.encode(record)) == some("block_start")


def test_what_is_optional_may_be_missing_and_zero_values_are_written() -> None:
    line = line_of(pb.EvidenceFromAir(schema_version=1, segment_start=pb.SegmentStart()))
    assert isinstance(line, bytes)
    payload = msgspec.json.decode(line)["payload"]
    assert "join_in_progress" not in payload
    assert (payload["segment_index"], payload["asset_uri"]) == (0, "")
    assert message_of(line) == pb.EvidenceFromAir(schema_version=1, segment_start=pb.SegmentStart())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{}", "not a complete record"),
        (b"[]", "not a complete record"),
        (b"\xff", "not a complete record"),
        (
            b'{"payload_type":"LEASE_COMPLETED","payload":{},"schema_version":1,"channel_id":"c",'
            b'"playout_session_id":"s","sequence":1,"event_uuid":"u","emitted_utc":"t"}',
            "v0.1 has no payload type",
        ),
    ],
)
def test_what_v0_1_cannot_say_is_named(line: bytes, why: str) -> None:
    said = message_of(line)
    assert isinstance(said, str)
    assert said.startswith(why)


def test_only_the_payloads_of_v0_1_are_records() -> None:
    assert sorted(PAYLOADS) == ["BLOCK_FENCE", "BLOCK_START", "CHANNEL_TERMINATED", "SEGMENT_END", "SEGMENT_START"]
    assert line_of(pb.EvidenceFromAir(hello=pb.Hello())) == "a hello is not a record"
    assert line_of(pb.EvidenceFromAir()) == "it has no payload of v0.1"
