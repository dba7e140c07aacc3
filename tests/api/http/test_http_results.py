"""Results over HTTP for whoever watches: who is told when one is resolved or used, and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.http.http_node import HttpNode, http_server
from tests.api.http.test_sse import stream
from tests.api.result_node import ResultNode, result_node
from tests.core.core_driver import ALICE

from holdfast.core.base.values import Digest
from holdfast.core.key.model import Role
from holdfast.core.result import result_digest
from holdfast.core.result.messages import Consume


@pytest.fixture
async def results() -> AsyncIterator[ResultNode]:
    async with result_node() as made:
        yield made


@pytest.fixture
async def node(results: ResultNode) -> AsyncIterator[HttpNode]:
    async with http_server(results.access, results.world, public_metrics=True) as door:
        yield HttpNode(results.world, results.engine, results.access, door)


@pytest.mark.rule("EVT-001", "RPC-002")
async def test_the_requester_is_notified_when_its_job_is_completed_and_gets_no_bytes(
    results: ResultNode, node: HttpNode
) -> None:
    token = await node.token(Role.REQUESTER)
    job = await results.resolved(b"output")
    async with stream(node, token, "?types=cap.jobCompleted&after=0") as events:
        _, topic, told = await events.event()
    assert topic == "cap.jobCompleted"
    said = told["event"]
    assert (said["task_id"], said["height_resolved"]) == (job.hex(), 2)
    assert said["result_digest"] == result_digest(b"output").hex()
    assert "output" not in said


@pytest.mark.rule("EVT-001")
async def test_another_requester_is_not_notified(results: ResultNode, node: HttpNode) -> None:
    token = await node.token(Role.REQUESTER, account="bob")
    job = await results.readable()
    await results.do(Consume(job, ALICE, Digest(bytes(32))))
    await node.mint(77, owner="bob")
    async with stream(node, token, "?after=0") as events:
        topics = [topic for _, topic in await events.events(1)]
        while topics[-1] != "minted":
            topics += [topic for _, topic in await events.events(1)]
    assert [topic for topic in topics if not topic.startswith("block")] == ["keyCreated", "minted"]


@pytest.mark.rule("OBS-001")
async def test_results_are_counted_under_the_names_that_the_source_prints(results: ResultNode, node: HttpNode) -> None:
    job = await results.readable()
    await results.readable()
    await results.do(Consume(job, ALICE, Digest(bytes(32))))
    await results.roll_back(2)  # the second result is in block 3
    await node.call("cap.getResult", task_id=job.hex())
    async with node.client() as client:
        text = (await client.get("/metrics")).text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith("cap_results")
        for sample in family.samples
    }
    assert found["cap_results_resolved_total", "AI"] == 3  # two, and one of them again
    assert found["cap_results_resolved_total", "QUANTUM"] == 0
    assert found["cap_results_consumed_total", "AI"] == 1
    assert found["cap_results_reorg_rollbacks_total",] == 1
    assert found["cap_results_lookup_latency_ms_count",] == 1
    assert found["cap_results_lookup_latency_ms_bucket", "+Inf"] == 1
    assert ("cap_results_lookup_latency_ms_bucket", "0.5") in found
