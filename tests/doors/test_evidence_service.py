"""Evidence at the node: stored once and in order, acknowledged when durable, and what it asks for done with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.doors.agents import PATIENCE_S, Hand, HandEvidence, House, housed, refusal, until
from tests.simulated.journal import Fault
from tests.simulated.world import World

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.evidence.marks import EvidenceTaken
from holdfast.doors.grpc import agentdesk, inbox
from holdfast.doors.grpc.evidence import size_of
from holdfast.doors.witness import Tally
from holdfast.wire import acts
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as epb


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
async def oak(house: House) -> Hand:
    oak = Hand(house)
    await oak.register()
    return oak


# ------------------------------------------------------------------------------------------------ hello, mark, records


@pytest.mark.rule("EVD-001", "EVD-002")
async def test_records_are_acked_when_they_are_durable_and_kept_byte_for_byte(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    assert (stream.ack.acked_sequence, stream.ack.credit_bytes) == (0, inbox.CREDIT_BYTES)
    lines = stream.some(1, 5)
    assert await stream.acked(1, lines[:2]) == 2
    assert any(isinstance(event, EvidenceTaken) for event in house.batches()[-1])
    assert await stream.acked(3, lines[2:]) == 5
    assert await stream.kept() == lines
    assert house.evidence.tally.records == 5


@pytest.mark.rule("EVD-002")
async def test_no_ack_comes_before_the_disk_has_the_records(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    house.world.disk.faults = [Fault.HANG]
    await stream.send(1, stream.some(1, 3))
    await until(lambda: house.world.disk.appends_in_flight)
    acking = asyncio.create_task(stream.read("ack"))
    await asyncio.sleep(0.05)
    assert not acking.done()
    house.world.disk.release.set()
    assert (await acking).ack.acked_sequence == 3


@pytest.mark.rule("EVD-001")
async def test_the_node_answers_a_hello_with_its_mark_over_streams_and_restarts(tmp_path: Path) -> None:
    world, key = World(), SigningKey.generate()
    async with housed(tmp_path, world) as house:
        oak = Hand(house, key=key)
        await oak.register()
        stream = await oak.tell()
        lines = stream.some(1, 9)
        await stream.acked(1, lines[:4])
        stream.call.cancel()
        assert (await oak.tell()).ack.acked_sequence == 4
    async with housed(tmp_path, world) as house:
        stream = await Hand(house, key=key).tell()
        assert stream.ack.acked_sequence == 4
        assert await stream.acked(1, lines) == 9  # an agent that has lost its ack sends all of it again
        assert await stream.kept() == lines
        assert house.evidence.tally.duplicates == 4


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(("first", "last", "mark"), [(1, 4, 4), (1, 3, 4), (4, 4, 4), (2, 7, 7), (5, 5, 5)])
async def test_duplicates_are_dropped_and_what_overlaps_is_taken_from_the_mark_on(
    house: House, oak: Hand, first: int, last: int, mark: int
) -> None:
    stream = await oak.tell()
    lines = stream.some(1, 9)
    await stream.acked(1, lines[:4])
    assert await stream.acked(first, lines[first - 1 : last]) == mark
    assert await stream.kept() == lines[:mark]


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize("first", [4, 6, 2**64 - 1])
async def test_a_gap_is_refused_by_name_the_mark_stays_and_the_stream_goes_on(
    house: House, oak: Hand, first: int
) -> None:
    stream = await oak.tell()
    lines = stream.some(1, 3)
    await stream.acked(1, lines[:2])
    no = await stream.refused(first, stream.some(first, first) if first < 100 else [b"{}"])
    assert (no.name, no.rule, no.acked_sequence) == ("EvidenceGap", "EVD-002", 2)
    assert (await stream.read("ack")).ack.acked_sequence == 2
    assert await stream.acked(3, lines[2:]) == 3
    assert await stream.kept() == lines
    assert house.evidence.tally.gaps == 1


@pytest.mark.rule("EVD-002")
async def test_messages_that_piled_up_are_stored_in_one_batch_and_acked_once(
    house: House, oak: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    come = _count_come(monkeypatch)
    stream = await oak.tell()
    lines = stream.some(1, 30)
    house.world.disk.faults = [Fault.HANG]
    await stream.send(1, lines[:1])
    await until(lambda: house.world.disk.appends_in_flight)
    for number in range(2, 31):
        await stream.send(number, [lines[number - 1]])
    await until(lambda: len(come) == 30)
    house.world.disk.release.set()
    assert [(await stream.read("ack")).ack.acked_sequence for _ in range(2)] == [1, 30]
    assert await stream.kept() == lines


def _count_come(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has come in and waits to be stored, or was."""
    come, put = list[Any](), inbox.Inbox.put

    async def counted(box: inbox.Inbox, message: Any) -> None:
        await put(box, message)
        come.append(message)

    monkeypatch.setattr(inbox.Inbox, "put", counted)
    return come


async def test_a_group_is_bounded(house: House, oak: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "GROUP_BYTES_MAX", 600)
    box = inbox.Inbox(size_of, lambda _: None, Tally())
    for size in (100, 400, 300, 5_000, 10):
        await box.put(epb.StreamRequest(records=epb.Records(lines=[bytes(size)])))
    sizes = [[len(each.records.lines[0]) for each in await box.group()] for _ in range(4)]  # type: ignore[union-attr]
    assert sizes == [[100, 400], [300], [5_000], [10]]


