"""What comes again: nothing happens where it is the same record, and another under its sequence is a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.doors.agents import Hand, HandEvidence, House, housed, refusal
from tests.simulated.world import World

from holdfast.adapters.keys.signing import SigningKey
from holdfast.spool.record import Encoder, marked

pytestmark = pytest.mark.rule("EVD-003")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
async def oak(house: House) -> Hand:
    oak = Hand(house)
    await oak.register()
    return oak


def others(stream: HandEvidence, first: int, last: int) -> list[bytes]:
    """Records with the same sequences, drawn by another life of the sender."""
    encoder = Encoder(stream.channel, stream.session, bytes(range(16, 32)))
    return [encoder.line(n, 1_000_000, '"PROGRESS"', b"{}").rstrip(b"\n") for n in range(first, last + 1)]


@pytest.mark.parametrize("is_projected", [True, False], ids=["from the tables", "from the journal"])
@pytest.mark.parametrize(("first", "last", "named"), [(1, 4, 1), (4, 4, 4), (2, 9, 2), (3, 3, 3)])
async def test_another_record_under_a_known_sequence_is_a_conflict_and_the_ack_stays(
    house: House, oak: Hand, first: int, last: int, named: int, is_projected: bool
) -> None:
    stream = await oak.tell()
    lines = stream.some(1, 4)
    await stream.acked(1, lines[:3])
    await stream.acked(4, lines[3:])
    if is_projected:
        await house.engine.projector.drain()
    no = await stream.refused(first, others(stream, first, last))
    assert (no.name, no.rule, no.acked_sequence) == ("SequenceConflict", "EVD-003", 4)
    assert no.says.endswith(f"{named} is stored with another event_uuid")
    assert (await refusal(stream.call.read())).code == "ALREADY_EXISTS"
    assert await stream.kept() == lines
    assert house.evidence.tally.conflicts == 1


async def test_one_other_record_among_known_ones_is_found_and_nothing_behind_it_is_taken(
    house: House, oak: Hand
) -> None:
    stream = await oak.tell()
    lines = stream.some(1, 300)
    await stream.acked(1, lines[:200])
    sent = [*lines[:150], *others(stream, 151, 151), *lines[151:]]
    no = await stream.refused(1, sent)
    assert (no.name, no.acked_sequence) == ("SequenceConflict", 200)
    assert await stream.kept() == lines[:200]


async def test_the_same_record_in_other_bytes_is_the_same_record(house: House, oak: Hand) -> None:
    """A commit may mark the first record of another batch when it is written again; its id stays."""
    stream = await oak.tell()
    lines = stream.some(1, 2)
    await stream.acked(1, lines)
    again = marked(lines[0] + b"\n", 0).rstrip(b"\n")
    assert again != lines[0]
    assert await stream.acked(1, [again]) == 2


async def test_known_records_are_compared_over_restarts_of_the_node(tmp_path: Path) -> None:
    world, key = World(), SigningKey.generate()
    async with housed(tmp_path, world) as house:
        oak = Hand(house, key=key)
        await oak.register()
        stream = await oak.tell()
        lines = stream.some(1, 5)
        await stream.acked(1, lines)
    async with housed(tmp_path, world) as house:
        stream = await Hand(house, key=key).tell()
        assert await stream.acked(1, lines) == 5
        assert (await stream.refused(2, others(stream, 2, 2))).name == "SequenceConflict"


async def test_what_a_second_stream_stored_meanwhile_is_compared_too(house: House, oak: Hand) -> None:
    first, second = await oak.tell(), await oak.tell()
    await first.acked(1, first.some(1, 3))
    no = await second.refused(1, others(second, 1, 3))
    assert (no.name, no.acked_sequence) == ("SequenceConflict", 3)


async def test_two_streams_that_race_with_different_records_store_one_history(house: House, oak: Hand) -> None:
    """Whoever is second learns of it, whatever the order in which their records get through."""
    first, second = await oak.tell(), await oak.tell()
    ours, theirs = first.some(1, 40), others(second, 1, 40)

    async def send(stream: HandEvidence, lines: list[bytes]) -> str:
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
    assert house.evidence.tally.conflicts == 1
    kept = await first.kept()
    assert kept in (ours, theirs)


async def test_a_resend_is_not_read_record_by_record(house: House, oak: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = await oak.tell()
    lines = stream.some(1, 2_000)
    for at in range(0, 2_000, 100):
        await stream.acked(at + 1, lines[at : at + 100])
    await house.engine.projector.drain()
    pages = 0
    page = house.world.tables.page

    async def counted(*told: Any) -> Any:
        nonlocal pages
        pages += 1
        return await page(*told)

    monkeypatch.setattr(house.world.tables, "page", counted)
    for at in range(0, 2_000, 200):
        assert await stream.acked(at + 1, lines[at : at + 200]) == 2_000
    assert pages <= 12
    assert house.evidence.tally.duplicates == 2_000
