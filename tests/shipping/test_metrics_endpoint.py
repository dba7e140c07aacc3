"""What a sender counts can be read by Prometheus: lag, age, replays, duplicates, gaps, refusals, sizes, stalls."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import running_agent, wait_until
from tests.loopback_ports import free_ports
from tests.shipping.test_session_sender import live_sender

from holdfast.shipping.metrics_endpoint import SenderCollector
from holdfast.shipping.sender_metrics import SenderMetrics


async def http_get(port: int, line: bytes = b"GET /metrics HTTP/1.1") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line + b"\r\nhost: x\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def metric_value(answer: str, name: str) -> float:
    found = re.search(rf"^holdfast_sender_{name}(?:{{[^}}]*}})? (\S+)$", answer, re.M)
    assert found, f"no {name} in {answer}"
    return float(found[1])


@pytest.mark.rule("OBS-001")
async def test_an_agent_reports_how_far_behind_its_evidence_is(node: FakeNode, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node.credit = 2_000
    node.may_ack.clear()
    async with running_agent(node, tmp_path, metrics_port=port) as agent:
        for n in range(100):
            await agent.emitter.emit_spooled("PROGRESS", {"n": n})
        await wait_until(lambda: agent.sender_metrics.credit_stalls)
        behind = await http_get(port)
        assert metric_value(behind, "unacked_records") == 100
        assert metric_value(behind, "oldest_unacked_age_ms") >= 0
        assert metric_value(behind, "credit_stalls_total") >= 1
        assert f'session="{agent.emitter.live_session}"' in behind
        node.may_ack.set()
        await wait_until(lambda: live_sender(agent).is_delivered)
        done = await http_get(port)
        assert metric_value(done, "unacked_records") == 0
        assert metric_value(done, "records_total") == 100
        assert metric_value(done, "batch_records_sum") == 100
        assert metric_value(done, "acks_total") >= 1
        assert (await http_get(port, b"GET / HTTP/1.1")).startswith("HTTP/1.1 404")
        families = {each.name for each in text_string_to_metric_families(done.split("\r\n\r\n", 1)[1])}
        assert {"holdfast_sender_refused", "holdfast_sender_batch_bytes", "holdfast_sender_gaps"} <= families


def test_refusals_are_counted_by_name_and_a_name_cannot_break_the_text() -> None:
    metrics, registry = SenderMetrics(), CollectorRegistry()
    metrics.refusals['Bad"\n'] += 2
    registry.register(SenderCollector(metrics, "c", list))
    text = generate_latest(registry).decode()
    assert 'holdfast_sender_refused_total{name="Bad\\"\\n"} 2.0' in text.splitlines()


def test_bounds_of_histograms_are_exact() -> None:
    metrics, registry = SenderMetrics(), CollectorRegistry()
    metrics.batch_bytes.add(1 << 20)
    registry.register(SenderCollector(metrics, "c", list))
    text = generate_latest(registry).decode().splitlines()
    assert 'holdfast_sender_batch_bytes_bucket{le="1048575"} 0.0' in text
    assert 'holdfast_sender_batch_bytes_bucket{le="2097151"} 1.0' in text
    assert "holdfast_sender_batch_bytes_count 1.0" in text