async def test_who_sends_beyond_its_credit_waits(house: House, oak: Hand) -> None:
    box = inbox.Inbox(size_of, lambda _: None, house.evidence.tally)
    large = epb.StreamRequest(records=epb.Records(lines=[bytes(inbox.CREDIT_BYTES)]))
    await box.put(large)
    waiting = asyncio.create_task(box.put(large))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert house.evidence.tally.credit_stalls == 1
    await box.group()
    await waiting


async def test_large_batches_are_read_again_from_beside_the_journal(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    lines = stream.lines(1, *(("PROGRESS", {"text": "x" * 3_000}) for _ in range(20)))
    await stream.acked(1, lines[:15])
    await house.engine.projector.drain()
    await stream.acked(16, lines[15:])
    assert await stream.kept() == lines


@pytest.mark.rule("EVD-002")
async def test_two_streams_of_one_session_store_every_record_once(house: House, oak: Hand) -> None:
    first, second = await oak.tell(), await oak.tell()
    lines = first.some(1, 200)

    async def send(stream: HandEvidence, step: int) -> None:
        for at in range(0, 200, step):
            await stream.send(at + 1, lines[at : at + step])
        mark = 0
        while mark < 200:
            message = await stream.call.read()
            mark = max(mark, message.ack.acked_sequence or message.refusal.acked_sequence)

    await asyncio.gather(send(first, 7), send(second, 11))
    assert await first.kept() == lines
    assert house.evidence.tally.records == 200


async def test_an_empty_message_is_answered_with_the_mark(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    assert await stream.acked(1, []) == 0


# ------------------------------------------------------------------------------------------------ hostile


@pytest.mark.rule("EVD-001", "PRV-003")
@pytest.mark.parametrize("wrong", ["signature", "another's channel", "no provider", "session", "key"])
async def test_a_channel_is_opened_by_its_provider_alone(house: House, oak: Hand, wrong: str) -> None:
    ash = Hand(house, "ash")
    tries: dict[str, tuple[Any, str]] = {
        "signature": (oak.tell(signature=bytes(64)), "Unauthorized"),
        "another's channel": (oak.tell(channel_id=ash.id.hex()), "Forbidden"),
        "no provider": (ash.tell(), "NotFound"),
        "session": (oak.tell("../up"), "InvalidParams"),
        "key": (oak.tell(public=ash.key.public), "Unauthorized"),
    }
    for name, (call, expected) in tries.items():
        if name == wrong:
            assert (await refusal(call)).name == expected
        else:
            call.close()
    assert house.engine.state.marks == {}


@pytest.mark.rule("EVD-001")
async def test_a_hello_of_another_stream_opens_none(house: House, oak: Hand) -> None:
    recorded = oak.key.sign(acts.to_sign_hello(bytes(32), oak.id.hex(), "s1"))
    assert (await refusal(oak.tell(signature=recorded))).name == "Unauthorized"


async def test_a_stream_that_does_not_begin_with_hello_or_says_hello_again_is_refused(house: House, oak: Hand) -> None:
    call = oak.evidence_stub.Stream()
    await call.read()
    await call.write(epb.StreamRequest(records=epb.Records()))
    assert (await refusal(call.read())).name == "InvalidRequest"
    stream = await oak.tell()
    await stream.call.write(epb.StreamRequest(hello=epb.Hello()))
    assert (await refusal(stream.call.read())).name == "InvalidRequest"


def unsealed(line: bytes, **changes: Any) -> bytes:
    """The record as v0.1 wrote it, without a CRC, with some fields changed."""
    fields = {key: value for key, value in msgspec.json.decode(line).items() if key != "crc32c"}
    return msgspec.json.encode(dict(reversed(list((fields | changes).items()))))


async def test_records_of_v0_1_without_a_crc_are_taken(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    lines = [unsealed(line) for line in stream.some(1, 3)]
    lines[1] = unsealed(lines[1], sequence="2")
    assert await stream.acked(1, lines) == 3
    assert await stream.kept() == lines


# ------------------------------------------------------------------------------------------------ the end


async def test_closing_ends_idle_streams_by_name_and_waits_for_none(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    await stream.acked(1, stream.some(1, 1))
    async with asyncio.timeout(PATIENCE_S):
        await house.door.close(2 * PATIENCE_S)
    assert (await refusal(stream.call.read())).name == "Unavailable"


async def test_what_was_sent_before_an_agent_said_all_is_stored(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    lines = stream.some(1, 3)
    await stream.send(1, lines)
    await stream.call.done_writing()
    assert (await stream.read("ack")).ack.acked_sequence == 3
    assert await stream.kept() == lines


@pytest.mark.rule("SEC-001")
async def test_a_stream_of_evidence_whose_challenge_nobody_answers_is_let_go(
    house: House, oak: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agentdesk, "ANSWER_S", 0.05)
    call = oak.evidence_stub.Stream()
    await call.read()
    assert (await refusal(call.read())).name == "InvalidRequest"
