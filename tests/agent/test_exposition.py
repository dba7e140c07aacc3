"""What a sender counts can be read by Prometheus: lag, age, replays, duplicates, gaps, refusals, sizes, stalls."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.fake_node import FakeNode
from tests.agent.house import comes, working
from tests.agent.test_delivery import live_of
from tests.ports import free_ports

from holdfast.agent.exposition import text
from holdfast.agent.tally import Tally


async def asked(port: int, line: bytes = b"GET /metrics HTTP/1.1") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line + b"\r\nhost: x\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def figure(answer: str, name: str) -> float:
    found = re.search(rf"^holdfast_sender_{name}(?:{{[^}}]*}})? (\S+)$", answer, re.M)
    assert found, f"no {name} in {answer}"
    return float(found[1])


@pytest.mark.rule("OBS-001")
async def test_an_agent_tells_how_far_behind_its_evidence_is(node: FakeNode, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node.credit = 2_000
    node.may_ack.clear()
    async with working(node, tmp_path, metrics_port=port) as agent:
        for n in range(100):
            await agent.shipper.spool("PROGRESS", {"n": n})
        await comes(lambda: agent.tally.credit_stalls)
        behind = await asked(port)
        assert figure(behind, "unacked_records") == 100
        assert figure(behind, "oldest_unacked_age_ms") >= 0
        assert figure(behind, "credit_stalls_total") >= 1
        assert f'session="{agent.shipper.live_session}"' in behind
        node.may_ack.set()
        await comes(lambda: live_of(agent).is_delivered)
        done = await asked(port)
        assert figure(done, "unacked_records") == 0
        assert figure(done, "records_total") == 100
        assert figure(done, "batch_records_sum") == 100
        assert figure(done, "acks_total") >= 1
        assert (await asked(port, b"GET / HTTP/1.1")).startswith("HTTP/1.1 404")
        families = {each.name for each in text_string_to_metric_families(done.split("\r\n\r\n", 1)[1])}
        assert {"holdfast_sender_refused", "holdfast_sender_batch_bytes", "holdfast_sender_gaps"} <= families


def test_noes_are_counted_by_name_and_a_name_cannot_break_the_text() -> None:
    tally = Tally()
    tally.refused['Bad"\n'] += 2
    assert 'holdfast_sender_refused_total{name="Bad\\" "} 2' in text(tally, "c", [])
