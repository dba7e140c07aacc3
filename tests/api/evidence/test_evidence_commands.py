"""Commands of evidence: results and failures are decided in the batch that stores them, once, if they are valid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node, refusal, until
from tests.simulation.journal import Fault

from holdfast.core.base.event import Event
from holdfast.core.base.values import TaskId
from holdfast.core.evidence.messages import EvidenceStored
from holdfast.core.evidence.model import watermark_id
from holdfast.core.lease.messages import CompletionSubmitted, LeaseClosed
from holdfast.core.provider.messages import HealthChanged
from holdfast.core.result import result_digest
from holdfast.engine.outcome import EngineStatus


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
async def oak(node: AgentNode) -> AgentDriver:
    oak = AgentDriver(node)
    await oak.register()
    return oak


def batch_with(node: AgentNode, kind: type[Event]) -> list[type[Event]]:
    """The kinds of events of the one batch that holds this kind."""
    (found,) = [events for events in node.batches() if any(isinstance(event, kind) for event in events)]
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
