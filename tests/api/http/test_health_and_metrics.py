"""What whoever watches a node is told: that it lives, whether it answers, what was counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.http.http_node import WITHIN_S, HttpNode, http_node, name_of, request, second_server, until
from tests.simulation.journal import Fault

from holdfast.api.front.settings import FrontCounts
from holdfast.core.base.errors import Corrupt
from holdfast.core.key.model import Role
from holdfast.engine.follower import Follower

pytestmark = pytest.mark.rule("OBS-001")


@pytest.fixture
async def node() -> AsyncIterator[HttpNode]:
    async with http_node(ready_ms=int(WITHIN_S * 1_000)) as node:
        yield node


async def metric_samples(node: HttpNode) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    async with node.client() as client:
        said = await client.get("/metrics")
    assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(said.text)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


async def ready(node: HttpNode) -> tuple[int, str]:
    async with node.client() as client:
        said = await client.get("/readyz")
        assert (await client.get("/healthz")).json() == {"status": "alive"}
    return said.status_code, said.json().get("message", said.json()["status"])


async def test_a_node_that_answers_is_ready(node: HttpNode) -> None:
    assert await ready(node) == (200, "ready")
    async with node.client() as client:
        assert (await client.get("/readyz")).json()["phase"] == "running"
        head = await client.head("/readyz")
        assert (head.status_code, head.content) == (200, b"")


async def test_a_node_whose_disk_hangs_is_alive_and_not_ready(node: HttpNode) -> None:
    node.world.disk.faults = [Fault.HANG]
    minting = asyncio.create_task(node.mint(1))
    await until(lambda: node.engine.undurable_state.ledger.accounts)
    async with second_server(node, ready_ms=80) as impatient:
        assert await ready(impatient) == (503, "no answer within 80 ms")
    node.world.disk.release.set()
    await minting
    assert await ready(node) == (200, "ready")


async def test_a_node_that_stopped_is_alive_and_not_ready(node: HttpNode) -> None:
    await node.engine.stop()
    assert await ready(node) == (503, "the node is stopped")


async def test_a_node_that_failed_says_why_it_is_not_ready(node: HttpNode) -> None:
    node.world.disk.faults = [Fault.FORGET, Fault.FAIL]
    await node.mint(1)
    node.world.disk.acquire_faults = 0
    with pytest.raises(Exception, match="did not confirm"):
        await node.mint(2)
    await until(lambda: node.engine.fault is not None)
    status, says = await ready(node)
    assert (status, "was confirmed" in says) == (503, True)


async def test_a_follower_is_ready_until_what_it_follows_is_damaged(node: HttpNode) -> None:
    world = node.world
    follower = Follower(node.engine.journal, world.tables, world.files, world.clock, world.policy)
    await follower.load()
    node.access.source = follower
    assert await ready(node) == (200, "ready")
    follower.fault = Corrupt("ENG-001", "batch 7 does not follow batch 6")
    status, says = await ready(node)
    assert (status, "batch 7" in says) == (503, True)
    node.access.source = node.engine


async def test_requests_are_counted_by_method_and_outcome(node: HttpNode) -> None:
    token = await node.token()
    for _ in range(3):
        await node.call("node.getStatus")
    await node.call("account.getAccount", token, owner="nobody")
    await node.call("account.getAccount", owner="nobody")
    await node.call("no.such")
    await node.post(b"{")
    async with node.client() as client:
        await client.post("/rpc", json=[request("node.getStatus"), request("no.such")])
        await client.post("/rpc", json=[request("node.getStatus")])
        await client.get("/nowhere")
    found = await metric_samples(node)
    total = "holdfast_requests_total"
    assert {key[1:]: value for key, value in found.items() if key[0] == total} == {
        ("node.getStatus", "ok"): 3,
        ("account.getAccount", "NotFound"): 1,
        ("account.getAccount", "Unauthorized"): 1,
        ("(unknown)", "MethodNotFound"): 1,
        ("(unreadable)", "ParseError"): 1,
        ("(batch)", "mixed"): 1,
        ("(batch)", "ok"): 1,
    }
    assert found["holdfast_refusals_total", "NotFound"] == 1
    assert found["holdfast_request_seconds_count", "node.getStatus"] == 3
    assert found["holdfast_request_seconds_bucket", "+Inf", "node.getStatus"] == 3
    assert found["holdfast_request_seconds_sum", "node.getStatus"] > 0


async def test_names_that_clients_make_up_do_not_fill_the_memory(node: HttpNode) -> None:
    for number in range(20):
        await node.call(f"made.up{number}")
    assert len(node.server.metrics.requests) == 1


async def test_the_engine_and_the_tables_are_seen(node: HttpNode) -> None:
    await node.mint(1, 2, 3)
    await node.engine.wait_tables()
    found = await metric_samples(node)
    assert found["holdfast_journal_event",] == node.engine.durable_head.last == 4
    assert found["holdfast_journal_batch",] == node.engine.durable_head.number
    assert (found["holdfast_owner",], found["holdfast_tables_lag_events",]) == (1, 0)
    assert found["holdfast_connections",] >= 1
    assert found["holdfast_subscribers",] == 0


@pytest.mark.rule("SEC-002")
async def test_connections_of_grpc_are_seen_where_a_front_process_accepts_them(node: HttpNode) -> None:
    assert not any(name.startswith("holdfast_grpc_connections") for name, *_ in await metric_samples(node))
    counts = FrontCounts(silent=1, forwarded=2, proven=3, full=4, displaced=5, late=6, foreign=7, upstream_failed=8)
    node.access.grpc_connections = lambda: counts
    found = await metric_samples(node)
    assert {key: value for key, value in found.items() if key[0].startswith("holdfast_grpc_connections")} == {
        ("holdfast_grpc_connections", "silent"): 1,
        ("holdfast_grpc_connections", "forwarded"): 2,
        ("holdfast_grpc_connections", "proven"): 3,
        ("holdfast_grpc_connections_closed_total", "full"): 4,
        ("holdfast_grpc_connections_closed_total", "displaced"): 5,
        ("holdfast_grpc_connections_closed_total", "late"): 6,
        ("holdfast_grpc_connections_closed_total", "foreign"): 7,
        ("holdfast_grpc_connections_closed_total", "upstream_failed"): 8,
    }


async def test_pauses_of_the_collector_are_seen_while_the_server_is_open() -> None:
    async with http_node() as node:
        before = (await metric_samples(node))["holdfast_python_gc_pause_seconds_count",]
        gc.collect()
        assert (await metric_samples(node))["holdfast_python_gc_pause_seconds_count",] > before
    assert not [each for each in gc.callbacks if getattr(each, "__self__", None) is node.server.metrics]


async def test_two_servers_count_separately() -> None:
    async with http_node() as one, http_node() as two:
        await one.call("node.getStatus")
        assert ("holdfast_requests_total", "node.getStatus", "ok") in await metric_samples(one)
        assert ("holdfast_requests_total", "node.getStatus", "ok") not in await metric_samples(two)


@pytest.mark.rule("SEC-001")
async def test_metrics_can_be_for_those_who_look_after_the_node() -> None:
    async with http_node(public_metrics=False) as node:
        for token, status in (
            (None, 401),
            (await node.token(Role.REQUESTER), 403),
            (await node.token(Role.AUDITOR), 200),
            (await node.token(), 200),
            (await node.token(scopes=("node.getMetrics",)), 200),
            (await node.token(scopes=("node.getStatus",)), 403),
        ):
            async with node.client(token) as client:
                said = await client.get("/metrics")
                assert said.status_code == status
                assert status == 200 or name_of(said) in ("Unauthorized", "Forbidden")


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("path", ["/metrics", "/openrpc.json"])
async def test_what_is_open_to_all_is_looked_at_as_often_as_anything_is_asked(path: str) -> None:
    """And whoever looks too often can still ask, and is still told that the node lives."""
    async with http_node(batch_max=2, address_burst=2, address_per_s=1) as node, node.client() as client:
        assert [(await client.get(path)).status_code for _ in range(3)] == [200, 200, 429]
        assert [(await client.get(each)).status_code for each in ("/healthz", "/readyz")] == [200, 200]
        assert (await node.call("node.getStatus")).status_code == 200
        node.world.clock.monotonic += 1_000
        assert [(await client.get(path)).status_code for _ in range(2)] == [200, 429]
