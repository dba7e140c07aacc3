"""The work stream: each lease is offered exactly once, whichever agent connects, leaves, stalls or fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.api.grpc.agent_driver import (
    EOF,
    PATIENCE_S,
    AgentDriver,
    AgentNode,
    WorkStreamDriver,
    agent_node,
    refusal,
    until,
)
from tests.api.grpc.grpc_server import connected_channel
from tests.simulation.journal import Fault

from holdfast.api.grpc.services import streams, work_updates
from holdfast.api.grpc.services.act_reader import HEARTBEATS_MAX
from holdfast.api.grpc.services.agent_router import OUTBOX_MAX, AgentConnection, StreamEnd
from holdfast.api.grpc.services.work_updates import UpdateBuilder
from holdfast.core.base.canonical import decode
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import ProviderId, TaskId
from holdfast.core.lease.messages import ExpireDue, close_without_penalty
from holdfast.core.match.messages import Match
from holdfast.core.provider.messages import Heartbeat
from holdfast.core.queue.messages import CancelJob
from holdfast.engine.outcome import EngineStatus
from holdfast.ports import Row
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.signed_messages import AgentAct


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
def oak(node: AgentNode) -> AgentDriver:
    return AgentDriver(node)


def acked(offer: pb.Offer) -> AgentAct:
    return AgentAct("ack", lease_id=offer.lease_id)


@pytest.mark.rule("PRV-005", "MAT-002")
async def test_an_offer_names_what_is_paid_until_when_and_by_which_proof(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    await oak.register(price={"*": 1_000_000, "echo": 5})
    offer = await oak.lease_job(stream)
    job = node.engine.undurable_state.queue.jobs[TaskId(offer.task_id)]
    assert (offer.pay, offer.proof, offer.t_deadline_ms) == (5 * job.units, "attested", offer.t_start_ms + 600_000)
    again = await (await oak.open()).read("offer")
    assert again.offer.pay == offer.pay
    await oak.register(price={"*": 5, "echo": 1_000_000})
    await node.enqueue("too cheap")
    await node.match()
    assert len(node.engine.undurable_state.leases.by_id) == 1


async def test_who_loses_a_lease_gets_the_reason(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offers = [await oak.lease_job(stream, prompt) for prompt in ("a", "b")]
    await node.do(CancelJob(TaskId(offers[0].task_id), None))
    lost = (await stream.read("lost")).lost
    assert (lost.lease_id, lost.reason) == (offers[0].lease_id, "JOB_CANCELLED")
    node.pass_time(5_000)
    await node.do(ExpireDue())
    assert (await stream.read("lost")).lost.reason == "ACK_TIMEOUT"


async def test_a_proof_that_is_refused_comes_as_a_verdict(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    await node.judge(offer.lease_id, is_good=False)
    verdict = (await stream.read("verdict")).verdict
    assert (verdict.lease_id, verdict.is_accepted, verdict.reason) == (offer.lease_id, False, "PROOF_INVALID")


async def test_everything_that_lives_is_offered_again_before_anything_is_answered(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.start_work()
    offers = [await oak.lease_job(stream, prompt) for prompt in ("a", "b", "c")]
    await stream.act(acked(offers[0]), AgentAct("renew", offers[0].lease_id, 1))
    await oak.put(offers[1], b"out")
    await oak.complete(oak.completion(offers[1], b"out"))
    stream.call.cancel()
    again = await oak.open()
    await again.call.write(again.signed(AgentAct("beat", slots=4)))
    told = [(await again.read("offer")).offer for _ in offers]
    assert {each.lease_id: (each.is_acked, each.is_submitted, each.renewals) for each in told} == {
        offers[0].lease_id: (True, False, 1),
        offers[1].lease_id: (True, True, 0),
        offers[2].lease_id: (False, False, 0),
    }
    assert {each.payload for each in told} == {each.payload for each in offers}
    await again.read("acts_done")


async def test_what_is_assigned_while_no_agent_listens_is_offered_when_one_connects(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.start_work()
    stream.call.cancel()
    await until(lambda: len(node.provider.work.router) == 0)
    await node.enqueue()
    await node.match()
    again = await oak.open()
    offer = (await again.read("offer")).offer
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    await node.judge(offer.lease_id)
    assert (await again.read("verdict")).verdict.is_accepted


async def test_offers_and_losses_arrive_once_however_streams_and_matches_interleave(
    node: AgentNode, oak: AgentDriver
) -> None:
    """Streams open while jobs are matched and cancelled: what is and what happens never overlap and never gape."""
    await (await oak.start_work()).act(AgentAct("beat", slots=100))
    for round_ in range(15):
        jobs = [await node.enqueue(f"{round_} {number}") for number in range(3)]
        opening = asyncio.create_task(oak.open())
        for turns in range(round_ % 4):
            await asyncio.sleep(0 if turns else 0.001)
        await asyncio.gather(node.engine.submit(Match()), node.engine.submit(CancelJob(jobs[0], None)))
        stream = await opening
        await stream.call.write(stream.signed(AgentAct("beat", slots=100)))
        seen: list[tuple[str, bytes]] = []
        while (kind := (message := await stream.read_any()).WhichOneof("message")) != "acts_done":
            seen.append((kind, getattr(message, kind).lease_id))
        await node.engine.submit(Match())
        live = {lease.id for lease in node.engine.undurable_state.leases.by_id.values()}
        await _drain(stream, seen, live)
        for lease in list(node.engine.undurable_state.leases.by_id.values()):
            await node.do(CancelJob(lease.job_id, None))
        stream.call.cancel()


async def test_what_is_decided_while_a_stream_opens_is_offered_once(node: AgentNode, oak: AgentDriver) -> None:
    """The stream looks at a state that is ahead of the disk; the events that made it so come after it has looked."""
    await (await oak.start_work()).act(AgentAct("beat", slots=4))
    await node.enqueue()
    node.world.disk.faults = [Fault.HANG]

    async def match_at_once() -> None:
        """Woken by the same batch as whoever opens a stream, and before it."""
        await node.do(Heartbeat(oak.id, 4))
        await node.match()

    matching = asyncio.create_task(match_at_once())
    await until(lambda: node.engine._in_flight)
    opening = asyncio.create_task(oak.open())
    await until(lambda: len(node.engine._in_flight or ()) == 2)
    node.world.disk.release.set()
    stream, _ = await asyncio.gather(opening, matching)
    offer = (await stream.read("offer")).offer
    assert (await stream.act(acked(offer)))[0].is_done
    await node.do(CancelJob(TaskId(offer.task_id), None))
    assert (await stream.read("lost")).lost.lease_id == offer.lease_id


async def _drain(stream: WorkStreamDriver, seen: list[tuple[str, bytes]], live: set[Any]) -> None:
    """Until the agent knows of exactly the leases that live; each message came at most once."""

    def known() -> set[bytes]:
        return {id_ for kind, id_ in seen if kind == "offer"} - {id_ for kind, id_ in seen if kind == "lost"}

    while known() != live:
        message = await stream.read_any()
        kind = message.WhichOneof("message")
        seen.append((kind, getattr(message, kind).lease_id))
    assert len(set(seen)) == len(seen)


async def test_what_piled_up_for_an_agent_is_one_message(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    begun = stream.messages
    for number in range(4):
        await node.enqueue(f"job {number}")
    await node.match()
    offers = [(await stream.read("offer")).offer for _ in range(4)]
    assert stream.messages == begun + 1
    evidence = await oak.open_evidence()
    lines = evidence.lines(1, *(oak.completed_with_output(offer, b"out") for offer in offers))
    assert await evidence.send_and_ack(1, lines) == 4
    verdicts = [(await stream.read("verdict")).verdict for _ in range(4)]
    assert {verdict.lease_id for verdict in verdicts} == {offer.lease_id for offer in offers}
    assert stream.messages == begun + 2


@pytest.mark.rule("ENG-007")
async def test_the_payloads_of_all_offers_of_a_message_are_one_read(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    oak = AgentDriver(node)
    await oak.start_work()
    for number in range(4):
        await node.enqueue(f"job {number}")
    await node.match()
    await node.engine.wait_tables()  # memory keeps no payload that the tables hold
    reads: list[int] = []
    find = node.engine.tables.find

    async def noting(table: str, column: str, values: Sequence[object]) -> list[Row]:
        reads.append(len(values))
        return await find(table, column, values)

    monkeypatch.setattr(node.engine.tables, "find", noting)
    updates = UpdateBuilder(node.engine)
    for lease in node.engine.undurable_state.leases.by_id.values():
        updates.repeat_offer(lease)
    (message,) = await updates.take()
    prompts = [decode(offer.payload)["spec"]["prompt"] for offer in message.updates.offers]  # type: ignore[index]
    assert (sorted(prompts), reads) == ([f"job {number}" for number in range(4)], [4])


async def test_a_lease_that_ended_before_it_was_offered_is_not_mentioned(node: AgentNode) -> None:
    updates = UpdateBuilder(node.engine)
    oak = AgentDriver(node)
    await oak.start_work()
    task = await node.enqueue()
    await node.match()
    lease = node.engine.undurable_state.leases.by_job[task]
    updates.repeat_offer(lease)
    updates.add_event(close_without_penalty(lease, "CANCELLED", 1))
    assert await updates.take() == []
    updates.add_event(close_without_penalty(lease, "CANCELLED", 1))
    (message,) = await updates.take()
    assert [each.reason for each in message.updates.lost] == ["CANCELLED"]


async def test_large_payloads_are_several_messages_and_answers_come_last(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_updates, "UPDATE_BYTES_MAX", 100)
    oak = AgentDriver(node)
    await oak.start_work()
    updates = UpdateBuilder(node.engine)
    for number in range(3):
        await node.enqueue(f"{number}" * 80)
    await node.match()
    for lease in node.engine.undurable_state.leases.by_id.values():
        updates.repeat_offer(lease)
    updates.add_acts_done(pb.ActsDone(count=7))
    told = [message.updates for message in await updates.take()]
    assert [(len(each.offers), len(each.acts_done)) for each in told] == [(1, 0), (1, 0), (1, 1)]


async def test_a_second_stream_takes_over_and_the_first_is_notified(node: AgentNode, oak: AgentDriver) -> None:
    first = await oak.start_work()
    offer = await oak.lease_job(first)
    second = await oak.open()
    assert (await second.read("offer")).offer.lease_id == offer.lease_id
    no = await first.refused()
    assert (no.name, no.rule) == ("Refused", "PRV-003")
    assert "replaced this one" in no.message
    later = await oak.lease_job(second, "for the second")
    assert later.lease_id != offer.lease_id
    assert len(node.provider.work.router) == 1


@pytest.mark.rule("RCV-002")
async def test_an_agent_of_the_same_key_from_another_folder_waits_until_the_first_one_is_gone(
    node: AgentNode, oak: AgentDriver
) -> None:
    await oak.register_and_stake()
    first = WorkStreamDriver(oak, oak.stub.Work())
    await first.open(instance=b"folder one")
    await first.act(AgentAct("beat", slots=4))
    other = WorkStreamDriver(oak, oak.stub.Work())
    for asked in (other.open(instance=b"folder two"), oak.register(price=99, instance=b"folder two")):
        no = await refusal(asked)
        assert (no.rule, "another folder" in no.message) == ("RCV-002", True)
    assert node.engine.undurable_state.providers[oak.id].price == 3, "the first one is not disturbed"
    await oak.register(instance=b"folder one")
    again = WorkStreamDriver(oak, oak.stub.Work())
    await again.open(instance=b"folder one")
    node.pass_time(node.engine.policy.provider.heartbeat_stale_ms)
    later = WorkStreamDriver(oak, oak.stub.Work())
    await later.open(instance=b"folder two")
    assert later.welcome.provider_id == oak.id


async def test_an_agent_that_reads_nothing_is_disconnected(node: AgentNode) -> None:
    connection = AgentConnection(bytes(32), ProviderId(bytes(32)))
    for number in range(OUTBOX_MAX + 10):
        connection.send(number)
    waiting = await connection.take()
    assert waiting[:-1] == list(range(OUTBOX_MAX))
    last = waiting[-1]
    assert isinstance(last, StreamEnd)
    assert last.reason is not None


async def test_closing_notifies_every_stream_and_waits_for_none(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    async with asyncio.timeout(PATIENCE_S):
        await node.server.close(2 * PATIENCE_S)
    await stream.read("draining")
    assert await stream.call.read() is EOF
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_when_the_node_stops_its_streams_end_by_name(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    await node.engine.stop()
    assert (await stream.refused()).name == "Unavailable"
    assert (await refusal(oak.open())).name == "Unavailable"


async def test_a_standby_sends_agents_to_the_owner(node: AgentNode, oak: AgentDriver) -> None:
    async def hand_on(*_: Any) -> Any:
        raise AssertionError("an agent's word is not handed on")

    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    node.access.forward_to_owner = hand_on
    calls = [
        oak.stub.GetChallenge(pb.GetChallengeRequest()),
        oak.stub.Register(pb.RegisterRequest()),
        oak.stub.Complete(oak.completion(offer, b"out")),
        oak.put_all([]),
        oak.open(),
        oak.open_evidence(),
    ]
    for call in calls:
        no = await refusal(call)
        assert (no.name, no.rule) == ("Unavailable", "ENG-006")
        assert "owner" in no.hint


@pytest.mark.rule("MAT-007")
async def test_hundreds_of_idle_streams_cost_no_threads_no_timers_and_an_offer_wakes_one(node: AgentNode) -> None:
    agents = [AgentDriver(node, f"p{number}") for number in range(500)]
    async with connected_channel(node.server) as second:
        for agent in agents[250:]:
            agent.stub = type(agent.stub)(second)
        streams = []
        for at in range(0, 500, 50):
            await asyncio.gather(*(agent.register() for agent in agents[at : at + 50]))
            streams += await asyncio.gather(*(agent.open() for agent in agents[at : at + 50]))
        assert len(node.provider.work.router) == 500
        timers = [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        assert threading.active_count() < 40
        assert len(timers) < 20
        woken = _record_notified(node)
        chosen = agents[123]
        await chosen.register_and_stake()
        await streams[123].act(AgentAct("beat", slots=4))
        offer = await chosen.lease_job(streams[123])
        assert offer.payload
        assert woken == [chosen.id]
        await asyncio.gather(*(_half_closed(stream) for stream in streams))
    await until(lambda: len(node.provider.work.router) == 0)
    await until(lambda: "agent router" not in {task.get_name() for task in asyncio.all_tasks()})


def _record_notified(node: AgentNode) -> list[bytes]:
    """The providers that the router sends an event."""
    notified: list[bytes] = []
    for connection in node.provider.work.router._connections.values():
        send, id_ = connection.send, connection.provider_id

        def counted(item: object, send: Any = send, id_: bytes = id_) -> None:
            if not isinstance(item, pb.ActsDone):
                notified.append(id_)
            send(item)

        connection.send = counted  # type: ignore[method-assign]
    return notified


async def _half_closed(stream: WorkStreamDriver) -> None:
    await stream.call.done_writing()
    async with asyncio.timeout(PATIENCE_S):
        assert await stream.call.read() is EOF


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER])
async def test_a_node_whose_disk_failed_for_a_moment_goes_on_with_its_streams(
    node: AgentNode, oak: AgentDriver, fault: Fault
) -> None:
    """The owner begins again under the same streams; what was assigned is offered once, when it is durable."""
    stream = await oak.start_work()
    await node.enqueue()
    node.world.disk.faults = [fault]
    with pytest.raises(Unavailable):
        await node.match()
    await until(lambda: node.engine.status is EngineStatus.RUNNING)
    await node.match()
    offer = (await stream.read("offer")).offer
    assert node.lease(offer.lease_id) is not None
    assert (await stream.act(acked(offer)))[0].is_done


@pytest.mark.rule("SEC-001")
async def test_a_work_stream_whose_challenge_is_not_answered_is_closed(
    node: AgentNode, oak: AgentDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHALLENGE_TIMEOUT_S", 0.05)
    call = oak.stub.Work()
    await call.read()
    assert (await refusal(call.read())).name == "InvalidRequest"


@pytest.mark.rule("PRV-002", "SEC-001")
async def test_of_many_heartbeats_in_one_message_a_few_are_recorded(node: AgentNode, oak: AgentDriver) -> None:
    """An agent that holds no stake can send them, too: it shall not fill the journal."""
    stream = await oak.start_work()
    before = node.engine.undurable_state.last_event
    lost = AgentAct("ack", lease_id=bytes(32))
    said = await stream.act(*(AgentAct("beat", slots=slots) for slots in range(1, 300)), lost)
    assert [each.is_done for each in said] == [True] * HEARTBEATS_MAX + [False] * (300 - HEARTBEATS_MAX)
    assert {(each.name, each.rule) for each in said[HEARTBEATS_MAX:-1]} == {("TooLarge", "PRV-002")}
    slots, last = node.engine.undurable_state.providers[oak.id].slots, node.engine.undurable_state.last_event
    assert (slots, last) == (HEARTBEATS_MAX, before + HEARTBEATS_MAX)


@pytest.mark.rule("JOB-010")
async def test_the_payload_of_a_private_job_comes_with_the_answer_to_the_ack(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    job = await node.enqueue("secret", "private")
    await node.match()
    offer = (await stream.read("offer")).offer
    assert (offer.payload, offer.task_id, offer.pay, decode(offer.requirements)) == (b"", job, 6, {"model": "echo"})
    again = await oak.open()
    assert (await again.read("offer")).offer.payload == b"", "nor does another stream tell it"
    assert [each.is_done for each in await again.act(AgentAct("ack", lease_id=offer.lease_id))] == [True]
    acked = (await again.read("offer")).offer
    assert (acked.is_acked, b"secret" in acked.payload, acked.lease_id) == (True, True, offer.lease_id)
