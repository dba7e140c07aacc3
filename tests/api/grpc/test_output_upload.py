"""Outputs and results at the node: durable before they are answered, submitted once, by their signer alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node, refusal, until
from tests.api.grpc.grpc_server import connected_channel
from tests.simulation.world import World

from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.warm_store import path_of
from holdfast.api.grpc.services import output_upload
from holdfast.api.grpc.services.output_limit import ENDED_LEASES_KEPT, OUTPUTS_MAX, OutputLimit
from holdfast.core.base.values import Digest, EventNo, Height, LeaseId
from holdfast.core.lease.messages import CompletionSubmitted
from holdfast.core.proof.envelope import body_of
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass
from holdfast.core.retention.messages import ConfirmDeleted, DropWarm, PageRange
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.signed_messages import AgentAct


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
def oak(node: AgentNode) -> AgentDriver:
    return AgentDriver(node)


# ------------------------------------------------------------------------------------------------ outputs


@pytest.fixture
async def offer(node: AgentNode, oak: AgentDriver) -> pb.Offer:
    return await oak.lease_job(await oak.start_work())


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize("size", [0, 1, 65_536, (1 << 20) + 7])
async def test_an_output_is_held_under_its_digest_when_the_answer_comes(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer, size: int
) -> None:
    output = os.urandom(size)
    answer = await oak.put(offer, output)
    assert (answer.digest, answer.size) == (result_digest(output), size)
    assert await node.blobs.read(result_digest(output)) == output


@pytest.mark.rule("TIER-001")
async def test_what_is_held_already_need_not_be_sent(node: AgentNode, oak: AgentDriver, offer: pb.Offer) -> None:
    await oak.put(offer, b"out")
    answer = await oak.announce(offer, b"out")
    assert (answer.digest, answer.size) == (result_digest(b"out"), 3)


@pytest.mark.rule("JOB-010")
async def test_what_another_lease_has_sent_must_be_sent_again(node: AgentNode, oak: AgentDriver) -> None:
    """Else whoever guesses an output learns whether somebody has it, and a replica need not do the work."""
    stream = await oak.start_work()
    first, second = await oak.lease_job(stream, "one"), await oak.lease_job(stream, "two")
    await oak.put(first, b"out")
    no = await refusal(oak.announce(second, b"out"))
    assert (no.name, no.rule) == ("InvalidRequest", "TIER-001")
    assert (await oak.put(second, b"out")).size == 3
    assert (await oak.announce(second, b"out")).size == 3


@pytest.mark.rule("TIER-001")
async def test_another_lease_must_send_every_byte_of_what_is_held_already(node: AgentNode, oak: AgentDriver) -> None:
    """Whoever learned that a digest is held would learn what another job's output is."""
    stream = await oak.start_work()
    one, two = await oak.lease_job(stream), await oak.lease_job(stream, "again")
    await oak.put(one, b"out")
    no = await refusal(oak.announce(two, b"out"))
    assert (no.rule, no.hint) == ("TIER-001", "send the output again")
    await oak.put(two, b"out")
    assert (await oak.announce(two, b"out")).size == 3


@pytest.mark.rule("TIER-001", "RCV-001")
@pytest.mark.parametrize("rotten", [b"tuo", b"ou", b"out!"])
async def test_a_damaged_copy_is_not_held_and_the_good_one_takes_its_place(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer, rotten: bytes
) -> None:
    await oak.put(offer, b"out")
    path_of(node.folder / "warm", result_digest(b"out")).write_bytes(rotten)
    assert (await refusal(oak.announce(offer, b"out"))).hint == "send the output again"
    await oak.put(offer, b"out")
    assert await node.blobs.read(result_digest(b"out")) == b"out"
    assert [path.read_bytes() for path in (node.folder / "warm" / "damaged").iterdir()] == [rotten]
    await oak.complete(oak.completion(offer, b"out"))


