"""A standalone outbox that ships to a v0.1 receiver: nothing lost, nothing skipped, no false ack accepted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.in_process_agent import PATIENCE_S, wait_until
from tests.shipping.retrovue_receiver import RetrovueReceiver
from tests.spool.spools import FaultyDisk
from tests.spool.v01_writer import line_of

from holdfast.shipping.background_shipper import BackgroundShipper, ship
from holdfast.spool import Refused, Spool
from holdfast.spool.files.disk import Disk

CHANNEL = "classic-1"
StartShipping = Callable[..., tuple[Spool, BackgroundShipper]]


@pytest.fixture
async def receiver() -> AsyncIterator[RetrovueReceiver]:
    made = RetrovueReceiver()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def shipped(tmp_path: Path, receiver: RetrovueReceiver) -> AsyncIterator[StartShipping]:
    """A spool and its way to the receiver; both are let go of at the end."""
    made: list[tuple[Spool, BackgroundShipper]] = []

    def begin(session: str = "s1", disk: Disk | None = None, **told: Any) -> tuple[Spool, BackgroundShipper]:
        spool = open_spool(tmp_path, session, disk)
        shipping = ship(spool, f"127.0.0.1:{receiver.port}", protocol="retrovue", **told)
        assert isinstance(shipping, BackgroundShipper)
        made.append((spool, shipping))
        return spool, shipping

    yield begin
    for spool, shipping in made:
        await asyncio.to_thread(shipping.close)
        spool.close()


def open_spool(root: Path, session: str, disk: Disk | None = None) -> Spool:
    spool = Spool.open(CHANNEL, session, root=root, disk=disk)
    assert isinstance(spool, Spool)
    return spool


def emit(spool: Spool, count: int) -> None:
    for n in range(count):
        assert not isinstance(spool.emit("SEGMENT_END", {"block_id": f"b-{n}", "status": "AIRED"}), Refused)


@pytest.mark.rule("EVD-004", "SP-ACK-004")
async def test_a_v01_receiver_gets_all_records_in_order_through_cuts(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    spool, _ = shipped()
    for round_ in range(1, 6):
        receiver.cut_after = 7
        emit(spool, 20)
        await wait_until(lambda: receiver.cut_after is None, "the stream was cut")
        await wait_until(lambda: spool.acked_sequence == 20 * round_)  # noqa: B023
    assert receiver.sequences((CHANNEL, "s1")) == list(range(1, 101))
    assert len(receiver.hellos) >= 5


@pytest.mark.rule("SP-ACK-004")
async def test_0_from_a_v01_receiver_means_unknown_and_replay_begins_above_our_own_ack(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    spool, shipping = shipped()
    emit(spool, 10)
    await wait_until(lambda: spool.acked_sequence == 10)
    await asyncio.to_thread(shipping.close)
    repeated = receiver.repeated
    again = ship(spool, f"127.0.0.1:{receiver.port}", protocol="retrovue")
    assert isinstance(again, BackgroundShipper)
    emit(spool, 5)
    await wait_until(lambda: spool.acked_sequence == 15)
    await asyncio.to_thread(again.close)
    assert receiver.sequences((CHANNEL, "s1")) == list(range(1, 16))
    assert receiver.repeated == repeated, "nothing that was acked is sent again"
    assert [hello.hello.last_sequence_emitted for hello in receiver.hellos][-1] >= 10


@pytest.mark.rule("SP-ACK-004")
async def test_a_v01_receiver_that_lost_what_it_acked_is_reported_to_the_operator(
    receiver: RetrovueReceiver, shipped: StartShipping, capfd: pytest.CaptureFixture[str]
) -> None:
    spool, shipping = shipped()
    emit(spool, 10)
    await wait_until(lambda: spool.acked_sequence == 10)
    receiver.kept.clear()
    emit(spool, 5)
    await wait_until(lambda: "gap: 11 after 0" in shipping.stuck_reason)
    assert spool.acked_sequence == 10, "no ack is made up"
    assert receiver.sequences((CHANNEL, "s1")) == []
    logged = capfd.readouterr()  # where to is a matter of the process's settings
    assert "evidence_undeliverable" in logged.out + logged.err


@pytest.mark.rule("SP-ACK-001")
async def test_an_ack_above_what_was_sent_is_a_protocol_error_and_is_not_stored(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    receiver.ahead = 1_000
    spool, shipping = shipped()
    emit(spool, 10)
    await wait_until(lambda: len(receiver.hellos) >= 3, "the stream is cut and opened anew")
    assert spool.acked_sequence == 0
    receiver.ahead = 0
    await wait_until(lambda: spool.acked_sequence == 10)
    assert shipping.metrics.refusals["AckAhead"] >= 2


@pytest.mark.rule("SP-ACK-001")
async def test_an_ack_for_another_session_moves_nothing(receiver: RetrovueReceiver, shipped: StartShipping) -> None:
    receiver.stranger = True
    spool, _ = shipped()
    emit(spool, 3)
    await wait_until(lambda: len(receiver.hellos) >= 2)
    assert spool.acked_sequence == 0
    receiver.stranger = False
    await wait_until(lambda: spool.acked_sequence == 3)


@pytest.mark.rule("EVD-004")
async def test_a_stream_whose_acks_stand_still_is_closed_and_opened_again(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    receiver.is_silent = True
    spool, shipping = shipped(ack_stall_ms=100)
    emit(spool, 5)
    await wait_until(lambda: shipping.metrics.ack_stalls >= 2)
    receiver.is_silent = False
    await wait_until(lambda: spool.acked_sequence == 5)
    assert receiver.sequences((CHANNEL, "s1")) == [1, 2, 3, 4, 5]


@pytest.mark.rule("EVD-004")
async def test_an_idle_stream_is_not_cut_however_long_it_is_idle(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    def hellos(session: str) -> int:
        return [each.playout_session_id for each in receiver.hellos].count(session)

    spool, shipping = shipped(ack_stall_ms=250)
    emit(spool, 1)
    await wait_until(lambda: spool.acked_sequence == 1)
    until_idle = hellos("s1"), shipping.metrics.ack_stalls  # none, but where the machine itself stood still
    watched, _ = shipped("s2", ack_stall_ms=250)  # a second one goes on beside it, as the measure of time
    receiver.is_silent = True
    emit(watched, 1)
    await wait_until(lambda: hellos("s2") >= 3)
    receiver.is_silent = False
    assert (hellos("s1"), shipping.metrics.ack_stalls) == until_idle


@pytest.mark.rule("EVD-004")
async def test_older_sessions_of_the_channel_are_shipped_oldest_first_beside_the_open_one(
    tmp_path: Path, receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    for name in ("z-first", "a-second"):  # by age, not by name
        old = open_spool(tmp_path, name)
        emit(old, 4)
        old.close()
    spool, shipping = shipped("live")
    emit(spool, 2)
    assert await asyncio.to_thread(shipping.flush, PATIENCE_S)
    order = [hello.playout_session_id for hello in receiver.hellos]
    assert order.index("z-first") < order.index("a-second")
    assert {whose[1]: len(lines) for whose, lines in receiver.kept.items()} == {"z-first": 4, "a-second": 4, "live": 2}


@pytest.mark.rule("EVD-004")
async def test_an_older_session_that_cannot_be_opened_keeps_no_other_one(
    tmp_path: Path, receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    for name in ("z-first", "a-second"):
        old = open_spool(tmp_path, name)
        emit(old, 4)
        old.close()
    lock = tmp_path / CHANNEL / "z-first.lock"
    lock.unlink()
    lock.mkdir()  # nobody can hold it
    _, shipping = shipped("live")
    delivery = await asyncio.to_thread(shipping.flush, PATIENCE_S)
    assert receiver.sequences((CHANNEL, "a-second")) == [1, 2, 3, 4]
    assert (bool(delivery), delivery.undelivered_sessions) == (False, ("z-first",))


@pytest.mark.rule("EVD-009")
async def test_a_record_that_v01_cannot_express_is_reported_and_never_passed_over(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    spool, shipping = shipped()
    emit(spool, 2)
    spool.emit("LEASE_ACCEPTED", {"lease_id": "00"})
    emit(spool, 2)
    await wait_until(lambda: "record 3 cannot be sent as v0.1" in shipping.stuck_reason)
    await wait_until(lambda: receiver.sequences((CHANNEL, "s1")) == [1, 2])
    assert spool.acked_sequence <= 2


@pytest.mark.rule("EVD-004")
async def test_close_waits_for_what_was_emitted_and_returns_what_was_delivered(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    """A record that was emitted just before is not spooled yet: it is waited for all the same."""
    spool, shipping = shipped()
    for number in range(1, 6):
        emit(spool, 10)
        flushed = await asyncio.to_thread(shipping.flush, PATIENCE_S)
        assert (flushed.emitted, flushed.delivered) == (10 * number, 10 * number)
    emit(spool, 10)
    delivery = await asyncio.to_thread(shipping.close, PATIENCE_S)
    assert (delivery.emitted, delivery.delivered, bool(delivery)) == (60, 60, True)
    assert len(receiver.sequences((CHANNEL, "s1"))) == 60


@pytest.mark.rule("EVD-004")
async def test_close_tells_what_a_receiver_that_is_gone_does_not_have(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    spool, shipping = shipped()
    emit(spool, 3)
    assert await asyncio.to_thread(shipping.flush, PATIENCE_S)
    receiver.is_silent = True
    emit(spool, 4)
    delivery = await asyncio.to_thread(shipping.close, 0.2)
    assert (delivery.emitted, delivery.delivered, bool(delivery)) == (7, 3, False)


@pytest.mark.rule("EVD-004")
async def test_close_counts_what_was_emitted_while_the_disk_hangs(
    receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    disk = FaultyDisk()
    spool, shipping = shipped(disk=disk)
    disk.gate = threading.Event()
    emit(spool, 3)
    delivery = await asyncio.to_thread(shipping.close, 0.05)
    disk.gate.set()
    assert (delivery.emitted, delivery.delivered, bool(delivery)) == (3, 0, False)


@pytest.mark.rule("EVD-004")
async def test_close_tells_of_older_sessions_that_it_had_no_time_to_look_for(
    shipped: StartShipping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short-lived process must not be told that nothing is left because nobody has looked yet."""
    old = open_spool(tmp_path, "older")
    emit(old, 3)
    old.close()

    async def never(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(BackgroundShipper, "_run_backlog", never)
    _, shipping = shipped("live")
    delivery = await asyncio.to_thread(shipping.close)
    assert (bool(delivery), delivery.undelivered_sessions) == (False, ("older",))


@pytest.mark.rule("SP-OWN-001")
async def test_sessions_of_other_programs_in_the_channel_are_not_touched(
    tmp_path: Path, receiver: RetrovueReceiver, shipped: StartShipping
) -> None:
    folder = tmp_path / CHANNEL
    folder.mkdir()
    raw = b"".join(line_of(CHANNEL, "theirs", n) for n in range(1, 4)) + b'{"half'
    (folder / "theirs.spool.jsonl").write_bytes(raw)
    spool, shipping = shipped("live")
    emit(spool, 2)
    assert await asyncio.to_thread(shipping.flush, PATIENCE_S)
    assert (folder / "theirs.spool.jsonl").read_bytes() == raw
    assert sorted(path.name for path in folder.glob("theirs*")) == ["theirs.spool.jsonl"]
    assert receiver.sequences((CHANNEL, "theirs")) == []


def test_a_protocol_that_is_none_and_one_without_its_key_are_refused(tmp_path: Path) -> None:
    with open_spool(tmp_path, "s1") as spool:
        for told, says in (({"protocol": "smoke"}, "no protocol 'smoke'"), ({}, "needs a provider's key")):
            no = ship(spool, "127.0.0.1:1", **told)  # type: ignore[arg-type]
            assert isinstance(no, Refused)
            assert says in no.message
