"""Agents at the node: registration, the work stream, outputs, completions, and agents that lie."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, WorkStreamDriver, agent_node, refusal

from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.grpc.services.nonces import NONCE_MS
from holdfast.core.result import result_digest
from holdfast.core.state_digest import digest
from holdfast.engine.queries import spec
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


# ------------------------------------------------------------------------------------------------ registering


@pytest.mark.rule("PRV-001")
async def test_who_answers_the_challenge_is_registered_and_learns_what_is_missing(
    node: AgentNode, oak: AgentDriver
) -> None:
    answer = await oak.register()
    assert (answer.provider_id, answer.status, answer.stake, answer.stake_min) == (oak.id, "REGISTERED", 0, 10_000)
    assert node.engine.undurable_state.providers[oak.id].public == oak.key.public


@pytest.mark.rule("PRV-003")
async def test_a_registration_counts_once_and_said_again_it_is_refused(node: AgentNode, oak: AgentDriver) -> None:
    request = await oak.registration()
    await oak.stub.Register(request)
    before = digest(node.engine.undurable_state)
    told = await refusal(oak.stub.Register(request))
    assert (told.name, told.rule, told.code) == ("Unauthorized", "PRV-003", "UNAUTHENTICATED")
    assert digest(node.engine.undurable_state) == before


@pytest.mark.rule("PRV-003")
async def test_the_same_registration_sent_many_times_at_once_counts_once(node: AgentNode, oak: AgentDriver) -> None:
    request = await oak.registration()
    answers = await asyncio.gather(*(oak.stub.Register(request) for _ in range(8)), return_exceptions=True)
    assert len([each for each in answers if isinstance(each, pb.RegisterResponse)]) == 1


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("later_ms", [NONCE_MS - 1, NONCE_MS])
async def test_a_challenge_is_good_for_a_minute(node: AgentNode, oak: AgentDriver, later_ms: int) -> None:
    request = await oak.registration()
    node.pass_time(later_ms)
    if later_ms < NONCE_MS:
        assert (await oak.stub.Register(request)).status == "REGISTERED"
    else:
        assert "nonce" in (await refusal(oak.stub.Register(request))).message


async def test_a_nonce_that_is_not_known_costs_no_check_of_a_signature(node: AgentNode, oak: AgentDriver) -> None:
    request = await oak.registration(nonce=os.urandom(32))

    def never(*_: bytes) -> bool:
        raise AssertionError("no signature is checked")

    node.agent_context.verify = never
    assert (await refusal(oak.stub.Register(request))).name == "Unauthorized"


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("wrong", ["signature", "another's key", "nonce", "body"])
async def test_a_registration_that_its_key_did_not_sign_for_this_node_is_refused(
    node: AgentNode, oak: AgentDriver, wrong: str
) -> None:
    told = {"another's key": {"public": SigningKey.generate().public}, "nonce": {"nonce": os.urandom(32)}}
    request = await oak.registration(**told.get(wrong, {}))
    if wrong == "signature":
        request.signature = bytes(64)
    if wrong == "body":
        request.body = request.body[:-1]
    no = await refusal(oak.stub.Register(request))
    assert no.rule == "PRV-003"
    assert no.name == ("InvalidParams" if wrong == "body" else "Unauthorized")
    assert node.engine.undurable_state.providers == {}


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"capabilities": {"AI": {"models": 5}}}, "capabilities"),
        ({"capabilities": {"QUANTUM": {"gates": ["h"], "depth_max": "deep"}}}, "capabilities"),
        ({"capabilities": {}}, "capabilities"),
        ({"name": "oak\0"}, "name"),
        ({"region": "e\nu"}, "region"),
        ({"attested_until_ms": 2**63}, "attested_until_ms"),
        ({"slots": 0}, "slots"),
    ],
)
async def test_what_the_node_could_not_store_or_match_is_refused_by_field(
    node: AgentNode, oak: AgentDriver, told: dict[str, Any], says: str
) -> None:
    no = await refusal(oak.register(**told))
    assert (no.name, no.rule) == ("InvalidParams", "PRV-001")
    assert no.message.startswith(says)


# ------------------------------------------------------------------------------------------------ the stream of work


@pytest.mark.rule("PRV-003")
async def test_the_whole_life_of_a_job_on_the_work_stream(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    assert (stream.welcome.provider_id, stream.welcome.heartbeat_ms) == (oak.id, 60_000)
    job = await node.enqueue("say it")
    await node.match()
    offer = (await stream.read("offer")).offer
    kept = node.engine.undurable_state.queue.jobs[job]
    assert offer.payload == await spec(node.engine, kept)
    assert (offer.task_id, offer.kind, offer.proof, offer.attempt) == (job, "AI", "attested", 0)
    assert (offer.t_deadline_ms - offer.t_start_ms, offer.ack_by_ms - offer.t_start_ms) == (600_000, 5_000)
    assert [each.is_done for each in await stream.act(acked(offer))] == [True]
    await oak.put(offer, b"said")
    answer = await oak.complete(oak.completion(offer, b"said"))
    assert not answer.is_repeat
    await node.judge(offer.lease_id)
    verdict = (await stream.read("verdict")).verdict
    assert (verdict.lease_id, verdict.is_accepted) == (offer.lease_id, True)
    assert node.engine.undurable_state.results[job].result_digest == result_digest(b"said")


async def test_a_stream_of_somebody_who_is_not_registered_is_refused(node: AgentNode, oak: AgentDriver) -> None:
    no = await refusal(oak.open())
    assert (no.name, no.rule) == ("NotFound", "PRV-001")


@pytest.mark.rule("PRV-003")
async def test_a_stream_is_opened_by_the_key_that_signs_this_stream_s_nonce(node: AgentNode, oak: AgentDriver) -> None:
    await oak.register()
    for wrong in ({"signature": bytes(64)}, {"public": SigningKey.generate().public}, {"public": b"short"}):
        assert (await refusal(WorkStreamDriver(oak, oak.stub.Work()).open(**wrong))).name == "Unauthorized"
    earlier = await oak.open()
    replayed = earlier.agent.key.sign(b"")  # any signature but over this nonce
    assert (await refusal(WorkStreamDriver(oak, oak.stub.Work()).open(signature=replayed))).name == "Unauthorized"


async def test_a_stream_that_does_not_begin_with_open_is_refused(node: AgentNode, oak: AgentDriver) -> None:
    stream = WorkStreamDriver(oak, oak.stub.Work())
    await stream.read("challenge")
    assert (await stream.refused(stream.signed(AgentAct("beat", slots=1)))).name == "InvalidRequest"


async def test_several_acts_are_answered_each_for_itself_in_their_order(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    lost = AgentAct("ack", lease_id=bytes(32))
    unknown = AgentAct("dance")
    short = AgentAct("ack", lease_id=b"x")
    told = await stream.act(
        lost, acked(offer), unknown, short, AgentAct("renew", offer.lease_id, 1), AgentAct("beat", slots=2)
    )
    assert [each.is_done for each in told] == [False, True, False, False, True, True]
    assert [each.name for each in told if not each.is_done] == ["LeaseLost", "InvalidParams", "InvalidParams"]
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert (lease.acked_ms is not None, lease.renewals) == (True, 1)
    assert node.engine.undurable_state.providers[oak.id].slots == 2


async def test_a_lease_that_is_declined_is_free_unless_the_reason_cannot_be_kept(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    told = await stream.act(AgentAct("decline", offer.lease_id, reason="no\0"))
    assert (told[0].name, node.lease(offer.lease_id) is None) == ("InvalidParams", False)
    await stream.call.write(stream.signed(AgentAct("decline", offer.lease_id, reason="too hot")))
    heard = [await stream.read_any(), await stream.read_any()]
    assert {each.WhichOneof("message") for each in heard} == {"lost", "acts_done"}
    assert [each.lost.reason for each in heard if each.kind == "lost"] == ["too hot"]
    assert node.lease(offer.lease_id) is None


@pytest.mark.rule("RCV-002", "PRV-004")
async def test_a_second_result_after_the_verdict_is_recorded_and_slashed(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    await oak.put(offer, b"out")
    await oak.stub.Complete(oak.completion(offer, b"out"))
    await node.judge(offer.lease_id)
    no = await refusal(oak.stub.Complete(oak.completion(offer, b"other")))
    assert (no.rule, no.name) == ("RCV-002", "Refused")
    provider = node.engine.undurable_state.providers[oak.id]
    assert (provider.slashed, provider.status) == (2_500, "JAILED")


async def test_acts_of_one_message_are_durable_when_they_are_answered_and_share_a_batch(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.start_work()
    before = node.engine.durable_head
    await stream.act(AgentAct("beat", slots=1), AgentAct("beat", slots=2), AgentAct("beat", slots=3))
    after = node.engine.durable_head
    assert (after.number - before.number, after.last - before.last) == (1, 3)


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("wrong", ["count again", "count back", "another stream", "signature", "body"])
async def test_acts_that_are_replayed_or_forged_end_the_stream_and_do_nothing(
    node: AgentNode, oak: AgentDriver, wrong: str
) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    said = stream.signed(acked(offer))
    if wrong.startswith("count"):
        said = stream.signed(acked(offer), count=1 if wrong == "count again" else 0)
    elif wrong == "another stream":
        said = stream.signed(acked(offer), nonce=os.urandom(32))
    elif wrong == "signature":
        said.acts.signature = bytes(64)
    else:
        said.acts.body = said.acts.body + b"\0"
    no = await stream.refused(said)
    assert (no.name, no.rule) == ("Unauthorized", "PRV-003")
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.acked_ms is None


@pytest.mark.rule("PRV-003")
async def test_the_very_bytes_of_an_act_do_nothing_a_second_time(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    said = stream.signed(AgentAct("renew", offer.lease_id, 1))
    await stream.call.write(said)
    await stream.read("acts_done")
    assert (await stream.refused(said)).rule == "PRV-003"
    again = await oak.open()
    await again.read("offer")
    assert (await again.refused(said)).rule == "PRV-003"
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.renewals == 1


@pytest.mark.rule("PRV-003")
async def test_another_provider_s_lease_is_out_of_reach(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.start_work()
    offer = await oak.lease_job(stream)
    ash = AgentDriver(node, "ash")
    await ash.register()
    other = await ash.open()
    said = [AgentAct(what, lease_id=offer.lease_id, renewal=1) for what in ("ack", "renew", "decline")]
    assert [each.name for each in await other.act(*said)] == ["Forbidden"] * 3
    assert (await refusal(ash.announce(offer, b"out"))).name == "Forbidden"
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert (lease.acked_ms, lease.renewals) == (None, 0)
    assert node.files() == []