@pytest.mark.rule("TIER-001")
async def test_an_output_that_was_submitted_may_be_sent_again(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
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
        ({"size": output_upload.OUTPUT_BYTES_MAX + 1}, [], "TooLarge"),
        ({"digest": b"short"}, [], "InvalidParams"),
        ({"lease_id": bytes(32)}, [], "LeaseLost"),
        ({"signature": bytes(64)}, [], "Unauthorized"),
        ({"public": bytes(32)}, [], "Unauthorized"),
    ],
)
async def test_an_output_that_is_not_what_was_announced_and_signed_leaves_nothing(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer, told: dict[str, Any], more: list[pb.PutOutputRequest], name: str
) -> None:
    """What is refused comes last: who still writes then may report its own failure to write instead."""
    header = pb.PutOutputRequest(header=oak.header(offer, b"out", **told))
    no = await refusal(oak.put_all([header, *more]))
    assert no.name == name
    assert node.files() == []


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize("parts", [[], [b"o"], [b"out"]])
async def test_a_stream_that_only_ends_has_uploaded_nothing(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer, parts: list[bytes]
) -> None:
    requests = [pb.PutOutputRequest(header=oak.header(offer, b"out"))]
    no = await refusal(oak.put_all(requests + [part(raw) for raw in parts]))
    assert (no.rule, no.name) == ("TIER-001", "InvalidRequest")
    assert node.files() == []


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize("how", ["cancelled", "hung up"])
async def test_a_stream_that_is_cut_in_mid_output_leaves_nothing(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer, how: str
) -> None:
    async with connected_channel(node.server) as line:
        call = type(oak.stub)(line).PutOutput()
        await call.write(pb.PutOutputRequest(header=oak.header(offer, b"x" * 200_000)))
        await call.write(pb.PutOutputRequest(part=b"x" * 100_000))
        await until(lambda: any(path.stat().st_size == 100_000 for path in node.files()))
        call.cancel() if how == "cancelled" else await line.close(0)
        await until(lambda: node.files() == [])
    assert await node.blobs.size(Digest(result_digest(b"x" * 200_000))) is None


