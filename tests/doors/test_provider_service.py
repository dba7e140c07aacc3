"""Agents at the node: registering, the stream of work, outputs and completions, and whoever says what is not true."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.agents import Hand, HandStream, House, housed, refusal

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.result import result_digest
from holdfast.core.state import digest
from holdfast.doors.grpc.challenge import NONCE_MS
from holdfast.engine.read import spec
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


# ------------------------------------------------------------------------------------------------ registering


@pytest.mark.rule("PRV-001")
async def test_who_answers_the_challenge_is_registered_and_learns_what_is_missing(house: House, oak: Hand) -> None:
    answer = await oak.register()
    assert (answer.provider_id, answer.status, answer.stake, answer.stake_min) == (oak.id, "REGISTERED", 0, 10_000)
    assert house.engine.state.providers[oak.id].public == oak.key.public


@pytest.mark.rule("PRV-003")
async def test_a_registration_counts_once_and_said_again_it_is_refused(house: House, oak: Hand) -> None:
    request = await oak.registration()
    await oak.stub.Register(request)
    before = digest(house.engine.state)
    told = await refusal(oak.stub.Register(request))
    assert (told.name, told.rule, told.code) == ("Unauthorized", "PRV-003", "UNAUTHENTICATED")
    assert digest(house.engine.state) == before


@pytest.mark.rule("PRV-003")
async def test_the_same_registration_sent_many_times_at_once_counts_once(house: House, oak: Hand) -> None:
    request = await oak.registration()
    answers = await asyncio.gather(*(oak.stub.Register(request) for _ in range(8)), return_exceptions=True)
    assert len([each for each in answers if isinstance(each, pb.RegisterResponse)]) == 1


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("later_ms", [NONCE_MS - 1, NONCE_MS])
async def test_a_challenge_is_good_for_a_minute(house: House, oak: Hand, later_ms: int) -> None:
    request = await oak.registration()
    house.pass_time(later_ms)
    if later_ms < NONCE_MS:
        assert (await oak.stub.Register(request)).status == "REGISTERED"
    else:
        assert "nonce" in (await refusal(oak.stub.Register(request))).says


async def test_a_nonce_that_is_not_known_costs_no_check_of_a_signature(house: House, oak: Hand) -> None:
    request = await oak.registration(nonce=os.urandom(32))

    def never(*_: bytes) -> bool:
        raise AssertionError("nobody checks it")

    house.at.verify = never
    assert (await refusal(oak.stub.Register(request))).name == "Unauthorized"


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("wrong", ["signature", "another's key", "nonce", "body"])
async def test_a_registration_that_its_key_did_not_sign_for_this_node_is_refused(
    house: House, oak: Hand, wrong: str
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
    assert house.engine.state.providers == {}


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
    house: House, oak: Hand, told: dict[str, Any], says: str
) -> None:
    no = await refusal(oak.register(**told))
    assert (no.name, no.rule) == ("InvalidParams", "PRV-001")
    assert no.says.startswith(says)


# ------------------------------------------------------------------------------------------------ the stream of work


@pytest.mark.rule("PRV-003")
async def test_the_whole_way_of_a_job_on_the_stream_of_work(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    assert (stream.welcome.provider_id, stream.welcome.heartbeat_ms) == (oak.id, 60_000)
    job = await house.enqueue("say it")
    await house.match()
    offer = (await stream.read("offer")).offer
    kept = house.engine.state.queue.jobs[job]
    assert offer.payload == await spec(house.engine, kept)
    assert (offer.task_id, offer.kind, offer.proof, offer.attempt) == (job, "AI", "attested", 0)
    assert (offer.t_deadline_ms - offer.t_start_ms, offer.ack_by_ms - offer.t_start_ms) == (600_000, 5_000)
    assert [each.is_done for each in await stream.act(acked(offer))] == [True]
    await oak.put(offer, b"said")
    answer = await oak.complete(oak.completion(offer, b"said"))
    assert not answer.is_repeat
    await house.judge(offer.lease_id)
    verdict = (await stream.read("verdict")).verdict
    assert (verdict.lease_id, verdict.is_accepted) == (offer.lease_id, True)
    assert house.engine.state.results[job].result_digest == result_digest(b"said")


async def test_a_stream_of_somebody_who_is_not_registered_is_refused(house: House, oak: Hand) -> None:
    no = await refusal(oak.open())
    assert (no.name, no.rule) == ("NotFound", "PRV-001")


@pytest.mark.rule("PRV-003")
async def test_a_stream_is_opened_by_the_key_that_signs_this_stream_s_nonce(house: House, oak: Hand) -> None:
    await oak.register()
    for wrong in ({"signature": bytes(64)}, {"public": SigningKey.generate().public}, {"public": b"short"}):
        assert (await refusal(HandStream(oak, oak.stub.Work()).open(**wrong))).name == "Unauthorized"
    earlier = await oak.open()
    replayed = earlier.hand.key.sign(b"")  # any signature but over this nonce
    assert (await refusal(HandStream(oak, oak.stub.Work()).open(signature=replayed))).name == "Unauthorized"


async def test_a_stream_that_does_not_begin_with_open_is_refused(house: House, oak: Hand) -> None:
    stream = HandStream(oak, oak.stub.Work())
    await stream.read("challenge")
    assert (await stream.refused(stream.signed(Act("beat", slots=1)))).name == "InvalidRequest"


async def test_several_acts_are_answered_each_for_itself_in_their_order(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
    lost = Act("ack", lease_id=bytes(32))
    unknown = Act("dance")
    short = Act("ack", lease_id=b"x")
    told = await stream.act(lost, acked(offer), unknown, short, Act("renew", offer.lease_id, 1), Act("beat", slots=2))
    assert [each.is_done for each in told] == [False, True, False, False, True, True]
    assert [each.name for each in told if not each.is_done] == ["LeaseLost", "InvalidParams", "InvalidParams"]
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert (lease.acked_ms is not None, lease.renewals) == (True, 1)
    assert house.engine.state.providers[oak.id].slots == 2


async def test_a_lease_that_is_declined_is_free_unless_the_reason_cannot_be_kept(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
    told = await stream.act(Act("decline", offer.lease_id, reason="no\0"))
    assert (told[0].name, house.lease(offer.lease_id) is None) == ("InvalidParams", False)
    await stream.call.write(stream.signed(Act("decline", offer.lease_id, reason="too hot")))
    heard = [await stream.any(), await stream.any()]
    assert {each.WhichOneof("message") for each in heard} == {"lost", "acts_done"}
    assert {each.lost.reason for each in heard} == {"", "too hot"}
    assert house.lease(offer.lease_id) is None


async def test_acts_of_one_message_are_durable_when_they_are_answered_and_share_a_batch(
    house: House, oak: Hand
) -> None:
    stream = await oak.at_work()
    before = house.engine.durable
    await stream.act(Act("beat", slots=1), Act("beat", slots=2), Act("beat", slots=3))
    after = house.engine.durable
    assert (after.number - before.number, after.last - before.last) == (1, 3)


@pytest.mark.rule("PRV-003")
@pytest.mark.parametrize("wrong", ["count again", "count back", "another stream", "signature", "body"])
async def test_acts_that_are_replayed_or_forged_end_the_stream_and_do_nothing(
    house: House, oak: Hand, wrong: str
) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
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
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert lease.acked_ms is None


@pytest.mark.rule("PRV-003")
async def test_the_very_bytes_of_an_act_do_nothing_a_second_time(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
    said = stream.signed(Act("renew", offer.lease_id, 1))
    await stream.call.write(said)
    await stream.read("acts_done")
    assert (await stream.refused(said)).rule == "PRV-003"
    again = await oak.open()
    await again.read("offer")
    assert (await again.refused(said)).rule == "PRV-003"
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert lease.renewals == 1


@pytest.mark.rule("PRV-003")
async def test_another_provider_s_lease_is_out_of_reach(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    offer = await oak.leased(stream)
    ash = Hand(house, "ash")
    await ash.register()
    other = await ash.open()
    said = [Act(what, lease_id=offer.lease_id, renewal=1) for what in ("ack", "renew", "decline")]
    assert [each.name for each in await other.act(*said)] == ["Forbidden"] * 3
    assert (await refusal(ash.announce(offer, b"out"))).name == "Forbidden"
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert (lease.acked_ms, lease.renewals) == (None, 0)
    assert house.files() == []
