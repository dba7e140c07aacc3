"""Results over HTTP for whoever watches: who is told when one is resolved or used, and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.core.ways import ALICE
from tests.doors.http_house import House, a_door
from tests.doors.results import Shop, shop
from tests.doors.test_http_events import stream

from holdfast.core.key import Role
from holdfast.core.result import result_digest
from holdfast.core.result.acts import Consume
from holdfast.core.values import Digest


@pytest.fixture
async def here() -> AsyncIterator[Shop]:
    async with shop() as made:
        yield made


@pytest.fixture
async def house(here: Shop) -> AsyncIterator[House]:
    async with a_door(here.desk, here.world, public_metrics=True) as door:
        yield House(here.world, here.engine, here.desk, door)


@pytest.mark.rule("EVT-001", "RPC-002")
async def test_whoever_asked_is_told_when_its_job_is_completed_and_gets_no_bytes(here: Shop, house: House) -> None:
    token = await house.token(Role.REQUESTER)
    job = await here.resolved(b"output")
    async with stream(house, token, "?types=cap.jobCompleted&after=0") as events:
        _, topic, told = await events.event()
    assert topic == "cap.jobCompleted"
    said = told["event"]
    assert (said["task_id"], said["height_resolved"]) == (job.hex(), 2)
    assert said["result_digest"] == result_digest(b"output").hex()
    assert "output" not in said


@pytest.mark.rule("EVT-001")
async def test_another_requester_is_not_told(here: Shop, house: House) -> None:
    token = await house.token(Role.REQUESTER, account="bob")
    job = await here.readable()
    await here.do(Consume(job, ALICE, Digest(bytes(32))))
    await house.mint(77, owner="bob")
    async with stream(house, token, "?after=0") as events:
        seen = await events.events(2)
    assert [topic for _, topic in seen] == ["KeyMade", "Minted"]


@pytest.mark.rule("OBS-001")
async def test_results_are_counted_under_the_names_that_the_source_prints(here: Shop, house: House) -> None:
    job = await here.readable()
    await here.readable()
    await here.do(Consume(job, ALICE, Digest(bytes(32))))
    await here.back(2)  # the second result is in block 3
    await house.call("cap.getResult", task_id=job.hex())
    async with house.client() as client:
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