async def test_an_output_begins_with_its_header_and_goes_on_with_parts(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    assert (await refusal(oak.put_all([part(b"out")]))).name == "InvalidRequest"
    assert (await refusal(oak.put_all([]))).name == "InvalidRequest"
    header = pb.PutOutputRequest(header=oak.header(offer, b"out"))
    assert (await refusal(oak.put_all([header, header]))).name == "InvalidRequest"
    assert (await refusal(oak.put_all([header, pb.PutOutputRequest()]))).name == "InvalidRequest"
    large = pb.PutOutputRequest(header=oak.header(offer, bytes(2 << 20)))
    assert (await refusal(oak.put_all([large, part(bytes((1 << 20) + 1))]))).name == "TooLarge"
    assert node.files() == []


async def test_an_output_shorter_than_announced_is_refused_with_that_reason(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    header = pb.PutOutputRequest(header=oak.header(offer, b"out"))
    no = await refusal(oak.put_all([header, part(b"ou"), END]))
    assert no.message == "2 bytes were received, 3 were announced"


async def test_an_output_of_a_lease_that_is_over_is_not_taken(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    node.pass_time(600_000)
    assert (await refusal(oak.announce(offer, b"out"))).name == "LeaseLost"


@pytest.mark.rule("TIER-001")
async def test_a_lease_is_good_for_a_few_outputs_and_one_more_is_refused(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    outputs_ = [b"out %d" % number for number in range(OUTPUTS_MAX + 1)]
    for output in outputs_[:-1]:
        await oak.put(offer, output)
    no = await refusal(oak.announce(offer, outputs_[-1]))
    assert (no.rule, no.name, no.hint) == ("TIER-001", "TooLarge", "complete it with one of them, or fail it")
    assert len(node.files()) == OUTPUTS_MAX
    assert (await oak.announce(offer, outputs_[0])).size == 5  # the same again is none more
    await oak.complete(oak.completion(offer, outputs_[3]))
    assert (await oak.announce(offer, outputs_[3])).size == 5


@pytest.mark.rule("TIER-001")
async def test_each_lease_is_counted_for_itself_and_also_what_was_only_announced(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.start_work()
    one, two = await oak.lease_job(stream), await oak.lease_job(stream, "again")
    for number in range(OUTPUTS_MAX):
        assert (await refusal(oak.announce(one, b"out %d" % number))).name == "InvalidRequest"  # and nothing comes
    assert (await refusal(oak.announce(one, b"another"))).name == "TooLarge"
    assert (await oak.put(one, b"out 0")).size == 5
    assert (await oak.put(two, b"another")).size == 7
    ash = AgentDriver(node, "ash")
    await ash.register()
    assert (await refusal(ash.announce(two, b"mine"))).name == "Forbidden"
    assert len(node.agent_context.output_limit) == 2


@pytest.mark.rule("TIER-001")
def test_leases_that_are_over_are_forgotten() -> None:
    taken, live = OutputLimit(), {LeaseId(bytes([number]) * 32) for number in range(10)}
    for number in range(1_000):
        id_ = LeaseId(number.to_bytes(32, "big"))
        if taken.must_forget(len(live)):
            taken.forget_ended(live)
        assert taken.why_not_output(id_, Digest(bytes(32))) is None
        assert len(taken) <= 2 * len(live) + ENDED_LEASES_KEPT + 1
    for id_ in live:
        taken.why_not_output(id_, Digest(bytes(32)))
    for number in range(ENDED_LEASES_KEPT + 20):
        taken.why_not_output(LeaseId(number.to_bytes(32, "big")), Digest(bytes(32)))
    assert taken.must_forget(len(live))
    taken.forget_ended(live)
    assert len(taken) == len(live)


@pytest.mark.rule("TIER-001", "RET-002", "RCV-001")
async def test_bytes_that_are_just_being_deleted_are_to_be_sent_again_and_are_held_then(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    await oak.put(offer, b"out")
    digest, state = result_digest(b"out"), node.engine.undurable_state
    await node.do(DropWarm(PageRange(state.last_event, Height(0), EventNo(0)), orphans=((digest, 3),)))
    no = await refusal(oak.announce(offer, b"out"))
    assert (no.rule, no.name, no.hint) == ("TIER-001", "Unavailable", "send the output again")
    no = await refusal(oak.complete(oak.completion(offer, b"out")))
    assert (no.rule, no.hint) == ("RCV-001", "send the output again, then complete")
    await node.blobs.delete(digest)
    await node.do(ConfirmDeleted(Pass.WARM))
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))


# ------------------------------------------------------------------------------------------------ completing


@pytest.mark.rule("RCV-001")
async def test_a_result_without_its_bytes_is_not_taken(node: AgentNode, oak: AgentDriver, offer: pb.Offer) -> None:
    no = await refusal(oak.complete(oak.completion(offer, b"out")))
    assert (no.rule, no.hint) == ("RCV-001", "send the output first")
    await oak.put(offer, b"out")
    await oak.complete(oak.completion(offer, b"out"))
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted == result_digest(b"out")


@pytest.mark.rule("JOB-010")
async def test_a_result_whose_bytes_another_lease_has_sent_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    """Else a replica that learns a digest need not do the work; who has sent the bytes need not send them again."""
    world, key = World(), SigningKey.generate()
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node, key=key)
        stream = await oak.start_work()
        one, two = await oak.lease_job(stream), await oak.lease_job(stream, "again")
        await oak.put(one, b"out")
        assert (await refusal(oak.complete(oak.completion(two, b"out")))).rule == "JOB-010"
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node, key=key)
        no = await refusal(oak.complete(oak.completion(two, b"out")))
        assert (no.rule, no.hint) == ("JOB-010", "send the output first")
        evidence = await oak.open_evidence()
        assert await evidence.send_and_ack(1, evidence.lines(1, oak.completed_record(two, b"out"))) == 1
        lease = node.lease(two.lease_id)
        assert lease is not None
        assert lease.submitted is None
        await oak.complete(oak.completion(one, b"out"))
        await oak.put(two, b"out")
        await oak.complete(oak.completion(two, b"out"))


@pytest.mark.rule("JOB-010", "RCV-002")
async def test_a_result_that_came_with_its_bytes_may_be_submitted_again_without_them(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, oak.completed_with_output(offer, b"out")))
    assert (await oak.complete(oak.completion(offer, b"out"))).is_repeat


@pytest.mark.rule("RCV-001")
@pytest.mark.parametrize("size", [2, 4])
async def test_a_result_whose_size_is_another_than_that_of_the_bytes_is_not_taken(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer, size: int
) -> None:
    await oak.put(offer, b"out")
    body = body_of(offer.task_id, offer.lease_id, oak.id, result_digest(b"out"), size, {})
    assert (await refusal(oak.complete(oak.completion(offer, b"out", body=body)))).rule == "RCV-001"


@pytest.mark.rule("PRV-003", "RCV-001")
async def test_a_result_is_submitted_once_and_by_its_signer_alone(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    await oak.put(offer, b"out")
    request = oak.completion(offer, b"out")
    forged = oak.completion(offer, b"out", signature=bytes(64))
    assert (await refusal(oak.complete(forged))).name == "Unauthorized"
    ash = AgentDriver(node, "ash")
    await ash.register()
    assert (await refusal(ash.complete(ash.completion(offer, b"out")))).name == "Forbidden"
    stolen = ash.completion(offer, b"out", body=request.body)  # oak's word under ash's key
    assert (await refusal(ash.complete(stolen))).name == "Forbidden"
    first = await oak.complete(request)
    again = await oak.complete(request)
    assert (first.is_repeat, again.is_repeat) == (False, True)
    submitted = [event async for event in _events(node) if isinstance(event, CompletionSubmitted)]
    assert len(submitted) == 1


async def _events(node: AgentNode) -> AsyncIterator[Any]:
    last = node.engine.durable_head.last
    async for recorded in node.engine.event_stream.follow(type(last)(0)):
        yield recorded.event
        if recorded.number == last:
            return


@pytest.mark.rule("RCV-002")
async def test_another_result_for_the_same_lease_is_refused_and_noted(
    node: AgentNode, oak: AgentDriver, offer: pb.Offer
) -> None:
    await oak.put(offer, b"out")
    arriving = await node.blobs.receive()
    await arriving.write(b"two")
    await arriving.keep()
    await oak.complete(oak.completion(offer, b"out"))
    no = await refusal(oak.complete(oak.completion(offer, b"two")))
    assert no.rule == "RCV-002"
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted == result_digest(b"out")


async def test_a_body_that_cannot_be_read_is_refused(node: AgentNode, oak: AgentDriver, offer: pb.Offer) -> None:
    no = await refusal(oak.complete(oak.completion(offer, b"out", body=b"\xff")))
    assert (no.name, no.rule) == ("InvalidParams", "PRF-001")


async def test_leases_and_outputs_survive_a_restart_of_the_node(tmp_path: Path) -> None:
    world, key = World(), SigningKey.generate()
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node, key=key)
        stream = await oak.start_work()
        offer = await oak.lease_job(stream)
        await stream.act(AgentAct("ack", offer.lease_id))
        await oak.put(offer, b"out")
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node, key=key)
        stream = await oak.open()
        again = (await stream.read("offer")).offer
        assert (again.lease_id, again.is_acked, again.is_submitted) == (offer.lease_id, True, False)
        await oak.complete(oak.completion(again, b"out"))
        await node.judge(again.lease_id)
        assert (await stream.read("verdict")).verdict.is_accepted
