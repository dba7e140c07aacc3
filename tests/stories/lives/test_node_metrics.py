"""A node is scraped through the lives of jobs: taken in, leased, declined, failed, done; and a provider is slashed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.grpc.agent_driver import AgentDriver, EvidenceStreamDriver, WorkStreamDriver
from tests.loopback_ports import free_port
from tests.stories.cli_runner import CliNode, running_cli_node
from tests.stories.node_process import QUIET_CHAIN

from holdfast.client.node_socket import NodeSocket
from holdfast.wire.signed_messages import AgentAct

pytestmark = pytest.mark.rule("OBS-001")
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
QUICK = {"HOLDFAST_POLICY__RETRY__BASE_AI_MS": "100", "HOLDFAST_POLICY__LEASE__DECLINE_COOLDOWN_MS": "1"}
LATE = {"HOLDFAST_POLICY__LEASE__ACK_TIMEOUT_MS": "60000"}
Counts = dict[tuple[str, ...], float]


class MeteredNode:
    """A real node, as a hand-driven agent needs it."""

    def __init__(self, node: CliNode, channel: Any) -> None:
        self.node, self.channel, self._ids = node, channel, 0

    async def call(self, method: str, **params: object) -> Any:
        async with NodeSocket(self.node.node.data) as client:
            return await client.call(method, **params)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:064x}"

    async def counts(self) -> Counts:
        """Every sample by its name and the values of its labels."""
        async with httpx.AsyncClient(timeout=20) as client:
            said = await client.get(f"{self.node.url}/metrics")
        assert said.status_code == 200, said.text
        families = text_string_to_metric_families(said.text)
        return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}

    async def enqueue(self, count: int) -> None:
        await self.call("account.mint", id=self.new_id(), owner="alice", amount=1_000)
        for number in range(count):
            payload = {"kind": "AI", "spec": {"model": "echo", "prompt": f"{number}"}}
            await self.call("cap.enqueue", payload=payload, max_fee=100, caller="alice")

    async def open_work_stream(self, agent: AgentDriver, slots: int = 1) -> WorkStreamDriver:
        await agent.register(slots=slots)
        await self.call("account.mint", id=self.new_id(), owner=agent.name, amount=10_000)
        await self.call("provider.stake", provider_id=agent.id.hex(), amount=10_000, request=self.new_id())
        stream = await agent.open()
        await stream.act(AgentAct("beat", slots=slots))
        return stream


@asynccontextmanager
async def running_node(folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[MeteredNode]:
    port = free_port()
    grpc_settings = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port)}
    async with (
        running_cli_node(folder, QUICK | LATE | grpc_settings | dict(settings), QUIET_CHAIN) as node,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield MeteredNode(node, channel)


async def next_offer(stream: WorkStreamDriver) -> Any:
    """The next offer; what else is told before it is passed over."""
    while (message := await stream.read_any()).WhichOneof("message") != "offer":
        pass
    return message.offer


async def test_what_happens_to_jobs_and_providers_is_counted_and_gauges_outlive_a_kill(tmp_path: Path) -> None:
    async with running_node(tmp_path) as place:
        await place.enqueue(3)
        found = await place.counts()
        assert (found["holdfast_queue_waiting", "AI"], found["holdfast_queue_depth",]) == (3, 3)
        assert (found["holdfast_jobs_admitted_total", "AI"], found["holdfast_leases_active",]) == (3, 0)
        assert 0 <= found["holdfast_queue_oldest_seconds", "AI"] < 30
        assert found["holdfast_queue_oldest_seconds", "QUANTUM"] == 0

        hand: Any = AgentDriver(place, "oak")  # type: ignore[arg-type]
        stream, evidence = await place.open_work_stream(hand), await hand.open_evidence()
        await run_leases_that_end_without_result(place, hand, stream, evidence)
        await run_leases_that_end_with_a_verdict(place, hand, stream, evidence)

        await place.node.node.kill()
        await place.node.node.up()
        again = await place.counts()
        assert (again["holdfast_queue_waiting", "AI"], again["holdfast_providers", "JAILED"]) == (1, 1)
        for name in ("jobs_admitted_total", "leases_granted_total", "job_wait_seconds_count", "job_work_seconds_count"):
            assert again[f"holdfast_{name}", "AI"] == 0, "what was folded again did not happen now"


async def run_leases_that_end_without_result(
    place: MeteredNode, hand: AgentDriver, stream: WorkStreamDriver, evidence: EvidenceStreamDriver
) -> None:
    """One lease is declined, the next one fails."""
    offer = await next_offer(stream)
    found = await place.counts()
    assert (found["holdfast_leases_active",], found["holdfast_queue_waiting", "AI"]) == (1, 2)
    assert (found["holdfast_leases_granted_total", "AI"], found["holdfast_retries_total", "AI"]) == (1, 0)
    assert found["holdfast_job_wait_seconds_count", "AI"] == 1
    assert found["holdfast_providers", "ACTIVE"] == 1
    assert (found["holdfast_match_seconds_count",], found["holdfast_match_batch_jobs_sum",]) == (1, 1)
    assert found["holdfast_match_seconds_sum",] > 0

    await stream.call.write(stream.signed(AgentAct("decline", lease_id=offer.lease_id, reason="a reason of its own")))
    offer = await next_offer(stream)
    found = await place.counts()
    ended = {key[1]: n for key, n in found.items() if key[0] == "holdfast_leases_ended_without_result_total" and n}
    assert ended == {"DECLINED": 1}
    before = found["holdfast_provider_health_ppm", "min"]
    await evidence.send_and_ack(1, evidence.lines(1, hand.failed_record(offer)))
    found = await place.counts()
    assert found["holdfast_leases_ended_without_result_total", "PROVIDER_FAIL"] == 1
    assert found["holdfast_provider_health_ppm", "min"] < before


async def run_leases_that_end_with_a_verdict(
    place: MeteredNode, hand: AgentDriver, stream: WorkStreamDriver, evidence: EvidenceStreamDriver
) -> None:
    """One lease is completed well, the next one twice, with two digests."""
    offer = await next_offer(stream)
    await hand.put(offer, b"one")
    await hand.complete(hand.completion(offer, b"one"))
    offer = await next_offer(stream)
    found = await place.counts()
    assert found["holdfast_jobs_ended_total", "AI", "COMPLETED"] == 1
    given, first = found["holdfast_leases_granted_total", "AI"], found["holdfast_job_wait_seconds_count", "AI"]
    assert found["holdfast_retries_total", "AI"] == given - first > 0
    assert found["holdfast_job_work_seconds_count", "AI"] == 1

    for output in (b"one", b"another"):
        await hand.put(offer, output)
    both = [hand.completed_record(offer, output) for output in (b"one", b"another")]
    await evidence.send_and_ack(2, evidence.lines(2, *both))
    while (message := await stream.read_any()).WhichOneof("message") != "verdict":
        pass
    found = await place.counts()
    assert message.verdict.is_accepted
    assert (found["holdfast_slashes_total", "severe"], found["holdfast_slashes_total", "minor"]) == (1, 0)
    assert found["holdfast_slashed_amount_total", "severe"] == 2_500
    assert found["holdfast_completions_ignored_total",] == 1
    assert (found["holdfast_providers", "JAILED"], found["holdfast_providers", "ACTIVE"]) == (1, 0)
    assert (found["holdfast_leases_active",], found["holdfast_queue_waiting", "AI"]) == (0, 1)


async def test_the_reference_names_what_a_node_with_an_archive_shows_and_nothing_else(tmp_path: Path) -> None:
    archive = {"HOLDFAST_ARCHIVE__PROVIDER": "file", "HOLDFAST_ARCHIVE__URL": str(tmp_path / "archive")}
    async with running_node(tmp_path, archive) as place, httpx.AsyncClient(timeout=20) as client:
        said = (await client.get(f"{place.node.url}/metrics")).text
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", said, re.MULTILINE))
    section = REFERENCE.read_text("utf-8").partition("## A node\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| ([^|]*) \| [^|]+ \|$", section, re.MULTILINE)
    told_ = {name: kind for name, kind, _ in rows}
    assert told_ == {name: kind for name, kind in shown.items() if not name.endswith("_created")}
    labels = {name: set(re.findall(r"`(\w+)`", label)) for name, _, label in rows}
    for family in text_string_to_metric_families(said):
        name = next(each for each in (family.name, f"{family.name}_total") if each in labels)
        found = {label for each in family.samples for label in each.labels} - {"le"}
        assert found <= labels[name], name
