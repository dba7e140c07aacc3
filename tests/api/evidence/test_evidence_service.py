"""Evidence at the node: stored once and in order, acknowledged when durable, its commands decided with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.grpc.agent_driver import (
    PATIENCE_S,
    AgentDriver,
    AgentNode,
    EvidenceStreamDriver,
    agent_node,
    refusal,
    until,
)
from tests.simulation.journal import Fault
from tests.simulation.world import World

from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.evidence import buffer, ingest
from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.evidence.validation import prepare
from holdfast.api.grpc.services import streams
from holdfast.api.grpc.services.evidence import records_size
from holdfast.core.evidence.messages import EvidenceStored
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as epb


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
async def oak(node: AgentNode) -> AgentDriver:
    oak = AgentDriver(node)
    await oak.register()
    return oak


# ------------------------------------------------------------------------------------------------ hello, mark, records


@pytest.mark.rule("EVD-001", "EVD-002")
async def test_records_are_acked_when_they_are_durable_and_kept_byte_for_byte(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.open_evidence()
    assert (stream.ack.acked_sequence, stream.ack.credit_bytes) == (0, buffer.CREDIT_BYTES)
    lines = stream.progress_lines(1, 5)
    assert await stream.send_and_ack(1, lines[:2]) == 2
    assert any(isinstance(event, EvidenceStored) for event in node.batches()[-1])
    assert await stream.send_and_ack(3, lines[2:]) == 5
    assert await stream.stored_lines() == lines
    assert node.evidence_metrics.records == 5


@pytest.mark.rule("EVD-002")
async def test_no_ack_comes_before_the_disk_has_the_records(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    node.world.disk.faults = [Fault.HANG]
    await stream.send(1, stream.progress_lines(1, 3))
    await until(lambda: node.world.disk.appends_in_flight)
    acking = asyncio.create_task(stream.read("ack"))
    await asyncio.sleep(0.05)
    assert not acking.done()
    node.world.disk.release.set()
    assert (await acking).ack.acked_sequence == 3


@pytest.mark.rule("EVD-001")
async def test_the_node_answers_a_hello_with_its_watermark_over_streams_and_restarts(tmp_path: Path) -> None:
    world, key = World(), SigningKey.generate()
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node, key=key)
        await oak.register()
        stream = await oak.open_evidence()
        lines = stream.progress_lines(1, 9)
        await stream.send_and_ack(1, lines[:4])
        stream.call.cancel()
        assert (await oak.open_evidence()).ack.acked_sequence == 4
    async with agent_node(tmp_path, world) as node:
        stream = await AgentDriver(node, key=key).open_evidence()
        assert stream.ack.acked_sequence == 4
        assert await stream.send_and_ack(1, lines) == 9  # an agent that has lost its ack sends all of it again
        assert await stream.stored_lines() == lines
        assert node.evidence_metrics.duplicates == 4


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(("first", "last", "mark"), [(1, 4, 4), (1, 3, 4), (4, 4, 4), (2, 7, 7), (5, 5, 5)])
async def test_duplicates_are_dropped_and_what_overlaps_is_stored_from_the_watermark_on(
    node: AgentNode, oak: AgentDriver, first: int, last: int, mark: int
) -> None:
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 9)
    await stream.send_and_ack(1, lines[:4])
    assert await stream.send_and_ack(first, lines[first - 1 : last]) == mark
    assert await stream.stored_lines() == lines[:mark]


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize("first", [4, 6, 2**64 - 1])
async def test_a_gap_is_refused_by_name_the_watermark_stays_and_the_stream_goes_on(
    node: AgentNode, oak: AgentDriver, first: int
) -> None:
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 3)
    await stream.send_and_ack(1, lines[:2])
    no = await stream.send_and_refusal(first, stream.progress_lines(first, first) if first < 100 else [b"{}"])
    assert (no.name, no.rule, no.acked_sequence) == ("EvidenceGap", "EVD-002", 2)
    assert (await stream.read("ack")).ack.acked_sequence == 2
    assert await stream.send_and_ack(3, lines[2:]) == 3
    assert await stream.stored_lines() == lines
    assert node.evidence_metrics.gaps == 1


@pytest.mark.rule("EVD-002")
async def test_messages_that_piled_up_are_stored_in_one_batch_and_acked_once(
    node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    come = _record_arrivals(monkeypatch)
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 30)
    node.world.disk.faults = [Fault.HANG]
    await stream.send(1, lines[:1])
    await until(lambda: node.world.disk.appends_in_flight)
    for number in range(2, 31):
        await stream.send(number, [lines[number - 1]])
    await until(lambda: len(come) == 30)
    node.world.disk.release.set()
    assert [(await stream.read("ack")).ack.acked_sequence for _ in range(2)] == [1, 30]
    assert await stream.stored_lines() == lines


def _record_arrivals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has come in and waits to be stored, or was."""
    come, put = list[Any](), buffer.EvidenceBuffer.put

    async def counted(box: buffer.EvidenceBuffer, message: Any) -> None:
        await put(box, message)
        come.append(message)

    monkeypatch.setattr(buffer.EvidenceBuffer, "put", counted)
    return come


