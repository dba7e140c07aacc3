"""Repeated records: the same record has no effect, another record under its sequence is a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, EvidenceStreamDriver, agent_node, refusal
from tests.simulation.world import World

from holdfast.adapters.keys.signing import SigningKey
from holdfast.spool.files.record import CRC_FIELD_BYTES, Encoder, durable_field, seal_line

pytestmark = pytest.mark.rule("EVD-003")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
async def oak(node: AgentNode) -> AgentDriver:
    oak = AgentDriver(node)
    await oak.register()
    return oak


def others(stream: EvidenceStreamDriver, first: int, last: int) -> list[bytes]:
    """Records with the same sequences, drawn by another life of the sender."""
    encoder = Encoder(stream.channel, stream.session, bytes(range(16, 32)))
    return [encoder.line(n, 1_000_000, '"PROGRESS"', b"{}").rstrip(b"\n") for n in range(first, last + 1)]


@pytest.mark.parametrize("is_projected", [True, False], ids=["from the tables", "from the journal"])
@pytest.mark.parametrize(("first", "last", "named"), [(1, 4, 1), (4, 4, 4), (2, 9, 2), (3, 3, 3)])
async def test_another_record_under_a_known_sequence_is_a_conflict_and_the_ack_stays(
    node: AgentNode, oak: AgentDriver, first: int, last: int, named: int, is_projected: bool
) -> None:
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 4)
    await stream.send_and_ack(1, lines[:3])
    await stream.send_and_ack(4, lines[3:])
    if is_projected:
        await node.engine.wait_tables()
    no = await stream.send_and_refusal(first, others(stream, first, last))
    assert (no.name, no.rule, no.acked_sequence) == ("SequenceConflict", "EVD-003", 4)
    assert no.message.endswith(f"{named} is stored with another event_uuid")
    assert (await refusal(stream.call.read())).code == "ALREADY_EXISTS"
    assert await stream.stored_lines() == lines
    assert node.evidence_metrics.conflicts == 1


async def test_one_other_record_among_known_ones_is_found_and_nothing_behind_it_is_taken(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 300)
    await stream.send_and_ack(1, lines[:200])
    sent = [*lines[:150], *others(stream, 151, 151), *lines[151:]]
    no = await stream.send_and_refusal(1, sent)
    assert (no.name, no.acked_sequence) == ("SequenceConflict", 200)
    assert await stream.stored_lines() == lines[:200]


async def test_the_same_record_in_other_bytes_is_the_same_record(node: AgentNode, oak: AgentDriver) -> None:
    """A commit may mark the first record of another batch when it is written again; its id stays."""
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 2)
    await stream.send_and_ack(1, lines)
    again = seal_line(lines[0][:-CRC_FIELD_BYTES] + durable_field(0)).rstrip(b"\n")
    assert again != lines[0]
    assert await stream.send_and_ack(1, [again]) == 2


async def test_known_records_are_compared_over_restarts_of_the_node(tmp_path: Path) -> None:
    world, key = World(), SigningKey.generate()
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node, key=key)
        await oak.register()
        stream = await oak.open_evidence()
        lines = stream.progress_lines(1, 5)
        await stream.send_and_ack(1, lines)
    async with agent_node(tmp_path, world) as node:
        stream = await AgentDriver(node, key=key).open_evidence()
        assert await stream.send_and_ack(1, lines) == 5
        assert (await stream.send_and_refusal(2, others(stream, 2, 2))).name == "SequenceConflict"


async def test_what_a_second_stream_stored_meanwhile_is_compared_too(node: AgentNode, oak: AgentDriver) -> None:
    first, second = await oak.open_evidence(), await oak.open_evidence()
    await first.send_and_ack(1, first.progress_lines(1, 3))
    no = await second.send_and_refusal(1, others(second, 1, 3))
    assert (no.name, no.acked_sequence) == ("SequenceConflict", 3)


async def test_two_streams_that_race_with_different_records_store_one_history(
    node: AgentNode, oak: AgentDriver
) -> None:
    """Whoever is second learns of it, whatever the order in which their records get through."""
    first, second = await oak.open_evidence(), await oak.open_evidence()
    ours, theirs = first.progress_lines(1, 40), others(second, 1, 40)

    async def send(stream: EvidenceStreamDriver, lines: list[bytes]) -> str:
        """How it ends: with everything acked, or with a refusal, perhaps while it still sends."""
        try:
            for at in range(0, 40, 5):
                await stream.send(at + 1, lines[at : at + 5])
            while (message := await stream.call.read()).ack.acked_sequence < 40:
                if message.refusal.name == "SequenceConflict":
                    return "refused"
        except grpc.aio.AioRpcError:  # the node has ended the stream while more was written
            return "refused"
        return "all"

    async with asyncio.timeout(20):
        ends = await asyncio.gather(send(first, ours), send(second, theirs))
    assert sorted(ends) == ["all", "refused"]
    assert node.evidence_metrics.conflicts == 1
    kept = await first.stored_lines()
    assert kept in (ours, theirs)


async def test_a_resend_is_not_read_record_by_record(
    node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await oak.open_evidence()
    lines = stream.progress_lines(1, 2_000)
    for at in range(0, 2_000, 100):
        await stream.send_and_ack(at + 1, lines[at : at + 100])
    await node.engine.wait_tables()
    pages = 0
    page = node.world.tables.page

    async def counted(*told: Any, **options: Any) -> Any:
        nonlocal pages
        pages += 1
        return await page(*told, **options)

    monkeypatch.setattr(node.world.tables, "page", counted)
    for at in range(0, 2_000, 200):
        assert await stream.send_and_ack(at + 1, lines[at : at + 200]) == 2_000
    assert pages <= 12
    assert node.evidence_metrics.duplicates == 2_000
