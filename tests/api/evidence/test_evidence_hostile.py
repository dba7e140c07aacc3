"""Hostile or careless senders: refused by name, within bounds, and a thousand idle ones cost little."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.api.evidence.retrovue_sender import RetrovueSender
from tests.api.grpc.agent_driver import PATIENCE_S, AgentDriver, AgentNode, agent_node, refusal, until
from tests.simulation.journal import Fault

from holdfast.api.evidence import buffer
from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.evidence.validation import LINE_BYTES_MAX
from holdfast.api.grpc.services import streams
from holdfast.api.grpc.services.evidence import records_size
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb

pytestmark = pytest.mark.rule("SEC-001")
RSS = Path("/proc/self/status")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
async def oak(node: AgentNode) -> AgentDriver:
    oak = AgentDriver(node)
    await oak.register()
    return oak


@pytest.mark.parametrize("over", [-1, 0, 1])
async def test_a_record_may_be_so_large_and_not_a_byte_larger(node: AgentNode, oak: AgentDriver, over: int) -> None:
    stream = await oak.open_evidence()
    (line,) = stream.lines(1, ("PROGRESS", {"text": ""}))
    (large,) = stream.lines(1, ("PROGRESS", {"text": "x" * (LINE_BYTES_MAX - len(line) + over)}))
    assert len(large) == LINE_BYTES_MAX + over
    assert await stream.send_and_ack(1, [large]) == 1
    assert [dead_letter.name for dead_letter in node.engine.undurable_state.dead_letters.values()] == (
        ["TooLarge"] if over > 0 else []
    )


async def test_a_message_beyond_the_servers_limit_ends_the_stream_by_name(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    most = GrpcSettings().message_bytes_max
    await stream.send(1, [bytes(most)])
    no = await refusal(stream.call.read())
    assert (no.code, no.name) == ("RESOURCE_EXHAUSTED", "TooLarge")
    assert node.engine.undurable_state.watermarks == {}
    air = RetrovueSender(node)
    older = await air.connect_with_hello()
    await older.send(air.message(1, event_uuid="u" * most))
    assert (await older.ended()).name == "TooLarge"


async def test_bytes_that_are_no_message_end_the_stream_by_name(node: AgentNode) -> None:
    method = node.channel.stream_stream("/retrovue.evidence.v1.ExecutionEvidenceService/EvidenceStream")
    call = method()
    await call.write(b"\xff\xff\xff")
    assert (await refusal(call.read())).name == "ParseError"


async def test_sequences_that_jump_move_nothing(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    for first in (2, 3, 2**32, 2**63, 2**64 - 1):
        no = await stream.send_and_refusal(first, [b"x"])
        assert (no.name, no.acked_sequence) == ("EvidenceGap", 0)
        assert (await stream.read("ack")).ack.acked_sequence == 0
    no = await stream.send_and_refusal(0, [b"x"])
    assert (no.name, no.acked_sequence) == ("InvalidParams", 0)
    assert node.engine.undurable_state.watermarks == {}


async def test_a_hello_that_boasts_moves_nothing(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence(last_sequence_emitted=2**64 - 1, first_sequence_available=2**64 - 1)
    assert stream.ack.acked_sequence == 0
    assert node.evidence_metrics.lags() == [2**64 - 1]
    assert (await RetrovueSender(node).connect_with_hello(2**64 - 1)).acked_sequence == 0


async def test_who_sends_without_waiting_fills_no_memory(node: AgentNode, oak: AgentDriver) -> None:
    """While the disk hangs, the node takes its credit and then reads no more: what is sent waits at the sender's."""
    stream = await oak.open_evidence()
    lines = stream.lines(1, *(("PROGRESS", {"text": "x" * 100_000}) for _ in range(300)))
    sent = 0

    async def pour() -> None:
        nonlocal sent
        for sequence, line in enumerate(lines, start=1):
            await stream.send(sequence, [line])
            sent += len(line)

    node.world.disk.faults = [Fault.HANG]
    pouring = asyncio.create_task(pour())
    try:
        await until(lambda: node.world.disk.appends_in_flight and node.evidence_metrics.credit_stalls)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < sum(map(len, lines)) / 2, "the rest did not get through"
        assert not pouring.done()
    finally:
        node.world.disk.release.set()
    await pouring
    mark = 0
    while mark < 300:
        mark = (await stream.read("ack")).ack.acked_sequence
    assert await stream.stored_lines() == lines


async def test_a_sender_that_reads_no_acks_is_disconnected_and_delays_no_other(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WRITE_TIMEOUT_S", 0.3)
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    air = RetrovueSender(node, channel="c" * 128, session="s" * 128)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.server.port}", options=narrow) as channel:
        stream = air.connect(channel)
        pouring = asyncio.create_task(stream.send(*[air.hello()] * 20_000))
        try:
            async with asyncio.timeout(30):
                while node.evidence_metrics.refused_streams == 0:
                    await asyncio.sleep(0.05)
            assert node.evidence_metrics.open_stream_count == 0
            assert (await RetrovueSender(node).connect_with_hello()).acked_sequence == 0, (
                "another one is served meanwhile"
            )
            async with asyncio.timeout(PATIENCE_S):
                await node.server.close(0)
        finally:
            pouring.cancel()


async def test_a_thousand_idle_channels_need_no_thread_and_little_memory(node: AgentNode) -> None:
    """Their clients are in this process, too, so the bound is on both sides together."""
    threads, before = threading.active_count(), resident_kib()
    streams = []
    for number in range(1_000):
        air = RetrovueSender(node, channel=f"c{number}")
        streams.append(stream := air.connect())
        await stream.send(air.message(1))
    for stream in streams:
        await stream.acks_until(1)
    gc.collect()
    grown, began = resident_kib() - before, threading.active_count() - threads
    assert node.evidence_metrics.open_stream_count == 1_000
    assert began <= 4
    assert grown / 1_000 < 120, f"{grown / 1_000:.0f} KiB a stream, on both sides"
    stop(streams)


def stop(streams: list[Any]) -> None:
    for stream in streams:
        stream.call.cancel()


def resident_kib() -> int:
    (line,) = [line for line in RSS.read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


async def test_messages_without_records_pile_up_no_further_than_others() -> None:
    box = buffer.EvidenceBuffer(records_size, lambda _: None, EvidenceMetrics())
    many, empty = 200_000, pb.StreamRequest(records=pb.Records(first_sequence=1))

    async def pour() -> None:
        for _ in range(many):
            await box.put(empty)

    pouring = asyncio.create_task(pour())
    await asyncio.sleep(0)
    assert not pouring.done(), "they are all in memory"
    taken = 0
    while taken < many:
        group = await box.next_group()
        assert isinstance(group, list)
        taken += len(group)
        await asyncio.sleep(0)
    await pouring
