"""The agent's evidence when its channel is full: work waits, a stop does not, and with room it goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.agent.house import comes

from holdfast.adapters.clock import MachineClock
from holdfast.agent.backoff import Backoff
from holdfast.agent.delivery import Delivery
from holdfast.agent.shipper import Shipper
from holdfast.agent.tongue import Hello, Mark
from holdfast.spool import Batch, Corrupt, Refused, Spool, SpoolPolicy, Ticket

CHANNEL = "oak"
SMALL = SpoolPolicy(channel_bytes_max=20_000, reserve_bytes=2_000)
CREDIT = 1 << 20


class Taking:
    """A receiver that acks whatever it is told; with `is_deaf` it never answers."""

    def __init__(self, *, is_deaf: bool = False) -> None:
        self._is_deaf, self._acks = is_deaf, asyncio.Queue[int]()

    async def greet(self, hello: Hello) -> Mark:
        if self._is_deaf:
            await asyncio.Event().wait()
        return Mark(hello.first_available - 1, CREDIT)

    async def say(self, first: int, lines: list[bytes]) -> None:
        self._acks.put_nowait(first + len(lines) - 1)

    async def hear(self) -> Mark:
        return Mark(await self._acks.get(), CREDIT)

    def end(self) -> None:
        return


class Slow(Taking):
    """It answers only when its sender has met the hole."""

    def __init__(self, is_met: Callable[[], bool]) -> None:
        super().__init__()
        self._is_met = is_met

    async def hear(self) -> Mark:
        await comes(self._is_met)
        return await super().hear()


class Ahead(Taking):
    """It has got the rest of it on the stream before, and says so with its first ack."""

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool, self.told = spool, list[int]()

    async def greet(self, hello: Hello) -> Mark:
        return Mark(0, 700)

    async def say(self, first: int, lines: list[bytes]) -> None:
        self.told.append(first)
        self._acks.put_nowait(max(12, first + len(lines) - 1))
        await comes(lambda: self._spool.first_available > 3, "what was acked is let go of")


def shipper(root: Path, *, is_deaf: bool = False) -> Shipper:
    def deliver(session: str, spool: Spool) -> Delivery:
        return Delivery(CHANNEL, session, spool, lambda: Taking(is_deaf=is_deaf), Backoff(1, 5, Random(5).randrange))

    return Shipper(root, CHANNEL, deliver, MachineClock(), SMALL)


def fill(spool: Spool) -> None:
    """Until the channel is full and has said so."""
    while not isinstance(answer := spool.emit("PROGRESS", {"text": "x" * 1_000}), Refused):
        assert isinstance(answer, Ticket)
        answer.wait(60)
    assert answer.name == "SpoolFull"


@pytest.mark.rule("SP-RET-003", "EVD-005")
async def test_an_agent_whose_channel_is_full_can_still_be_stopped(tmp_path: Path) -> None:
    ours = shipper(tmp_path, is_deaf=True)
    await ours.open()
    ours.deliver()
    [(_, spool)] = ours.opened()
    await asyncio.to_thread(fill, spool)
    async with asyncio.timeout(60):
        await ours.close("STOPPED", flush_ms=50)
    again = Spool.open(CHANNEL, spool.place.session, root=tmp_path, policy=SMALL)
    assert isinstance(again, Spool)
    refused = again.emit("PROGRESS", {})
    assert isinstance(refused, Refused)
    assert refused.name == "SessionFinished"  # full, or stopped: it has an end
    again.close()


@pytest.mark.rule("SP-RET-003")
async def test_an_agent_that_began_with_a_full_channel_takes_work_when_enough_of_it_is_delivered(
    tmp_path: Path,
) -> None:
    old = Spool.open(CHANNEL, "000000000000001", root=tmp_path, policy=SMALL)
    assert isinstance(old, Spool)
    await asyncio.to_thread(fill, old)
    await asyncio.to_thread(old.close)
    ours = shipper(tmp_path)
    await ours.open()
    assert not ours.is_ready
    ours.deliver()
    await comes(lambda: ours.is_ready, "a session that takes records")
    await ours.emit("PROGRESS", {})
    await ours.close("STOPPED", flush_ms=5_000)


@pytest.mark.rule("SP-ACK-004", "EVD-001")
async def test_what_was_acked_and_let_go_of_while_it_was_about_to_be_read_is_no_hole(tmp_path: Path) -> None:
    spool = Spool.open(CHANNEL, "s1", root=tmp_path, segment_bytes=1_000)
    assert isinstance(spool, Spool)
    for n in range(20):
        ticket = spool.emit("PROGRESS", {"number": n})
        assert isinstance(ticket, Ticket)
        await ticket
    talk = Ahead(spool)
    delivery = Delivery(CHANNEL, "s1", spool, lambda: talk, Backoff(1, 5, Random(5).randrange))
    async with asyncio.timeout(60):
        await delivery.run(MachineClock(), until_delivered=True)
    assert (delivery.stuck, delivery.tally.gaps, delivery.tally.streams) == ("", 0, 1)
    assert spool.acked_sequence == 20
    assert talk.told[0] == 1
    assert min(talk.told[1:]) > 12
    await spool.aclose()


@pytest.mark.rule("EVD-004", "SP-CRASH-002")
async def test_what_stands_before_a_hole_is_delivered_however_long_its_ack_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool.open(CHANNEL, "s1", root=tmp_path)
    assert isinstance(spool, Spool)
    for n in range(3):
        ticket = spool.emit("PROGRESS", {"number": n})
        assert isinstance(ticket, Ticket)
        await ticket
    await spool.aclose()
    (file,) = (tmp_path / CHANNEL).glob("*.spool.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"#" * (len(lines[1]) - 1) + b"\n" + lines[2])
    again = Spool.open(CHANNEL, "s1", root=tmp_path)
    assert isinstance(again, Spool)
    batches, met = again.batches, list[Corrupt]()

    def noting(after: int | None = None) -> Iterator[Batch]:
        try:
            yield from batches(after)
        except Corrupt as hole:
            met.append(hole)
            raise

    monkeypatch.setattr(again, "batches", noting)
    delivery = Delivery(CHANNEL, "s1", again, lambda: Slow(lambda: bool(met)), Backoff(1, 5, Random(5).randrange))
    async with asyncio.timeout(60):
        await delivery.run(MachineClock(), until_delivered=True)
    assert "record 2 is damaged" in delivery.stuck
    assert again.acked_sequence == 1
    await again.aclose()
