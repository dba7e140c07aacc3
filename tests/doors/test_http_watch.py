"""What whoever watches a node is told: that it lives, whether it answers, what was counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.doors.http_house import WITHIN_S, House, beside, name_of, opened, request, until
from tests.simulated.journal import Fault

from holdfast.core.key import Role
from holdfast.core.refusal import Corrupt
from holdfast.engine.follower import Follower

pytestmark = pytest.mark.rule("OBS-001")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with opened(ready_ms=int(WITHIN_S * 1_000)) as house:
        yield house


async def counts(house: House) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    async with house.client() as client:
        said = await client.get("/metrics")
    assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(said.text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


async def ready(house: House) -> tuple[int, str]:
    async with house.client() as client:
        said = await client.get("/readyz")
        assert (await client.get("/healthz")).json() == {"status": "alive"}
    return said.status_code, said.json().get("message", said.json()["status"])


async def test_a_node_that_answers_is_ready(house: House) -> None:
    assert await ready(house) == (200, "ready")
    async with house.client() as client:
        assert (await client.get("/readyz")).json()["phase"] == "running"
        head = await client.head("/readyz")
        assert (head.status_code, head.content) == (200, b"")


async def test_a_node_whose_disk_hangs_is_alive_and_not_ready(house: House) -> None:
    house.world.disk.faults = [Fault.HANG]
    minting = asyncio.create_task(house.mint(1))
    await until(lambda: house.engine.state.ledger.accounts)
    async with beside(house, ready_ms=80) as impatient:
        assert await ready(impatient) == (503, "no answer within 80 ms")
    house.world.disk.release.set()
    await minting
    assert await ready(house) == (200, "ready")


async def test_a_node_that_stopped_is_alive_and_not_ready(house: House) -> None:
    await house.engine.stop()
    assert await ready(house) == (503, "the node is stopped")


async def test_a_node_that_failed_says_why_it_is_not_ready(house: House) -> None:
    house.world.disk.faults = [Fault.FORGET, Fault.FAIL]
    await house.mint(1)
    house.world.disk.own_faults = 0
    with pytest.raises(Exception, match="did not confirm"):
        await house.mint(2)
    await until(lambda: house.engine.fault is not None)
    status, says = await ready(house)
    assert (status, "was confirmed" in says) == (503, True)


async def test_a_follower_is_ready_until_what_it_follows_is_damaged(house: House) -> None:
    world = house.world
    follower = Follower(house.engine.journal, world.tables, world.files, world.clock, world.policy)
    await follower.load()
    house.desk.source = follower
    assert await ready(house) == (200, "ready")
    follower.fault = Corrupt("ENG-001", "batch 7 does not follow batch 6")
    status, says = await ready(house)
    assert (status, "batch 7" in says) == (503, True)
    house.desk.source = house.engine


async def test_requests_are_counted_by_method_and_outcome(house: House) -> None:
    token = await house.token()
    for _ in range(3):
        await house.call("node.status")
    await house.call("account.show", token, owner="nobody")
    await house.call("account.show", owner="nobody")
    await house.call("no.such")
    await house.post(b"{")
    async with house.client() as client:
        await client.post("/rpc", json=[request("node.status"), request("no.such")])
        await client.post("/rpc", json=[request("node.status")])
        await client.get("/nowhere")
    found = await counts(house)
    total = "holdfast_requests_total"
    assert {key[1:]: value for key, value in found.items() if key[0] == total} == {
        ("node.status", "ok"): 3,
        ("account.show", "NotFound"): 1,
        ("account.show", "Unauthorized"): 1,
        ("(unknown)", "MethodNotFound"): 1,
        ("(unreadable)", "ParseError"): 1,
        ("(batch)", "mixed"): 1,
        ("(batch)", "ok"): 1,
    }
    assert found["holdfast_refusals_total", "NotFound"] == 1
    assert found["holdfast_request_seconds_count", "node.status"] == 3
    assert found["holdfast_request_seconds_bucket", "+Inf", "node.status"] == 3
    assert found["holdfast_request_seconds_sum", "node.status"] > 0


async def test_names_that_clients_make_up_do_not_fill_the_memory(house: House) -> None:
    for number in range(20):
        await house.call(f"made.up{number}")
    assert len(house.door.tally.requests) == 1


async def test_the_engine_and_the_tables_are_seen(house: House) -> None:
    await house.mint(1, 2, 3)
    await house.engine.projector.drain()
    found = await counts(house)
    assert found["holdfast_journal_event",] == house.engine.durable.last == 4
    assert found["holdfast_journal_batch",] == house.engine.durable.number
    assert (found["holdfast_owner",], found["holdfast_tables_lag_events",]) == (1, 0)
    assert found["holdfast_connections",] >= 1
    assert found["holdfast_subscribers",] == 0


async def test_pauses_of_the_collector_are_seen_while_the_door_is_open() -> None:
    async with opened() as house:
        before = (await counts(house))["holdfast_collector_pause_seconds_count",]
        gc.collect()
        assert (await counts(house))["holdfast_collector_pause_seconds_count",] > before
    assert not [each for each in gc.callbacks if getattr(each, "__self__", None) is house.door.tally]


async def test_two_doors_count_apart() -> None:
    async with opened() as one, opened() as two:
        await one.call("node.status")
        assert ("holdfast_requests_total", "node.status", "ok") in await counts(one)
        assert ("holdfast_requests_total", "node.status", "ok") not in await counts(two)


@pytest.mark.rule("SEC-001")
async def test_metrics_can_be_for_those_who_look_after_the_node() -> None:
    async with opened(public_metrics=False) as house:
        for token, status in (
            (None, 401),
            (await house.token(Role.REQUESTER), 403),
            (await house.token(Role.AUDITOR), 200),
            (await house.token(), 200),
        ):
            async with house.client(token) as client:
                said = await client.get("/metrics")
                assert said.status_code == status
                assert status == 200 or name_of(said) in ("Unauthorized", "Forbidden")


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("path", ["/metrics", "/openrpc.json"])
async def test_what_is_open_to_all_is_looked_at_as_often_as_anything_is_asked(path: str) -> None:
    """And whoever looks too often can still ask, and is still told that the node lives."""
    async with opened(batch_max=2, address_burst=2, address_per_s=1) as house, house.client() as client:
        assert [(await client.get(path)).status_code for _ in range(3)] == [200, 200, 429]
        assert [(await client.get(each)).status_code for each in ("/healthz", "/readyz")] == [200, 200]
        assert (await house.call("node.status")).status_code == 200
        house.world.clock.monotonic += 1_000
        assert [(await client.get(path)).status_code for _ in range(2)] == [200, 429]
