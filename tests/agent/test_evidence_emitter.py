"""The agent's evidence when its channel is full: work waits, a stop does not, and with room it goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.agent.in_process_agent import wait_until

from holdfast.adapters.clock import MachineClock
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter, SpooledAt
from holdfast.shipping.backoff import Backoff
from holdfast.shipping.evidence_transport import Hello, ReceiverAck
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool import Corrupt, RecordBatch, Refused, Spool, SpoolPolicy, Ticket

CHANNEL = "oak"
SMALL = SpoolPolicy(channel_bytes_max=20_000, reserve_bytes=2_000)
CREDIT = 1 << 20


class AckingStream:
    """A receiver that acks whatever it is told; with `is_deaf` it never answers."""

    def __init__(self, *, is_unresponsive: bool = False) -> None:
        self._is_unresponsive, self._acks = is_unresponsive, asyncio.Queue[int]()

    async def handshake(self, hello: Hello) -> ReceiverAck:
        if self._is_unresponsive:
            await asyncio.Event().wait()
        return ReceiverAck(hello.first_available - 1, CREDIT)

    async def send(self, first: int, lines: list[bytes]) -> None:
        self._acks.put_nowait(first + len(lines) - 1)

    async def receive(self) -> ReceiverAck:
        return ReceiverAck(await self._acks.get(), CREDIT)

    def end(self) -> None:
        return


class DelayedAckStream(AckingStream):
    """It answers only when its sender has met the hole."""

    def __init__(self, may_ack: Callable[[], bool]) -> None:
        super().__init__()
        self._may_ack = may_ack

    async def receive(self) -> ReceiverAck:
        await wait_until(self._may_ack)
        return await super().receive()


class AckAheadStream(AckingStream):
    """It has got the rest of it on the stream before, and says so with its first ack."""

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool, self.first_sequences = spool, list[int]()

    async def handshake(self, hello: Hello) -> ReceiverAck:
        return ReceiverAck(0, 700)

    async def send(self, first: int, lines: list[bytes]) -> None:
        self.first_sequences.append(first)
        self._acks.put_nowait(max(12, first + len(lines) - 1))
        await wait_until(lambda: self._spool.first_available > 3, "what was acked is let go of")


def make_emitter(root: Path, *, is_unresponsive: bool = False) -> EvidenceEmitter:
    def deliver(session: str, spool: Spool) -> SessionSender:
        return SessionSender(
            channel=CHANNEL,
            session=session,
            spool=spool,
            open_stream=lambda: AckingStream(is_unresponsive=is_unresponsive),
            backoff=Backoff(1, 5, Random(5).randrange),
        )

    return EvidenceEmitter(root, CHANNEL, deliver, MachineClock(), SMALL)


def fill_channel(spool: Spool) -> None:
    """Until the channel is full and has said so."""
    while not isinstance(answer := spool.emit("PROGRESS", {"text": "x" * 1_000}), Refused):
        assert isinstance(answer, Ticket)
        answer.wait(60)
    assert answer.name == "SpoolFull"


@pytest.mark.rule("SP-RET-003", "EVD-005")
async def test_an_agent_whose_channel_is_full_can_still_be_stopped(tmp_path: Path) -> None:
    ours = make_emitter(tmp_path, is_unresponsive=True)
    await ours.open()
    ours.start_delivery()
    [(_, spool)] = ours.open_sessions()
    await asyncio.to_thread(fill_channel, spool)
    async with asyncio.timeout(60):
        await ours.close("STOPPED", flush_ms=50)
    again = Spool.open(CHANNEL, spool.paths.session, root=tmp_path, policy=SMALL)
    assert isinstance(again, Spool)
    refused = again.emit("PROGRESS", {})
    assert isinstance(refused, Refused)
    assert refused.name == "SessionFinished"  # full, or stopped: it has an end
    again.close()


@pytest.mark.rule("SP-RET-003")
async def test_an_agent_whose_channel_becomes_full_offers_no_slots(tmp_path: Path) -> None:
    """Else it is offered lease after lease, and declines each of them."""
    ours = make_emitter(tmp_path, is_unresponsive=True)
    await ours.open()
    ours.start_delivery()
    assert ours.is_ready
    [(_, spool)] = ours.open_sessions()
    await asyncio.to_thread(fill_channel, spool)
    await wait_until(lambda: not ours.is_ready, "it is known to be full")
    await ours.close("STOPPED", flush_ms=50)


@pytest.mark.rule("SP-RET-003")
async def test_an_agent_that_began_with_a_full_channel_takes_work_when_enough_of_it_is_delivered(
    tmp_path: Path,
) -> None:
    old = Spool.open(CHANNEL, "000000000000001", root=tmp_path, policy=SMALL)
    assert isinstance(old, Spool)
    await asyncio.to_thread(fill_channel, old)
    await asyncio.to_thread(old.close)
    ours = make_emitter(tmp_path)
    await ours.open()
    assert not ours.is_ready
    ours.start_delivery()
    await wait_until(lambda: ours.is_ready, "a session that takes records")
    await ours.emit("PROGRESS", {})
    await ours.close("STOPPED", flush_ms=5_000)


@pytest.mark.rule("SP-ACK-004", "EVD-001")
async def test_what_was_acked_and_deleted_while_it_was_about_to_be_read_is_no_hole(tmp_path: Path) -> None:
    spool = Spool.open(CHANNEL, "s1", root=tmp_path, segment_bytes=1_000)
    assert isinstance(spool, Spool)
    for n in range(20):
        ticket = spool.emit("PROGRESS", {"number": n})
        assert isinstance(ticket, Ticket)
        await ticket
    stream = AckAheadStream(spool)
    sender = SessionSender(
        channel=CHANNEL,
        session="s1",
        spool=spool,
        open_stream=lambda: stream,
        backoff=Backoff(1, 5, Random(5).randrange),
    )
    async with asyncio.timeout(60):
        await sender.run(MachineClock(), until_delivered=True)
    assert (sender.stuck_reason, sender.metrics.gaps, sender.metrics.streams) == ("", 0, 1)
    assert spool.acked_sequence == 20
    assert stream.first_sequences[0] == 1
    assert min(stream.first_sequences[1:]) > 12
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

    def noting(after: int | None = None) -> Iterator[RecordBatch]:
        try:
            yield from batches(after)
        except Corrupt as hole:
            met.append(hole)
            raise

    monkeypatch.setattr(again, "batches", noting)
    sender = SessionSender(
        channel=CHANNEL,
        session="s1",
        spool=again,
        open_stream=lambda: DelayedAckStream(lambda: bool(met)),
        backoff=Backoff(1, 5, Random(5).randrange),
    )
    async with asyncio.timeout(60):
        await sender.run(MachineClock(), until_delivered=True)
    assert "record 2 is damaged" in sender.stuck_reason
    assert again.acked_sequence == 1
    await again.aclose()


def make_session(root: Path, number: int, *, is_delivered: bool, is_ended: bool) -> Spool:
    """A session with an acceptance, as a process has it before it is killed."""
    spool = Spool.open(CHANNEL, f"{number:015d}", root=root, policy=SMALL)
    assert isinstance(spool, Spool)
    tickets = [spool.emit("LEASE_ACCEPTED", {}), *([spool.emit("CHANNEL_TERMINATED", {})] if is_ended else [])]
    for ticket in tickets:
        assert isinstance(ticket, Ticket)
        ticket.wait(60)
    if is_delivered:
        spool.ack(len(tickets))
    return spool


@pytest.mark.rule("EVD-005", "EVD-006")
async def test_a_start_reads_every_session_that_a_killed_process_has_left_before_it_deletes_any(tmp_path: Path) -> None:
    """Where its disk was full, leases were accepted in a session that was ended and delivered."""
    made = [
        make_session(tmp_path, 1, is_delivered=True, is_ended=False),
        make_session(tmp_path, 2, is_delivered=True, is_ended=True),
        make_session(tmp_path, 3, is_delivered=True, is_ended=True),
        make_session(tmp_path, 4, is_delivered=False, is_ended=False),
    ]
    for spool in made:
        await spool.aclose()
    read, ours = set[str](), make_emitter(tmp_path)
    await ours.open(lambda at, _: read.add(at.session))
    assert read == {f"{number:015d}" for number in (1, 2, 3, 4)}
    await ours.delete_ended(needed=["000000000000002"])
    left = {path.name[:15] for path in (tmp_path / CHANNEL).iterdir() if path.name.endswith(".jsonl")}
    assert left == {f"{number:015d}" for number in (1, 2, 4)} | {ours.live_session}
    await ours.close("STOPPED", flush_ms=50)


@pytest.mark.rule("EVD-006")
async def test_a_session_that_holds_an_offer_is_not_deleted_when_it_is_delivered(tmp_path: Path) -> None:
    for spool in [make_session(tmp_path, number, is_delivered=False, is_ended=True) for number in (1, 2)]:
        await spool.aclose()
    ours = make_emitter(tmp_path)
    await ours.open()
    ours.hold(SpooledAt("000000000000001", 1))
    ours.start_delivery()
    await wait_until(lambda: not ours.backlog.senders, "both are delivered")
    await wait_until(lambda: not list((tmp_path / CHANNEL).glob("000000000000002*.jsonl")), "one is deleted")
    assert list((tmp_path / CHANNEL).glob("000000000000001*.jsonl"))
    await ours.close("STOPPED", flush_ms=5_000)
