"""The stream of work: nothing is offered twice or never, whoever connects, leaves, stalls or fails meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.doors.agents import EOF, PATIENCE_S, Hand, HandStream, House, housed, refusal, until
from tests.doors.grpc_house import dialled
from tests.simulated.journal import Fault

from holdfast.core.lease.acts import Reap
from holdfast.core.match.decide import Match
from holdfast.core.provider.acts import Beat
from holdfast.core.queue.acts import Cancel
from holdfast.core.refusal import Unavailable
from holdfast.core.values import ProviderId, TaskId
from holdfast.doors.grpc import agentdesk
from holdfast.doors.grpc.switchboard import WAITING_MAX, Over, Seat
from holdfast.doors.grpc.work import BEATS_MAX
from holdfast.engine.outcome import Phase
from holdfast.wire.acts import Act
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
def oak(house: House) -> Hand:
    return Hand(house)


def acked(offer: pb.Offer) -> Act:
    return Act("ack", lease_id=offer.lease_id)


async def test_who_loses_a_lease_is_told_why(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offers = [await oak.leased(stream, prompt) for prompt in ("a", "b")]
    await house.do(Cancel(TaskId(offers[0].task_id), None))
    lost = (await stream.read("lost")).lost
    assert (lost.lease_id, lost.reason) == (offers[0].lease_id, "JOB_CANCELLED")
    house.pass_time(5_000)
    await house.do(Reap())
    assert (await stream.read("lost")).lost.reason == "ACK_TIMEOUT"


async def test_a_proof_that_is_refused_comes_as_a_verdict(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    await house.judge(offer.lease_id, is_good=False)
    verdict = (await stream.read("verdict")).verdict
    assert (verdict.lease_id, verdict.is_accepted, verdict.reason) == (offer.lease_id, False, "PROOF_INVALID")


async def test_everything_that_lives_is_offered_again_before_anything_is_answered(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offers = [await oak.leased(stream, prompt) for prompt in ("a", "b", "c")]
    await stream.act(acked(offers[0]), Act("renew", offers[0].lease_id, 1))
    await oak.put(offers[1], b"out")
    await oak.complete(oak.completion(offers[1], b"out"))
    stream.call.cancel()
    again = await oak.open()
    await again.call.write(again.signed(Act("beat", slots=4)))
    told = [(await again.read("offer")).offer for _ in offers]
    assert {each.lease_id: (each.is_acked, each.is_submitted, each.renewals) for each in told} == {
        offers[0].lease_id: (True, False, 1),
        offers[1].lease_id: (True, True, 0),
        offers[2].lease_id: (False, False, 0),
    }
    assert {each.payload for each in told} == {each.payload for each in offers}
    await again.read("acts_done")


async def test_what_is_assigned_while_nobody_listens_is_offered_when_somebody_does(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    stream.call.cancel()
    await until(lambda: len(house.provider.work.board) == 0)
    await house.enqueue()
    await house.match()
    again = await oak.open()
    offer = (await again.read("offer")).offer
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    await house.judge(offer.lease_id)
    assert (await again.read("verdict")).verdict.is_accepted


async def test_offers_and_losses_arrive_once_however_streams_and_matches_interleave(house: House, oak: Hand) -> None:
    """Streams open while jobs are matched and cancelled: what is and what happens never overlap and never gape."""
    await (await oak.at_work()).act(Act("beat", slots=100))
    for round_ in range(15):
        jobs = [await house.enqueue(f"{round_} {number}") for number in range(3)]
        opening = asyncio.create_task(oak.open())
        for turns in range(round_ % 4):
            await asyncio.sleep(0 if turns else 0.001)
        await asyncio.gather(house.engine.submit(Match()), house.engine.submit(Cancel(jobs[0], None)))
        stream = await opening
        await stream.call.write(stream.signed(Act("beat", slots=100)))
        seen: list[tuple[str, bytes]] = []
        while (kind := (message := await stream.any()).WhichOneof("message")) != "acts_done":
            seen.append((kind, getattr(message, kind).lease_id))
        await house.engine.submit(Match())
        live = {lease.id for lease in house.engine.state.leases.by_id.values()}
        await _drain(stream, seen, live)
        for lease in list(house.engine.state.leases.by_id.values()):
            await house.do(Cancel(lease.job_id, None))
        stream.call.cancel()


async def test_what_is_decided_while_a_stream_opens_is_offered_once(house: House, oak: Hand) -> None:
    """The stream looks at a state that is ahead of the disk; the events that made it so come after it has looked."""
    await (await oak.at_work()).act(Act("beat", slots=4))
    await house.enqueue()
    house.world.disk.faults = [Fault.HANG]

    async def match_at_once() -> None:
        """Woken by the same batch as whoever opens a stream, and before it."""
        await house.do(Beat(oak.id, 4))
        await house.match()

    matching = asyncio.create_task(match_at_once())
    await until(lambda: house.engine._in_flight)
    opening = asyncio.create_task(oak.open())
    await until(lambda: len(house.engine._in_flight or ()) == 2)
    house.world.disk.release.set()
    stream, _ = await asyncio.gather(opening, matching)
    offer = (await stream.read("offer")).offer
    assert (await stream.act(acked(offer)))[0].is_done
    await house.do(Cancel(TaskId(offer.task_id), None))
    assert (await stream.read("lost")).lost.lease_id == offer.lease_id


async def _drain(stream: HandStream, seen: list[tuple[str, bytes]], live: set[Any]) -> None:
    """Until the agent knows of exactly the leases that live; each message came at most once."""

    def known() -> set[bytes]:
        return {id_ for kind, id_ in seen if kind == "offer"} - {id_ for kind, id_ in seen if kind == "lost"}

    while known() != live:
        message = await stream.any()
        kind = message.WhichOneof("message")
        seen.append((kind, getattr(message, kind).lease_id))
    assert len(set(seen)) == len(seen)


async def test_a_second_stream_takes_over_and_the_first_is_told(house: House, oak: Hand) -> None:
    first = await oak.at_work()
    offer = await oak.leased(first)
    second = await oak.open()
    assert (await second.read("offer")).offer.lease_id == offer.lease_id
    no = await first.refused()
    assert (no.name, no.rule) == ("Refused", "PRV-003")
    assert "took over" in no.says
    later = await oak.leased(second, "for the second")
    assert later.lease_id != offer.lease_id
    assert len(house.provider.work.board) == 1


async def test_an_agent_that_takes_nothing_is_let_go(house: House) -> None:
    seat = Seat(bytes(32), ProviderId(bytes(32)))
    for number in range(WAITING_MAX + 10):
        seat.tell(number)
    assert seat.waiting.qsize() == WAITING_MAX + 1
    last = [seat.waiting.get_nowait() for _ in range(WAITING_MAX + 1)][-1]
    assert isinstance(last, Over)
    assert last.because is not None


async def test_closing_tells_every_stream_and_waits_for_none(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    async with asyncio.timeout(PATIENCE_S):
        await house.door.close(2 * PATIENCE_S)
    await stream.read("draining")
    assert await stream.call.read() is EOF
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_when_the_node_stops_its_streams_end_by_name(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    await house.engine.stop()
    assert (await stream.refused()).name == "Unavailable"
    assert (await refusal(oak.open())).name == "Unavailable"


async def test_a_standby_sends_agents_to_the_owner(house: House, oak: Hand) -> None:
    async def hand_on(*_: Any) -> Any:
        raise AssertionError("an agent's word is not handed on")

    stream = await oak.at_work()
    offer = await oak.leased(stream)
    house.desk.hand_on = hand_on
    calls = [
        oak.stub.GetChallenge(pb.GetChallengeRequest()),
        oak.stub.Register(pb.RegisterRequest()),
        oak.stub.Complete(oak.completion(offer, b"out")),
        oak.put_all([]),
        oak.open(),
        oak.tell(),
    ]
    for call in calls:
        no = await refusal(call)
        assert (no.name, no.rule) == ("Unavailable", "ENG-006")
        assert "owner" in no.hint


@pytest.mark.rule("MAT-007")
async def test_hundreds_of_idle_streams_cost_no_threads_no_timers_and_an_offer_wakes_one(house: House) -> None:
    hands = [Hand(house, f"p{number}") for number in range(500)]
    async with dialled(house.door) as second:
        for hand in hands[250:]:
            hand.stub = type(hand.stub)(second)
        streams = []
        for at in range(0, 500, 50):
            await asyncio.gather(*(hand.register() for hand in hands[at : at + 50]))
            streams += await asyncio.gather(*(hand.open() for hand in hands[at : at + 50]))
        assert len(house.provider.work.board) == 500
        timers = [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        assert threading.active_count() < 40
        assert len(timers) < 20
        woken = _count_told(house)
        chosen = hands[123]
        await chosen.staked()
        await streams[123].act(Act("beat", slots=4))
        offer = await chosen.leased(streams[123])
        assert offer.payload
        assert woken == [chosen.id]
        await asyncio.gather(*(_half_closed(stream) for stream in streams))
    await until(lambda: len(house.provider.work.board) == 0)
    await until(lambda: "switchboard" not in {task.get_name() for task in asyncio.all_tasks()})  # for nobody


def _count_told(house: House) -> list[bytes]:
    """Whom the switchboard told something."""
    told: list[bytes] = []
    for seat in house.provider.work.board._seats.values():
        tell, id_ = seat.tell, seat.provider_id

        def counted(what: object, tell: Any = tell, id_: bytes = id_) -> None:
            if not isinstance(what, pb.WorkResponse):
                told.append(id_)
            tell(what)

        seat.tell = counted  # type: ignore[method-assign]
    return told


async def _half_closed(stream: HandStream) -> None:
    await stream.call.done_writing()
    async with asyncio.timeout(PATIENCE_S):
        assert await stream.call.read() is EOF


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER])
async def test_a_node_whose_disk_failed_for_a_moment_goes_on_with_its_streams(
    house: House, oak: Hand, fault: Fault
) -> None:
    """The owner begins again under the same streams; what was assigned is offered once, when it is durable."""
    stream = await oak.at_work()
    await house.enqueue()
    house.world.disk.faults = [fault]
    with pytest.raises(Unavailable):
        await house.match()
    await until(lambda: house.engine.phase is Phase.RUNNING)
    await house.match()
    offer = (await stream.read("offer")).offer
    assert house.lease(offer.lease_id) is not None
    assert (await stream.act(acked(offer)))[0].is_done


@pytest.mark.rule("SEC-001")
async def test_a_stream_of_work_whose_challenge_nobody_answers_is_let_go(
    house: House, oak: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agentdesk, "ANSWER_S", 0.05)
    call = oak.stub.Work()
    await call.read()
    assert (await refusal(call.read())).name == "InvalidRequest"


@pytest.mark.rule("PRV-002", "SEC-001")
async def test_of_many_heartbeats_in_one_message_a_few_are_recorded(house: House, oak: Hand) -> None:
    """An agent that holds no stake can send them, too: it shall not fill the journal."""
    stream = await oak.at_work()
    before = house.engine.state.last_event
    lost = Act("ack", lease_id=bytes(32))
    said = await stream.act(*(Act("beat", slots=slots) for slots in range(1, 300)), lost)
    assert [each.is_done for each in said] == [True] * BEATS_MAX + [False] * (300 - BEATS_MAX)
    assert {(each.name, each.rule) for each in said[BEATS_MAX:-1]} == {("TooLarge", "PRV-002")}
    slots, last = house.engine.state.providers[oak.id].slots, house.engine.state.last_event
    assert (slots, last) == (BEATS_MAX, before + BEATS_MAX)
