"""Peers that mean harm or take no care: refused by name, within bounds, and a thousand idle ones cost little."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.doors.agents import PATIENCE_S, Hand, House, housed, refusal, until
from tests.doors.legacy_sender import Air
from tests.simulated.journal import Fault

from holdfast.doors.grpc import inbox
from holdfast.doors.grpc.evidence import size_of
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.doors.records import LINE_BYTES_MAX
from holdfast.doors.witness import Tally
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb

pytestmark = pytest.mark.rule("SEC-001")
RSS = Path("/proc/self/status")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
async def oak(house: House) -> Hand:
    oak = Hand(house)
    await oak.register()
    return oak


@pytest.mark.parametrize("over", [-1, 0, 1])
async def test_a_record_may_be_so_large_and_not_a_byte_larger(house: House, oak: Hand, over: int) -> None:
    stream = await oak.tell()
    (line,) = stream.lines(1, ("PROGRESS", {"text": ""}))
    (large,) = stream.lines(1, ("PROGRESS", {"text": "x" * (LINE_BYTES_MAX - len(line) + over)}))
    assert len(large) == LINE_BYTES_MAX + over
    assert await stream.acked(1, [large]) == 1
    assert [letter.name for letter in house.engine.state.letters.values()] == (["TooLarge"] if over > 0 else [])


async def test_a_message_beyond_the_doors_limit_ends_the_stream_by_name(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    most = GrpcSettings().message_bytes_max
    await stream.send(1, [bytes(most)])
    no = await refusal(stream.call.read())
    assert (no.code, no.name) == ("RESOURCE_EXHAUSTED", "TooLarge")
    assert house.engine.state.marks == {}
    air = Air(house)
    older = await air.greeted()
    await older.say(air.message(1, event_uuid="u" * most))
    assert (await older.ended()).name == "TooLarge"


async def test_bytes_that_are_no_message_end_the_stream_by_name(house: House) -> None:
    method = house.channel.stream_stream("/retrovue.evidence.v1.ExecutionEvidenceService/EvidenceStream")
    call = method()
    await call.write(b"\xff\xff\xff")
    assert (await refusal(call.read())).name == "ParseError"


async def test_sequences_that_jump_move_nothing(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    for first in (2, 3, 2**32, 2**63, 2**64 - 1):
        no = await stream.refused(first, [b"x"])
        assert (no.name, no.acked_sequence) == ("EvidenceGap", 0)
        assert (await stream.read("ack")).ack.acked_sequence == 0
    no = await stream.refused(0, [b"x"])
    assert (no.name, no.acked_sequence) == ("InvalidParams", 0)
    assert house.engine.state.marks == {}


async def test_a_hello_that_boasts_moves_nothing(house: House, oak: Hand) -> None:
    stream = await oak.tell(last_sequence_emitted=2**64 - 1, first_sequence_available=2**64 - 1)
    assert stream.ack.acked_sequence == 0
    assert house.witness.lags() == [2**64 - 1]
    assert (await Air(house).greeted(2**64 - 1)).mark == 0


async def test_who_sends_without_waiting_fills_no_memory(house: House, oak: Hand) -> None:
    """While the disk hangs, the node takes its credit and then reads no more: what is sent waits at the sender's."""
    stream = await oak.tell()
    lines = stream.lines(1, *(("PROGRESS", {"text": "x" * 100_000}) for _ in range(300)))
    sent = 0

    async def pour() -> None:
        nonlocal sent
        for sequence, line in enumerate(lines, start=1):
            await stream.send(sequence, [line])
            sent += len(line)

    house.world.disk.faults = [Fault.HANG]
    pouring = asyncio.create_task(pour())
    try:
        await until(lambda: house.world.disk.appends_in_flight and house.witness.tally.credit_stalls)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < sum(map(len, lines)) / 2, "the rest did not get through"
        assert not pouring.done()
    finally:
        house.world.disk.release.set()
    await pouring
    mark = 0
    while mark < 300:
        mark = (await stream.read("ack")).ack.acked_sequence
    assert await stream.kept() == lines


async def test_who_takes_no_acks_is_let_go_of_and_holds_up_nobody(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "WRITE_S", 0.3)
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    air = Air(house, channel="c" * 128, session="s" * 128)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{house.door.port}", options=narrow) as channel:
        stream = air.connect(channel)
        pouring = asyncio.create_task(stream.say(*[air.hello()] * 20_000))
        try:
            async with asyncio.timeout(30):
                while house.witness.tally.turned_away == 0:
                    await asyncio.sleep(0.05)
            assert house.witness.streams == 0
            assert (await Air(house).greeted()).mark == 0, "another one is served meanwhile"
            async with asyncio.timeout(PATIENCE_S):
                await house.door.close(0)
        finally:
            pouring.cancel()


async def test_a_thousand_idle_channels_need_no_thread_and_little_memory(house: House) -> None:
    """Their clients are in this process, too, so the bound is on both sides together."""
    threads, before = threading.active_count(), resident_kib()
    streams = []
    for number in range(1_000):
        air = Air(house, channel=f"c{number}")
        streams.append(stream := air.connect())
        await stream.say(air.message(1))
    for stream in streams:
        await stream.until(1)
    gc.collect()
    grown, began = resident_kib() - before, threading.active_count() - threads
    assert house.witness.streams == 1_000
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
    box = inbox.Inbox(size_of, lambda _: None, Tally())
    many, empty = 200_000, pb.StreamRequest(records=pb.Records(first_sequence=1))

    async def pour() -> None:
        for _ in range(many):
            await box.put(empty)

    pouring = asyncio.create_task(pour())
    await asyncio.sleep(0)
    assert not pouring.done(), "they are all in memory"
    taken = 0
    while taken < many:
        group = await box.group()
        assert isinstance(group, list)
        taken += len(group)
        await asyncio.sleep(0)
    await pouring
