"""Outputs and results at the node: durable before they are answered, handed in once, by their signer alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.agents import Hand, House, housed, refusal, until
from tests.doors.grpc_house import dialled
from tests.simulated.world import World

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.lease.acts import CompletionSubmitted
from holdfast.core.proof.envelope import body_of
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass
from holdfast.core.retention.acts import DropWarm, Lot, Sweep
from holdfast.core.values import Digest, EventNo, Height, LeaseId
from holdfast.doors.grpc import outputs
from holdfast.doors.grpc.taken import OUTPUTS_MAX, SPARE, Taken
from holdfast.wire.acts import Act
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
def oak(house: House) -> Hand:
    return Hand(house)


# ------------------------------------------------------------------------------------------------ outputs


@pytest.fixture
async def offer(house: House, oak: Hand) -> pb.Offer:
    return await oak.leased(await oak.at_work())


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize("size", [0, 1, 65_536, (1 << 20) + 7])
async def test_an_output_is_held_under_its_digest_when_the_answer_comes(
    house: House, oak: Hand, offer: pb.Offer, size: int
) -> None:
    output = os.urandom(size)
    answer = await oak.put(offer, output)
    assert (answer.digest, answer.size) == (result_digest(output), size)
    assert await house.blobs.read(result_digest(output)) == output


@pytest.mark.rule("TIER-001")
async def test_what_is_held_already_need_not_be_sent(house: House, oak: Hand, offer: pb.Offer) -> None:
    await oak.put(offer, b"out")
    answer = await oak.announce(offer, b"out")
    assert (answer.digest, answer.size) == (result_digest(b"out"), 3)


@pytest.mark.rule("TIER-001")
async def test_an_output_that_was_handed_in_may_be_sent_again(house: House, oak: Hand, offer: pb.Offer) -> None:
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    assert (await oak.announce(offer, b"out")).size == 3
    assert (await refusal(oak.announce(offer, b"other"))).rule == "RCV-001"


def part(raw: bytes) -> pb.PutOutputRequest:
    return pb.PutOutputRequest(part=raw)


END = pb.PutOutputRequest(end=pb.OutputEnd())


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize(
    ("told", "more", "name"),
    [
        ({}, [part(b"ou"), END], "InvalidParams"),
        ({}, [part(b"out"), part(b"!")], "TooLarge"),
        ({}, [part(b"tuo"), END], "InvalidParams"),
        ({"size": outputs.OUTPUT_BYTES_MAX + 1}, [], "TooLarge"),
        ({"digest": b"short"}, [], "InvalidParams"),
        ({"lease_id": bytes(32)}, [], "LeaseLost"),
        ({"signature": bytes(64)}, [], "Unauthorized"),
        ({"public": bytes(32)}, [], "Unauthorized"),
    ],
)
async def test_an_output_that_is_not_what_was_announced_and_signed_leaves_nothing(
    house: House, oak: Hand, offer: pb.Offer, told: dict[str, Any], more: list[pb.PutOutputRequest], name: str
) -> None:
    """What is refused comes last: who still writes then may report its own failure to write instead."""
    header = pb.PutOutputRequest(header=oak.header(offer, b"out", **told))
    no = await refusal(oak.put_all([header, *more]))
    assert no.name == name
    assert house.files() == []


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize("parts", [[], [b"o"], [b"out"]])
async def test_a_stream_that_only_ends_has_handed_over_nothing(
    house: House, oak: Hand, offer: pb.Offer, parts: list[bytes]
) -> None:
    requests = [pb.PutOutputRequest(header=oak.header(offer, b"out"))]
    no = await refusal(oak.put_all(requests + [part(raw) for raw in parts]))
    assert (no.rule, no.name) == ("TIER-001", "InvalidRequest")
    assert house.files() == []


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize("how", ["cancelled", "hung up"])
async def test_a_stream_that_is_cut_in_mid_output_leaves_nothing(
    house: House, oak: Hand, offer: pb.Offer, how: str
) -> None:
    async with dialled(house.door) as line:
        call = type(oak.stub)(line).PutOutput()
        await call.write(pb.PutOutputRequest(header=oak.header(offer, b"x" * 200_000)))
        await call.write(pb.PutOutputRequest(part=b"x" * 100_000))
        await until(lambda: any(path.stat().st_size == 100_000 for path in house.files()))
        call.cancel() if how == "cancelled" else await line.close(0)
        await until(lambda: house.files() == [])
    assert await house.blobs.size(Digest(result_digest(b"x" * 200_000))) is None


async def test_an_output_begins_with_its_header_and_goes_on_with_parts(
    house: House, oak: Hand, offer: pb.Offer
) -> None:
    assert (await refusal(oak.put_all([part(b"out")]))).name == "InvalidRequest"
    assert (await refusal(oak.put_all([]))).name == "InvalidRequest"
    header = pb.PutOutputRequest(header=oak.header(offer, b"out"))
    assert (await refusal(oak.put_all([header, header]))).name == "InvalidRequest"
    assert (await refusal(oak.put_all([header, pb.PutOutputRequest()]))).name == "InvalidRequest"
    large = pb.PutOutputRequest(header=oak.header(offer, bytes(2 << 20)))
    assert (await refusal(oak.put_all([large, part(bytes((1 << 20) + 1))]))).name == "TooLarge"
    assert house.files() == []


async def test_who_announced_more_than_came_is_told_so(house: House, oak: Hand, offer: pb.Offer) -> None:
    header = pb.PutOutputRequest(header=oak.header(offer, b"out"))
    no = await refusal(oak.put_all([header, part(b"ou"), END]))
    assert no.says == "2 bytes came, 3 were announced"


async def test_an_output_of_a_lease_that_is_over_is_not_taken(house: House, oak: Hand, offer: pb.Offer) -> None:
    house.pass_time(600_000)
    assert (await refusal(oak.announce(offer, b"out"))).name == "LeaseLost"


@pytest.mark.rule("TIER-001")
async def test_a_lease_is_good_for_a_few_outputs_and_one_more_is_refused(
    house: House, oak: Hand, offer: pb.Offer
) -> None:
    outputs_ = [b"out %d" % number for number in range(OUTPUTS_MAX + 1)]
    for output in outputs_[:-1]:
        await oak.put(offer, output)
    no = await refusal(oak.announce(offer, outputs_[-1]))
    assert (no.rule, no.name, no.hint) == ("TIER-001", "TooLarge", "complete it with one of them, or fail it")
    assert len(house.files()) == OUTPUTS_MAX
    assert (await oak.announce(offer, outputs_[0])).size == 5  # the same again is none more
    await oak.complete(oak.completion(offer, outputs_[3]))
    assert (await oak.announce(offer, outputs_[3])).size == 5


@pytest.mark.rule("TIER-001")
async def test_each_lease_is_counted_for_itself_and_also_what_was_only_announced(house: House, oak: Hand) -> None:
    stream = await oak.at_work()
    one, two = await oak.leased(stream), await oak.leased(stream, "again")
    for number in range(OUTPUTS_MAX):
        assert (await refusal(oak.announce(one, b"out %d" % number))).name == "InvalidRequest"  # and nothing comes
    assert (await refusal(oak.announce(one, b"another"))).name == "TooLarge"
    assert (await oak.put(one, b"out 0")).size == 5
    assert (await oak.put(two, b"another")).size == 7
    ash = Hand(house, "ash")
    await ash.register()
    assert (await refusal(ash.announce(two, b"mine"))).name == "Forbidden"
    assert len(house.at.taken) == 2


@pytest.mark.rule("TIER-001")
def test_leases_that_are_over_are_forgotten() -> None:
    taken, live = Taken(), {LeaseId(bytes([number]) * 32) for number in range(10)}
    for number in range(1_000):
        id_ = LeaseId(number.to_bytes(32, "big"))
        taken.forget(live, len(live))
        assert taken.why_not(id_, Digest(bytes(32))) is None
        assert len(taken) <= 2 * len(live) + SPARE + 1
    for id_ in live:
        taken.why_not(id_, Digest(bytes(32)))
    for number in range(SPARE + 20):
        taken.why_not(LeaseId(number.to_bytes(32, "big")), Digest(bytes(32)))
    taken.forget(live, len(live))
    assert len(taken) == len(live)


@pytest.mark.rule("TIER-001", "RET-002", "RCV-001")
async def test_bytes_that_are_just_being_let_go_are_to_be_sent_again_and_are_held_then(
    house: House, oak: Hand, offer: pb.Offer
) -> None:
    await oak.put(offer, b"out")
    digest, state = result_digest(b"out"), house.engine.state
    await house.do(DropWarm(Lot(state.last_event, Height(0), EventNo(0)), strays=((digest, 3),)))
    no = await refusal(oak.announce(offer, b"out"))
    assert (no.rule, no.name, no.hint) == ("TIER-001", "Unavailable", "send the output again")
    no = await refusal(oak.complete(oak.completion(offer, b"out")))
    assert (no.rule, no.hint) == ("RCV-001", "send the output again, then complete")
    await house.blobs.delete(digest)
    await house.do(Sweep(Pass.WARM))
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))


# ------------------------------------------------------------------------------------------------ completing


@pytest.mark.rule("RCV-001")
async def test_a_result_without_its_bytes_is_not_taken(house: House, oak: Hand, offer: pb.Offer) -> None:
    no = await refusal(oak.complete(oak.completion(offer, b"out")))
    assert (no.rule, no.hint) == ("RCV-001", "send the output first")
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted == result_digest(b"out")


@pytest.mark.rule("RCV-001")
@pytest.mark.parametrize("size", [2, 4])
async def test_a_result_whose_size_is_another_than_that_of_the_bytes_is_not_taken(
    house: House, oak: Hand, offer: pb.Offer, size: int
) -> None:
    await oak.put(offer, b"out")
    body = body_of(offer.task_id, offer.lease_id, oak.id, result_digest(b"out"), size, {})
    assert (await refusal(oak.complete(oak.completion(offer, b"out", body=body)))).rule == "RCV-001"


@pytest.mark.rule("PRV-003", "RCV-001")
async def test_a_result_is_handed_in_once_and_by_its_signer_alone(house: House, oak: Hand, offer: pb.Offer) -> None:
    await oak.put(offer, b"out")
    request = oak.completion(offer, b"out")
    forged = oak.completion(offer, b"out", signature=bytes(64))
    assert (await refusal(oak.complete(forged))).name == "Unauthorized"
    ash = Hand(house, "ash")
    await ash.register()
    assert (await refusal(ash.complete(ash.completion(offer, b"out")))).name == "Forbidden"
    stolen = ash.completion(offer, b"out", body=request.body)  # oak's word under ash's key
    assert (await refusal(ash.complete(stolen))).name == "Forbidden"
    first = await oak.complete(request)
    again = await oak.complete(request)
    assert (first.is_repeat, again.is_repeat) == (False, True)
    submitted = [event async for event in _events(house) if isinstance(event, CompletionSubmitted)]
    assert len(submitted) == 1


async def _events(house: House) -> AsyncIterator[Any]:
    last = house.engine.durable.last
    async for recorded in house.engine.tail.follow(type(last)(0)):
        yield recorded.event
        if recorded.number == last:
            return


@pytest.mark.rule("RCV-002")
async def test_another_result_for_the_same_lease_is_refused_and_noted(house: House, oak: Hand, offer: pb.Offer) -> None:
    await oak.put(offer, b"out")
    arriving = await house.blobs.receive()
    await arriving.write(b"two")
    await arriving.keep()
    await oak.complete(oak.completion(offer, b"out"))
    no = await refusal(oak.complete(oak.completion(offer, b"two")))
    assert no.rule == "RCV-002"
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted == result_digest(b"out")


async def test_a_body_that_cannot_be_read_is_refused(house: House, oak: Hand, offer: pb.Offer) -> None:
    no = await refusal(oak.complete(oak.completion(offer, b"out", body=b"\xff")))
    assert (no.name, no.rule) == ("InvalidParams", "PRF-001")


async def test_leases_and_outputs_survive_a_restart_of_the_node(tmp_path: Path) -> None:
    world, key = World(), SigningKey.generate()
    async with housed(tmp_path, world) as house:
        oak = Hand(house, key=key)
        stream = await oak.at_work()
        offer = await oak.leased(stream)
        await stream.act(Act("ack", offer.lease_id))
        await oak.put(offer, b"out")
    async with housed(tmp_path, world) as house:
        oak = Hand(house, key=key)
        stream = await oak.open()
        again = (await stream.read("offer")).offer
        assert (again.lease_id, again.is_acked, again.is_submitted) == (offer.lease_id, True, False)
        await oak.complete(oak.completion(again, b"out"))
        await house.judge(again.lease_id)
        assert (await stream.read("verdict")).verdict.is_accepted
