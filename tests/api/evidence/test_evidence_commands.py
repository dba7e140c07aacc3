"""Commands of evidence: results and failures are decided in the batch that stores them, once, if they are valid."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node, refusal, until
from tests.simulation.journal import Fault
from tests.simulation.world import DEVELOPMENT, World

from holdfast.adapters.keys.signing import verify
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.node_access import LOCAL, RpcCall
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.methods.evidence import RecordPage
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import Event
from holdfast.core.base.values import EventNo, TaskId
from holdfast.core.evidence.messages import EvidenceStored
from holdfast.core.evidence.model import watermark_id
from holdfast.core.lease.messages import CompletionSubmitted, ExpireDue, LeaseAcked, LeaseClosed
from holdfast.core.proof.envelope import signed_bytes
from holdfast.core.proof.messages import CompletionIgnored, ProofAccepted
from holdfast.core.provider.messages import HealthChanged
from holdfast.core.queue.messages import JobFailed
from holdfast.core.result import result_digest
from holdfast.engine.outcome import EngineStatus
from holdfast.lightclient.da import commitment_of
from holdfast.wire.group_signatures import sign_group
from holdfast.wire.signed_messages import OUTPUT_INLINE_BYTES_MAX, to_sign_acceptance

E = TypeVar("E", bound=Event)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
async def oak(node: AgentNode) -> AgentDriver:
    oak = AgentDriver(node)
    await oak.register()
    return oak


def batches_with(node: AgentNode, kind: type[Event]) -> list[list[Event]]:
    return [events for events in node.batches() if any(isinstance(event, kind) for event in events)]


def batch_with(node: AgentNode, kind: type[Event]) -> list[type[Event]]:
    """The kinds of events of the one batch that holds this kind."""
    (found,) = batches_with(node, kind)
    return [type(event) for event in found]


# ------------------------------------------------------------------------------------------------ what records ask for


@pytest.mark.rule("EVD-005", "RCV-001")
async def test_a_result_is_submitted_by_the_batch_that_stores_its_evidence(node: AgentNode) -> None:
    oak = AgentDriver(node)
    work = await oak.start_work()
    offer = await oak.lease_job(work)
    await oak.put(offer, b"out")
    stream = await oak.open_evidence()
    told = [("LEASE_ACCEPTED", {}), oak.completed_record(offer, b"out"), ("BLOCK_FENCE", {})]
    assert await stream.send_and_ack(1, stream.lines(1, *told)) == 3
    assert batch_with(node, CompletionSubmitted) == [EvidenceStored, CompletionSubmitted]
    await node.judge(offer.lease_id)
    assert (await work.read("verdict")).verdict.is_accepted
    assert node.engine.undurable_state.results[TaskId(offer.task_id)].result_digest == result_digest(b"out")


@pytest.mark.rule("EVD-005")
async def test_a_failure_is_decided_by_the_batch_that_stores_its_evidence(node: AgentNode) -> None:
    oak = AgentDriver(node)
    work = await oak.start_work()
    offer = await oak.lease_job(work)
    stream = await oak.open_evidence()
    assert await stream.send_and_ack(1, stream.lines(1, oak.failed_record(offer))) == 1
    assert batch_with(node, LeaseClosed) == [EvidenceStored, LeaseClosed, HealthChanged]
    lost = (await work.read("lost")).lost
    assert (lost.lease_id, lost.reason) == (offer.lease_id, "PROVIDER_FAIL")


@pytest.mark.rule("JOB-012")
async def test_a_claim_that_the_node_itself_contradicts_is_a_failure(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    told = oak.failed_record(offer, "INVALID_INPUT: I do not like it")
    assert await stream.send_and_ack(1, stream.lines(1, told)) == 1
    (batch,) = batches_with(node, LeaseClosed)
    assert [event.reason for event in batch if isinstance(event, LeaseClosed)] == ["PROVIDER_FAIL"]


@pytest.mark.rule("JOB-012")
async def test_a_claim_that_the_node_itself_confirms_ends_the_job(node: AgentNode) -> None:
    oak = AgentDriver(node)
    stream = await oak.start_work()
    await node.enqueue("hi", model="sleep", params={"ms": "long"})
    await node.match()
    offer = (await stream.read("offer")).offer
    evidence = await oak.open_evidence()
    told = oak.failed_record(offer, "INVALID_INPUT: params.ms")
    assert await evidence.send_and_ack(1, evidence.lines(1, told)) == 1
    assert batch_with(node, JobFailed) == [EvidenceStored, LeaseClosed, JobFailed]


@pytest.mark.rule("EVD-005", "PRV-003")
@pytest.mark.parametrize("replay", ["the same stream", "another stream", "another session"])
async def test_evidence_that_is_sent_again_submits_nothing_again(node: AgentNode, replay: str) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    await oak.put(offer, b"out")
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, oak.completed_record(offer, b"out")))
    if replay != "the same stream":
        stream = await oak.open_evidence("s1" if replay == "another stream" else "s2")
    assert await stream.send_and_ack(1, stream.lines(1, oak.completed_record(offer, b"out"))) == 1
    submitted = [event for batch in node.batches() for event in batch if isinstance(event, CompletionSubmitted)]
    assert len(submitted) == 1


@pytest.mark.rule("RCV-001", "PRV-003")
@pytest.mark.parametrize("wrong", ["no bytes", "signature", "no hex", "no fields", "type", "another's lease", "method"])
async def test_a_completion_that_is_not_good_is_kept_as_evidence_and_nothing_else(node: AgentNode, wrong: str) -> None:
    oak, ash = AgentDriver(node), AgentDriver(node, "ash")
    offer = await oak.lease_job(await oak.start_work())
    await ash.register()
    if wrong != "no bytes":
        await oak.put(offer, b"out")
    told: dict[str, dict[str, Any]] = {
        "signature": {"signature": "00" * 64},
        "no hex": {"body": "zz"},
        "no fields": {"body": None},
        "type": {"type": -1},
        "method": {"method": "\ud7ff" * 3},
    }
    who = ash if wrong == "another's lease" else oak
    stream = await who.open_evidence()
    lines = stream.lines(1, who.completed_record(offer, b"out", **told.get(wrong, {})), ("PROGRESS", {}))
    with capture_logs() as logs:
        assert await stream.send_and_ack(1, lines) == 2
    assert await stream.stored_lines() == lines
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted is None
    metrics = node.evidence_metrics
    assert (metrics.invalid_requests, metrics.refused_requests) == ((0, 1) if wrong == "another's lease" else (1, 0))
    assert [line["event"] for line in logs] == ["evidence_rejected"]


@pytest.mark.rule("PRV-003")
async def test_a_failure_that_its_provider_did_not_sign_ends_no_lease(node: AgentNode) -> None:
    oak, ash = AgentDriver(node), AgentDriver(node, "ash")
    offer = await oak.lease_job(await oak.start_work())
    await ash.register()
    forged, another = await oak.open_evidence(), await ash.open_evidence()
    kind, payload = oak.failed_record(offer)
    assert await forged.send_and_ack(1, forged.lines(1, (kind, payload | {"reason": "other"}))) == 1
    assert await another.send_and_ack(1, another.lines(1, ash.failed_record(offer))) == 1
    assert node.lease(offer.lease_id) is not None


async def test_what_the_rules_do_not_allow_any_more_does_not_hold_up_the_channel(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    await oak.put(offer, b"out")
    node.pass_time(600_000)
    stream = await oak.open_evidence()
    lines = stream.lines(1, oak.completed_record(offer, b"out"), oak.failed_record(offer), ("PROGRESS", {}))
    assert await stream.send_and_ack(1, lines) == 3
    assert node.evidence_metrics.refused_requests == 2


@pytest.mark.rule("EVD-005", "EVD-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER])
async def test_when_the_disk_fails_evidence_and_result_are_stored_together_or_not_at_all(
    node: AgentNode, fault: Fault
) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    await oak.put(offer, b"out")
    stream = await oak.open_evidence()
    lines = stream.lines(1, oak.completed_record(offer, b"out"))
    node.world.disk.faults = [fault]
    await stream.send(1, lines)
    assert (await refusal(stream.call.read())).name == "Unavailable"
    await until(lambda: node.engine.status is EngineStatus.RUNNING)
    mark = node.engine.undurable_state.watermarks.get(watermark_id(stream.channel, stream.session))
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert (mark is not None) == (lease.submitted is not None) == (fault is Fault.FAIL_AFTER)
    again = await oak.open_evidence()
    assert again.ack.acked_sequence == (1 if fault is Fault.FAIL_AFTER else 0)
    assert await again.send_and_ack(1, lines) == 1
    assert batch_with(node, CompletionSubmitted) == [EvidenceStored, CompletionSubmitted]


# ------------------------------------------------------------------------------------------------ small outputs


@pytest.mark.rule("EVD-005", "RCV-001", "TIER-001", "PRF-003")
async def test_a_result_with_its_output_is_stored_submitted_and_judged_by_one_batch(node: AgentNode) -> None:
    oak = AgentDriver(node)
    work = await oak.start_work()
    offer = await oak.lease_job(work)
    stream = await oak.open_evidence()
    told = [oak.accepted_record(offer), oak.completed_with_output(offer, b"out"), ("BLOCK_FENCE", {})]
    assert await stream.send_and_ack(1, stream.lines(1, *told)) == 3
    assert batch_with(node, CompletionSubmitted)[:3] == [EvidenceStored, CompletionSubmitted, ProofAccepted]
    assert (await work.read("verdict")).verdict.is_accepted
    assert await node.blobs.read(result_digest(b"out")) == b"out"
    assert node.engine.undurable_state.results[TaskId(offer.task_id)].result_digest == result_digest(b"out")
    assert node.lease(offer.lease_id) is None


@pytest.mark.rule("RCV-001", "TIER-001")
async def test_all_outputs_of_a_message_are_durable_under_one_sync_before_anything_is_submitted(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    oak = AgentDriver(node)
    work = await oak.start_work()
    offers = [await oak.lease_job(work, f"job {number}") for number in range(4)]
    puts: list[tuple[int, int]] = []
    put_many = WarmStore.put_many

    async def watched(self: WarmStore, blobs: Any) -> None:
        await put_many(self, blobs)
        puts.append((len(blobs), len(node.engine.undurable_state.submissions)))

    monkeypatch.setattr(WarmStore, "put_many", watched)
    stream = await oak.open_evidence()
    outputs = [f"output {number}".encode() for number in range(4)]
    told = [oak.completed_with_output(offer, raw) for offer, raw in zip(offers, outputs, strict=True)]
    assert await stream.send_and_ack(1, stream.lines(1, *told)) == 4
    assert puts == [(4, 0)]
    assert [await node.blobs.read(result_digest(raw)) for raw in outputs] == outputs


@pytest.mark.rule("RCV-001")
async def test_without_durable_bytes_nothing_is_submitted_and_the_sender_sends_again(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    lines = stream.lines(1, oak.completed_with_output(offer, b"out"))

    async def fails(self: WarmStore, blobs: Any) -> None:
        raise Unavailable("TIER-001", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(WarmStore, "put_many", fails)
        await stream.send(1, lines)
        assert (await refusal(stream.call.read())).name == "Unavailable"
    assert batches_with(node, EvidenceStored) == []
    again = await oak.open_evidence()
    assert await again.send_and_ack(1, lines) == 1
    assert batch_with(node, CompletionSubmitted)[:2] == [EvidenceStored, CompletionSubmitted]


@pytest.mark.rule("LEA-003", "PRV-003")
async def test_a_delivered_acceptance_is_the_ack(node: AgentNode) -> None:
    oak, ash = AgentDriver(node), AgentDriver(node, "ash")
    offer = await oak.lease_job(await oak.start_work())
    await ash.register()
    theirs, ours = await ash.open_evidence(), await oak.open_evidence()
    await theirs.send_and_ack(1, theirs.lines(1, ash.accepted_record(offer)))
    forged = oak.accepted_record(offer, signature="00" * 64)
    await ours.send_and_ack(1, ours.lines(1, forged, ("LEASE_ACCEPTED", {"lease_id": offer.lease_id.hex()})))
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.acked_ms is None, "signed by another, forged, not signed"
    assert (node.evidence_metrics.refused_requests, node.evidence_metrics.invalid_requests) == (1, 1)
    await ours.send_and_ack(3, ours.lines(3, oak.accepted_record(offer)))
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.acked_ms is not None
    assert batch_with(node, LeaseAcked) == [EvidenceStored, LeaseAcked]


@pytest.mark.rule("PRV-003")
async def test_requests_under_one_signature_are_verified_once_whatever_batch_they_come_in(
    node: AgentNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    oak = AgentDriver(node)
    work = await oak.start_work()
    offers = [await oak.lease_job(work, f"job {number}") for number in range(4)]
    signatures = sign_group(oak.key.sign, [to_sign_acceptance(offer.lease_id) for offer in offers])
    told = [
        oak.accepted_record(offer, signature=signature.hex())
        for offer, signature in zip(offers, signatures, strict=True)
    ]
    calls: list[bytes] = []

    def counted(public: bytes, message: bytes, signature: bytes) -> bool:
        calls.append(message)
        return verify(public, message, signature)

    stream = await oak.open_evidence()
    monkeypatch.setattr(node.agent_context, "verify", counted)
    assert await stream.send_and_ack(1, stream.lines(1, *told[:3])) == 3
    assert len(calls) == 1
    assert await stream.send_and_ack(4, stream.lines(4, told[3])) == 4
    acked = [lease.acked_ms for offer in offers if (lease := node.lease(offer.lease_id)) is not None]
    assert len(acked) == 4
    assert None not in acked


@pytest.mark.rule("RCV-001")
@pytest.mark.parametrize(
    ("output", "name"),
    [
        (b"other", "NoOutput"),
        (b"ou", "NoOutput"),
        (b"x" * (OUTPUT_INLINE_BYTES_MAX + 1), "TooLarge"),
        ("?", "Malformed"),
    ],
)
async def test_an_output_that_is_not_the_proved_one_submits_nothing(
    node: AgentNode, output: bytes | str, name: str
) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    sent = output if isinstance(output, str) else base64.b64encode(output).decode()
    lines = stream.lines(1, oak.completed_record(offer, b"out", output=sent))
    assert await stream.send_and_ack(1, lines) == 1
    lease = node.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted is None
    assert [each.name for each in node.engine.undurable_state.dead_letters.values()] == [name]


@pytest.mark.rule("RCV-001", "PRV-003")
async def test_an_output_without_a_live_lease_of_its_sender_is_not_put_on_the_disk(node: AgentNode) -> None:
    oak, ash = AgentDriver(node), AgentDriver(node, "ash")
    offer = await oak.lease_job(await oak.start_work())
    await ash.register()
    stream = await ash.open_evidence()
    assert await stream.send_and_ack(1, stream.lines(1, ash.completed_with_output(offer, b"out"))) == 1
    node.pass_time(600_000)
    await node.do(ExpireDue())
    ours = await oak.open_evidence()
    assert await ours.send_and_ack(1, ours.lines(1, oak.completed_with_output(offer, b"out"))) == 1
    assert await node.blobs.size(result_digest(b"out")) is None


@pytest.mark.rule("RCV-002", "RCV-001")
async def test_of_two_results_in_one_message_the_first_counts_and_both_are_durable(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    told = [
        oak.completed_with_output(offer, b"wrong method", method="other"),
        oak.completed_with_output(offer, b"first"),
        oak.completed_with_output(offer, b"second"),
    ]
    told[0][1]["signature"] = oak.key.sign(signed_bytes(1, "other", bytes.fromhex(told[0][1]["body"]))).hex()
    assert await stream.send_and_ack(1, stream.lines(1, *told)) == 3
    assert node.engine.undurable_state.results[TaskId(offer.task_id)].result_digest == result_digest(b"first")
    assert [await node.blobs.read(result_digest(raw)) for raw in (b"first", b"second")] == [b"first", b"second"]


@pytest.mark.rule("RCV-002", "PRV-004")
@pytest.mark.parametrize(("is_second_held", "is_first_first"), [(True, True), (False, True), (False, False)])
async def test_two_different_results_sent_at_once_are_recorded_and_slashed(
    node: AgentNode, is_second_held: bool, is_first_first: bool
) -> None:
    """In one message: when both are read, none is submitted yet. The one whose bytes the node has counts."""
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    second = (oak.completed_with_output if is_second_held else oak.completed_record)(offer, b"second")
    told = [oak.completed_with_output(offer, b"first"), second]
    assert await stream.send_and_ack(1, stream.lines(1, *(told if is_first_first else reversed(told)))) == 2
    (batch,) = batches_with(node, CompletionSubmitted)
    (ignored,) = [event for event in batch if isinstance(event, CompletionIgnored)]
    assert (ignored.digest, ignored.reason) == (result_digest(b"second"), "EQUIVOCATION")
    provider = node.engine.undurable_state.providers[oak.id]
    assert (provider.slashed, provider.status) == (2_500, "JAILED")


@pytest.mark.rule("RCV-002", "PRV-004")
async def test_two_different_results_called_at_once_are_recorded_and_slashed(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    for output in (b"first", b"second"):
        await oak.put(offer, output)
    calls = [oak.complete(oak.completion(offer, output)) for output in (b"first", b"second")]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, BaseException) for answer in answers) == 1
    assert [event.reason for event in events_of(node, CompletionIgnored)] == ["EQUIVOCATION"]
    assert node.engine.undurable_state.providers[oak.id].slashed == 2_500


@pytest.mark.rule("RCV-002", "PRV-004")
async def test_another_result_that_comes_as_evidence_long_after_the_verdict_is_recorded_and_slashed(
    node: AgentNode,
) -> None:
    """Memory has forgotten the lease; its row has what was submitted."""
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, oak.completed_with_output(offer, b"first")))
    await node.engine.wait_tables()
    node.engine.undurable_state.attempts.pop(TaskId(offer.task_id))
    await stream.send_and_ack(2, stream.lines(2, oak.completed_with_output(offer, b"second")))
    assert [event.reason for event in events_of(node, CompletionIgnored)] == ["EQUIVOCATION"]
    assert node.engine.undurable_state.providers[oak.id].slashed == 2_500


def events_of(node: AgentNode, kind: type[E]) -> list[E]:
    return [event for batch in node.batches() for event in batch if isinstance(event, kind)]


@pytest.mark.rule("PRF-002")
async def test_a_result_with_another_method_waits_for_its_verifier(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    node.engine.undurable_state.queue.jobs[TaskId(offer.task_id)].proof = "recompute"
    body = oak.completion(offer, b"out").body
    signature = oak.key.sign(signed_bytes(1, "recompute", body))
    stream = await oak.open_evidence()
    told = oak.completed_with_output(offer, b"out", method="recompute", signature=signature.hex())
    assert await stream.send_and_ack(1, stream.lines(1, told)) == 1
    assert batch_with(node, CompletionSubmitted) == [EvidenceStored, CompletionSubmitted]


@pytest.mark.rule("TIER-001", "DA-001")
async def test_an_output_above_the_hot_limit_gets_its_commitment_with_the_verdict(tmp_path: Path) -> None:
    never_hot = msgspec.structs.replace(
        DEVELOPMENT, result=msgspec.structs.replace(DEVELOPMENT.result, max_inline_bytes=0)
    )
    async with agent_node(tmp_path, World(policy=never_hot)) as node:
        oak = AgentDriver(node)
        offer = await oak.lease_job(await oak.start_work())
        stream = await oak.open_evidence()
        assert await stream.send_and_ack(1, stream.lines(1, oak.completed_with_output(offer, b"out"))) == 1
        (accepted,) = [event for batch in node.batches() for event in batch if isinstance(event, ProofAccepted)]
        assert accepted.da_commitment == commitment_of(b"alice", b"out")
        assert accepted.output is None


@pytest.mark.rule("TIER-001", "RCV-001")
async def test_bytes_that_are_being_deleted_are_sent_again_later(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    lines = stream.lines(1, oak.completed_with_output(offer, b"out"))
    pending = node.engine.undurable_state.warm_deletes_pending
    pending[result_digest(b"out")] = EventNo(1)
    await stream.send(1, lines)
    assert (await refusal(stream.call.read())).name == "Unavailable"
    del pending[result_digest(b"out")]
    again = await oak.open_evidence()
    assert await again.send_and_ack(1, lines) == 1
    assert node.lease(offer.lease_id) is None


@pytest.mark.rule("RPC-002")
async def test_readers_of_evidence_do_not_see_payloads_and_outputs(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    secret = base64.b64encode(b"a secret answer").decode()
    told = [
        oak.accepted_record(offer, payload=secret),
        oak.completed_with_output(offer, b"a secret answer"),
        ("PROGRESS", {"output": "as it is", "note": "LEASE_COMPLETED"}),
    ]
    lines = stream.lines(1, *told)
    assert await stream.send_and_ack(1, lines) == 3
    call = RpcCall("evidence.listRecords", LOCAL)
    method = METHODS["evidence.listRecords"]
    page = await method.handle(node.access, call, method.params(channel=stream.channel, session="s1"))
    assert isinstance(page, RecordPage)
    assert secret not in "".join(page.lines)
    assert page.lines[2].encode() == lines[2], "other records are shown byte for byte"
    shown = [msgspec.json.decode(line)["payload"] for line in page.lines]
    assert (shown[0]["payload"], shown[1]["output"]) == ({"hidden_characters": len(secret)},) * 2
    assert await stream.stored_lines() == lines, "what is stored is what was sent"
