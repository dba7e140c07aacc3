"""The service for v0.1 senders: the same store, the same rules, and every known fault of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.evidence.retrovue_sender import KINDS, RetrovueSender, RetrovueStream
from tests.api.grpc.agent_driver import EOF, AgentDriver, AgentNode, agent_node, refusal
from tests.api.grpc.grpc_server import client_certificate, connected_channel, grpc_server, tls_folder
from tests.simulation.world import DEVELOPMENT, World, stop_engine

from holdfast.api.grpc.services.retrovue import SESSIONS_MAX
from holdfast.api.grpc.settings import GrpcSettings, LegacyEvidence, why_not_open
from holdfast.core.evidence.messages import AssignChannel
from holdfast.core.evidence.model import SessionEnd, is_final, watermark_id
from holdfast.core.policy import EvidencePolicy, UnstakedEvidence
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.retrovue_codec import line_of

pytestmark = pytest.mark.rule("EVD-009")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
def sender(node: AgentNode) -> RetrovueSender:
    return RetrovueSender(node)


def lines_of(messages: list[Any]) -> list[Any]:
    return [line_of(message) for message in messages]


# ------------------------------------------------------------------------------------------------ as it should be


@pytest.mark.rule("EVD-001", "EVD-002")
async def test_every_kind_of_record_is_acked_and_kept_as_the_line_of_its_source(
    node: AgentNode, sender: RetrovueSender
) -> None:
    stream = await sender.connect_with_hello()
    messages = [sender.message(sequence, kind) for sequence, kind in enumerate(KINDS, start=1)]
    await stream.send(*messages)
    await stream.acks_until(5)
    kept = await sender.stored_lines()
    assert kept == lines_of(messages)
    fence = msgspec.json.decode(kept[3])
    assert list(fence) == [
        *("schema_version", "channel_id", "playout_session_id", "sequence", "event_uuid", "emitted_utc"),
        *("payload_type", "payload"),
    ]
    assert (fence["payload_type"], fence["payload"]["total_frames_emitted"]) == ("BLOCK_FENCE", 2**63)


@pytest.mark.rule("EVD-001", "SP-ACK-004")
async def test_a_hello_is_answered_with_the_true_watermark_over_streams_and_restarts(tmp_path: Path) -> None:
    world = World()
    async with agent_node(tmp_path, world) as node:
        stream = await RetrovueSender(node).connect_with_hello()
        await stream.send(*RetrovueSender(node).messages(1, 4))
        await stream.acks_until(4)
        stream.call.cancel()
        assert (await RetrovueSender(node).connect_with_hello(9)).acked_sequence == 4
    async with agent_node(tmp_path, world) as node:
        stream = await RetrovueSender(node).connect_with_hello(4)
        assert stream.acked_sequence == 4
        await stream.send(RetrovueSender(node).hello(4))
        assert (await stream.ack()).acked_sequence == 4
        assert node.evidence_metrics.replays == 0


async def test_a_sender_that_has_said_all_gets_its_acks_and_a_good_end(node: AgentNode, sender: RetrovueSender) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(*sender.messages(1, 3))
    await stream.call.done_writing()
    await stream.acks_until(3)
    assert await stream.call.read() is EOF
    assert (await stream.call.code()).name == "OK"


# ------------------------------------------------------------------------------------------------ misbehaviour


@pytest.mark.rule("EVD-003")
async def test_playing_back_from_one_again_and_again_stores_nothing_twice(
    node: AgentNode, sender: RetrovueSender
) -> None:
    messages = sender.messages(1, 6)
    for _ in range(3):
        stream = sender.connect()
        await stream.send(sender.hello(6), *messages)
        await stream.acks_until(6)
        stream.call.cancel()
    assert await sender.stored_lines() == lines_of(messages)
    assert node.evidence_metrics.records == 6


@pytest.mark.rule("EVD-003")
async def test_what_is_played_back_and_then_comes_from_the_live_queue_again_counts_once(
    node: AgentNode, sender: RetrovueSender
) -> None:
    stream = await sender.connect_with_hello(4)
    await stream.send(*sender.messages(1, 4), *sender.messages(2, 6))
    await stream.acks_until(6)
    assert await sender.stored_lines() == lines_of(sender.messages(1, 6))


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize("first", [5, 2**63, 2**64 - 1])
async def test_an_event_lost_with_a_cut_stream_is_missed_and_comes_when_the_sender_connects_anew(
    node: AgentNode, sender: RetrovueSender, first: int
) -> None:
    """It does not read errors, and mends a gap only by a new stream: so the stream ends."""
    stream = await sender.connect_with_hello()
    await stream.send(*sender.messages(1, 3), sender.message(first))
    told = await stream.error()
    assert (told.acked_sequence, told.channel_id, told.playout_session_id) == (3, "classic-1", "PS-1")
    assert told.error.startswith("EvidenceGap: EVD-002")
    assert (await stream.ended()).code == "OUT_OF_RANGE"
    again = await sender.connect_with_hello(5)
    assert again.acked_sequence == 3
    await again.send(*sender.messages(4, 5))
    await again.acks_until(5)
    assert await sender.stored_lines() == lines_of(sender.messages(1, 5))


@pytest.mark.rule("EVD-003")
async def test_a_record_sent_before_it_was_spooled_and_numbered_anew_after_a_crash_is_a_conflict(
    node: AgentNode, sender: RetrovueSender
) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(*sender.messages(1, 3))
    await stream.acks_until(3)
    reborn = RetrovueSender(node, incarnation="b")
    stream = await reborn.connect_with_hello(2)
    assert stream.acked_sequence == 3
    await stream.send(reborn.message(3))
    told = await stream.error()
    assert (told.acked_sequence, told.error.split(":")[0]) == (3, "SequenceConflict")
    assert (await stream.ended()).name == "SequenceConflict"
    assert await sender.stored_lines() == lines_of(sender.messages(1, 3))


@pytest.mark.parametrize("on", ["the same stream", "a new stream"])
async def test_a_restart_with_a_new_session_begins_with_one(node: AgentNode, sender: RetrovueSender, on: str) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(*sender.messages(1, 3))
    await stream.acks_until(3)
    reborn = RetrovueSender(node, session="PS-2")
    if on == "a new stream":
        stream = reborn.connect()
    await stream.send(reborn.hello(0), *reborn.messages(1, 2))
    marks = [await stream.ack() for _ in range(2)]
    assert (marks[0].playout_session_id, marks[0].acked_sequence) == ("PS-2", 0)
    assert marks[-1].acked_sequence in (1, 2)
    stream.acked_sequence = marks[-1].acked_sequence
    await stream.acks_until(2)
    assert (await sender.stored_lines(), await reborn.stored_lines()) == (
        lines_of(sender.messages(1, 3)),
        lines_of(reborn.messages(1, 2)),
    )


async def test_a_sender_without_a_hello_is_heard(node: AgentNode, sender: RetrovueSender) -> None:
    stream = sender.connect()
    await stream.send(*sender.messages(1, 2))
    await stream.acks_until(2)


@pytest.mark.rule("EVD-007")
@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"schema_version": 2}, "WrongSchema"),
        ({"schema_version": 0}, "WrongSchema"),
        ({"event_uuid": ""}, "Malformed"),
        ({"segment_start": None}, "Malformed"),
    ],
)
async def test_a_message_that_is_no_record_is_acked_into_a_dead_letter(
    node: AgentNode, sender: RetrovueSender, told: dict[str, Any], name: str
) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(sender.message(1), sender.message(2, **told), sender.message(3))
    await stream.acks_until(3)
    (dead_letter,) = node.engine.undurable_state.dead_letters.values()
    assert (dead_letter.channel, dead_letter.sequence, dead_letter.name) == ("classic-1", 2, name)
    kept = await sender.stored_lines()
    assert [kept[0], kept[2]] == lines_of([sender.message(1), sender.message(3)])


# ------------------------------------------------------------------------------------------------ the end of sessions


def watermark_of(node: AgentNode, session: str) -> Any:
    return node.engine.undurable_state.watermarks[watermark_id("classic-1", session)]


@pytest.mark.rule("SP-RET-001")
async def test_a_session_is_final_when_its_channel_was_terminated(node: AgentNode, sender: RetrovueSender) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(sender.message(1), sender.message(2, "channel_terminated"))
    await stream.acks_until(2)
    assert is_final(watermark_of(node, "PS-1"))


@pytest.mark.rule("SP-RET-001")
async def test_a_fence_is_the_end_only_of_a_session_that_is_closed(node: AgentNode, sender: RetrovueSender) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(sender.message(1, "block_fence"))
    await stream.acks_until(1)
    assert (watermark_of(node, "PS-1").ending, is_final(watermark_of(node, "PS-1"))) == (SessionEnd.FENCE, False)
    reborn = RetrovueSender(node, session="PS-2")
    newer = await reborn.connect_with_hello()
    await newer.send(reborn.message(1))
    await newer.acks_until(1)
    assert is_final(watermark_of(node, "PS-1"))
    await stream.send(sender.message(2))
    await stream.acks_until(2)
    assert not is_final(watermark_of(node, "PS-1"))
    assert not is_final(watermark_of(node, "PS-2"))


# ------------------------------------------------------------------------------------------------ who may


async def test_no_v0_1_sender_is_admitted_unless_the_operator_allows_it(tmp_path: Path) -> None:
    assert GrpcSettings().legacy_evidence is LegacyEvidence.OFF
    async with agent_node(tmp_path, legacy=LegacyEvidence.OFF) as node:
        no = await refusal(RetrovueSender(node).connect_with_hello())
        assert (no.code, no.name, no.rule) == ("PERMISSION_DENIED", "Forbidden", "EVD-009")
        assert "grpc.legacy_evidence" in no.hint
        assert node.engine.undurable_state.watermarks == {}


@pytest.mark.rule("EVD-001")
async def test_a_providers_channel_cannot_be_used_without_its_key(node: AgentNode) -> None:
    oak = AgentDriver(node)
    await oak.register()
    for channel in (oak.id.hex(), oak.id.hex().upper(), "00" * 32):
        stream = RetrovueSender(node, channel=channel).connect()
        await stream.send(RetrovueSender(node, channel=channel).message(1))
        assert (await stream.error()).error.startswith("Forbidden")
        assert (await stream.ended()).name == "Forbidden"
    assert node.engine.undurable_state.watermarks == {}


@pytest.mark.parametrize(("channel", "session"), [("../up", "s"), ("", "s"), ("c", ""), ("c", "a/b"), ("c" * 129, "s")])
async def test_ids_that_could_not_be_names_of_files_are_refused(node: AgentNode, channel: str, session: str) -> None:
    sender = RetrovueSender(node, channel, session)
    stream = sender.connect()
    await stream.send(sender.hello())
    assert (await stream.error()).error.startswith("InvalidParams")
    assert (await stream.ended()).name == "InvalidParams"


async def test_a_record_without_a_sequence_is_refused(node: AgentNode, sender: RetrovueSender) -> None:
    stream = await sender.connect_with_hello()
    await stream.send(sender.message(0))
    assert (await stream.error()).acked_sequence == 0
    assert (await stream.ended()).name == "InvalidParams"


@pytest.mark.rule("SEC-001")
async def test_a_stream_carries_a_few_sessions_and_not_any_number(node: AgentNode) -> None:
    stream = RetrovueSender(node).connect()
    for number in range(SESSIONS_MAX):
        await stream.send(RetrovueSender(node, session=f"s{number}").hello())
        await stream.ack()
    await stream.send(RetrovueSender(node, session="one-more").hello())
    assert (await stream.ended_after_error()).name == "TooLarge"


@pytest.mark.rule("SEC-001")
async def test_open_channels_have_a_bound(tmp_path: Path) -> None:
    few = msgspec.structs.replace(
        DEVELOPMENT, evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, legacy_channels_max=2)
    )
    async with agent_node(tmp_path, World(few)) as node:
        for number in range(2):
            sender = RetrovueSender(node, channel=f"c{number}")
            await (stream := await sender.connect_with_hello()).send(sender.message(1))
            await stream.acks_until(1)
        sender = RetrovueSender(node, channel="c2")
        await (stream := await sender.connect_with_hello()).send(sender.message(1))
        assert (await stream.ended_after_error()).name == "TooLarge"
        known = RetrovueSender(node, channel="c1", session="PS-2")
        await (stream := await known.connect_with_hello()).send(known.message(1))
        await stream.acks_until(1)


async def test_with_mtls_the_certificate_must_have_the_name_of_the_channels_owner(tmp_path: Path) -> None:
    world = World()
    engine = await world.started()
    node = AgentNode(engine, world, tmp_path, LegacyEvidence.MTLS)
    tls = tls_folder(tmp_path / "tls", "classic-1", "air-1")
    authority = tmp_path / "tls" / "ca.pem"
    async with grpc_server(services=node.services, tls=tls, client_ca=authority) as server:
        node.agent_context.close_with(server.closing)
        own, other = client_certificate(tmp_path / "tls", "classic-2"), client_certificate(tmp_path / "tls", "air-2")
        async with (
            connected_channel(server, authority, own) as mine,
            connected_channel(server, authority, other) as theirs,
        ):
            sender = RetrovueSender(node, channel="classic-2")
            stream = sender.connect(mine)
            await stream.send(sender.hello(), sender.message(1))
            await stream.acks_until(1)
            stream = sender.connect(theirs)
            await stream.send(sender.hello())
            assert "holdfast evidence set-owner" in (await stream.error()).error
            assert (await stream.ended()).name == "Forbidden"
            await node.do(AssignChannel("classic-2", "air-2"))
            stream = sender.connect(theirs)
            await stream.send(sender.hello(), sender.message(2))
            await stream.acks_until(2)
            stream = sender.connect(mine)
            await stream.send(sender.message(3))
            assert (await stream.ended_after_error()).name == "Forbidden"
    await stop_engine(engine)


def test_mtls_without_a_client_ca_is_refused() -> None:
    no = why_not_open(GrpcSettings(legacy_evidence=LegacyEvidence.MTLS))
    assert no is not None
    assert (no.rule, no.message) == ("EVD-009", "legacy_evidence: mtls without client_ca")


# ------------------------------------------------------------------------------------------------ no text


def with_bad_text(message: Any) -> bytes:
    """The message with a title that is not UTF-8, as a sender in C++ sends it."""
    raw = message.SerializeToString()
    assert raw.count(b"title-of-5") == 1
    return bytes(raw.replace(b"title-of-5", b"title\xff\xfeof5"))


@pytest.mark.rule("EVD-007")
async def test_a_record_whose_text_is_not_utf8_becomes_a_dead_letter_and_the_session_goes_on(
    node: AgentNode, sender: RetrovueSender
) -> None:
    bad = with_bad_text(sender.message(2, segment_start=pb.SegmentStart(block_id="B1", segment_title="title-of-5")))
    raw_stream = node.channel.stream_stream(
        "/retrovue.evidence.v1.ExecutionEvidenceService/EvidenceStream",
        response_deserializer=pb.EvidenceAckFromCore.FromString,
    )
    for _ in range(2):  # it sends everything again, and again nothing happens
        stream = RetrovueStream(sender, raw_stream())
        first, last = sender.message(1).SerializeToString(), sender.message(3).SerializeToString()
        for raw in (sender.hello(3).SerializeToString(), first, bad, last):
            await stream.call.write(raw)
        await stream.acks_until(3)
        stream.call.cancel()
    kept = [msgspec.json.decode(line) for line in await sender.stored_lines()]
    assert [line["payload_type"] for line in kept] == ["SEGMENT_START", "DEAD_LETTER", "SEGMENT_START"]
    assert kept[1]["payload"]["reason"] == "a text in it is not UTF-8"
    assert kept[1]["payload"]["size"] == len(bad)


@pytest.mark.rule("EVD-007")
@pytest.mark.parametrize("text", ["\0", "a\x1b[31m", "\x7f"])
async def test_a_record_with_control_bytes_becomes_a_dead_letter_and_the_session_goes_on(
    node: AgentNode, sender: RetrovueSender, text: str
) -> None:
    bad = sender.message(2, segment_start=pb.SegmentStart(block_id="B1", segment_title=text))
    stream = await sender.connect_with_hello()
    await stream.send(sender.message(1), bad, sender.message(3))
    await stream.acks_until(3)
    kept = [msgspec.json.decode(line) for line in await sender.stored_lines()]
    assert [line["payload_type"] for line in kept] == ["SEGMENT_START", "DEAD_LETTER", "SEGMENT_START"]
    assert kept[1]["payload"]["reason"] == "segment_title has control bytes"


async def test_a_message_that_names_no_session_still_ends_the_stream(node: AgentNode, sender: RetrovueSender) -> None:
    raw_stream = node.channel.stream_stream(
        "/retrovue.evidence.v1.ExecutionEvidenceService/EvidenceStream",
        response_deserializer=pb.EvidenceAckFromCore.FromString,
    )
    for raw in (b"\xff\xff\xff", b"\x12\x01\xff", b"\x20" + b"\xff" * 12, b"\x12\x7fx"):
        call = raw_stream()
        await call.write(raw)
        assert (await refusal(call.read())).code == "INVALID_ARGUMENT"