async def test_a_group_is_bounded(node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "GROUP_BYTES_MAX", 600)
    box = buffer.EvidenceBuffer(records_size, lambda _: None, EvidenceMetrics())
    for size in (100, 400, 300, 5_000, 10):
        await box.put(epb.StreamRequest(records=epb.Records(lines=[bytes(size)])))
    sizes = [[len(each.records.lines[0]) for each in await box.next_group()] for _ in range(4)]  # type: ignore[union-attr]
    assert sizes == [[100, 400], [300], [5_000], [10]]


async def test_who_sends_beyond_its_credit_waits(node: AgentNode, oak: AgentDriver) -> None:
    box = buffer.EvidenceBuffer(records_size, lambda _: None, node.evidence_metrics)
    large = epb.StreamRequest(records=epb.Records(lines=[bytes(buffer.CREDIT_BYTES)]))
    await box.put(large)
    waiting = asyncio.create_task(box.put(large))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert node.evidence_metrics.credit_stalls == 1
    await box.next_group()
    await waiting


async def test_large_batches_are_read_again_from_beside_the_journal(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    lines = stream.lines(1, *(("PROGRESS", {"text": "x" * 3_000}) for _ in range(20)))
    await stream.send_and_ack(1, lines[:15])
    await node.engine.wait_tables()
    await stream.send_and_ack(16, lines[15:])
    assert await stream.stored_lines() == lines


@pytest.mark.rule("EVD-002")
async def test_two_streams_of_one_session_store_every_record_once(node: AgentNode, oak: AgentDriver) -> None:
    first, second = await oak.open_evidence(), await oak.open_evidence()
    lines = first.progress_lines(1, 200)

    async def send(stream: EvidenceStreamDriver, step: int) -> None:
        for at in range(0, 200, step):
            await stream.send(at + 1, lines[at : at + step])
        mark = 0
        while mark < 200:
            message = await stream.call.read()
            mark = max(mark, message.ack.acked_sequence or message.refusal.acked_sequence)

    await asyncio.gather(send(first, 7), send(second, 11))
    assert await first.stored_lines() == lines
    assert node.evidence_metrics.records == 200


async def test_an_empty_message_is_answered_with_the_watermark(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    assert await stream.send_and_ack(1, []) == 0


# ------------------------------------------------------------------------------------------------ hostile


@pytest.mark.rule("EVD-001", "PRV-003")
@pytest.mark.parametrize("wrong", ["signature", "another's channel", "no provider", "session", "key"])
async def test_a_channel_is_opened_by_its_provider_alone(node: AgentNode, oak: AgentDriver, wrong: str) -> None:
    ash = AgentDriver(node, "ash")
    tries: dict[str, tuple[Any, str]] = {
        "signature": (oak.open_evidence(signature=bytes(64)), "Unauthorized"),
        "another's channel": (oak.open_evidence(channel_id=ash.id.hex()), "Forbidden"),
        "no provider": (ash.open_evidence(), "NotFound"),
        "session": (oak.open_evidence("../up"), "InvalidParams"),
        "key": (oak.open_evidence(public=ash.key.public), "Unauthorized"),
    }
    for name, (call, expected) in tries.items():
        if name == wrong:
            assert (await refusal(call)).name == expected
        else:
            call.close()
    assert node.engine.undurable_state.watermarks == {}


@pytest.mark.rule("EVD-001")
async def test_a_hello_of_another_stream_opens_none(node: AgentNode, oak: AgentDriver) -> None:
    recorded = oak.key.sign(signed_messages.to_sign_hello(bytes(32), oak.id.hex(), "s1"))
    assert (await refusal(oak.open_evidence(signature=recorded))).name == "Unauthorized"


async def test_a_stream_that_does_not_begin_with_hello_or_says_hello_again_is_refused(
    node: AgentNode, oak: AgentDriver
) -> None:
    call = oak.evidence_stub.Stream()
    await call.read()
    await call.write(epb.StreamRequest(records=epb.Records()))
    assert (await refusal(call.read())).name == "InvalidRequest"
    stream = await oak.open_evidence()
    await stream.call.write(epb.StreamRequest(hello=epb.Hello()))
    assert (await refusal(stream.call.read())).name == "InvalidRequest"


def unsealed(line: bytes, **changes: Any) -> bytes:
    """The record as v0.1 wrote it, without a CRC, with some fields changed."""
    fields = {key: value for key, value in msgspec.json.decode(line).items() if key != "crc32c"}
    return msgspec.json.encode(dict(reversed(list((fields | changes).items()))))


async def test_records_of_v0_1_without_a_crc_are_taken(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    lines = [unsealed(line) for line in stream.progress_lines(1, 3)]
    lines[1] = unsealed(lines[1], sequence="2")
    assert await stream.send_and_ack(1, lines) == 3
    assert await stream.stored_lines() == lines


# ------------------------------------------------------------------------------------------------ the end


async def test_closing_ends_idle_streams_by_name_and_waits_for_none(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.progress_lines(1, 1))
    async with asyncio.timeout(PATIENCE_S):
        await node.server.close(2 * PATIENCE_S)
    assert (await refusal(stream.call.read())).name == "Unavailable"


async def test_what_was_sent_before_an_agent_said_all_is_stored(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 3)
    await stream.send(1, lines)
    await stream.call.done_writing()
    assert (await stream.read("ack")).ack.acked_sequence == 3
    assert await stream.stored_lines() == lines


@pytest.mark.rule("SEC-001")
async def test_an_evidence_stream_whose_challenge_is_not_answered_is_closed(
    node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHALLENGE_TIMEOUT_S", 0.05)
    call = oak.evidence_stub.Stream()
    await call.read()
    assert (await refusal(call.read())).name == "InvalidRequest"


@pytest.mark.rule("EVD-002")
async def test_under_load_the_next_group_is_validated_while_the_last_one_becomes_durable(
    node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "GROUP_BYTES_MAX", 2_000)
    begun: list[int] = []

    def noting(sender: Any, verify: Any, first: int, lines: Any) -> Any:
        begun.append(first)
        return prepare(sender, verify, first, lines)

    monkeypatch.setattr(ingest, "prepare", noting)
    stream = await oak.open_evidence()
    node.world.disk.faults = [Fault.HANG]
    node.world.disk.release.clear()
    for first in range(1, 601, 20):
        await stream.send(first, stream.progress_lines(first, first + 19))
    try:
        await until(lambda: len(begun) >= 2)
        assert node.evidence_metrics.records == 0, "the first group is not durable, and the second one is validated"
    finally:
        node.world.disk.release.set()  # a disk that hangs would keep the node from ending
    while stream.ack.acked_sequence < 600:
        stream.ack = (await stream.read("ack")).ack
    stored = [msgspec.json.decode(line)["sequence"] for line in await stream.stored_lines()]
    assert stored == list(range(1, 601))
    assert len(set(begun)) == len(begun), "none is validated twice"
