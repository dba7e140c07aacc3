"""What running work says is read from stored evidence: by job, in order, once, and only what its own provider said."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node
from tests.simulation.world import DEVELOPMENT, World

from holdfast.api.evidence import work_logs
from holdfast.api.evidence.work_logs import JobLog, LogEntry, LogSignals, leases_with_messages
from holdfast.core.base.values import TaskId
from holdfast.core.policy import DAY_MS, EvidencePolicy
from holdfast.workers.evidence_pruner import EvidencePruner

pytestmark = pytest.mark.rule("EVD-005", "SEC-002")
POLICY = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(retain_days=1))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path, World(POLICY)) as node:
        yield node


def said(offer: Any, number: int, text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "PROGRESS", {"lease_id": offer.lease_id.hex(), "number": number, "text": text, **more}


async def read(log: JobLog, node: AgentNode) -> list[LogEntry]:
    await node.engine.wait_tables()
    return [entry async for entry in log.new_entries()]


async def test_a_log_has_every_message_once_also_those_that_come_with_the_result(node: AgentNode) -> None:
    """Numbers of an agent that was restarted begin again; ids do not."""
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream, log = await oak.open_evidence(), JobLog(node.engine, TaskId(offer.task_id))
    renewal = ("PROGRESS", {"lease_id": offer.lease_id.hex(), "renewal": 1})
    await stream.send_and_ack(1, stream.lines(1, said(offer, 0, "a", percent=10), renewal, said(offer, 1, "b")))
    assert [entry.id for entry in await read(log, node)] == ["0:0", "0:1"]
    large = "c" * 5_000
    last = (said(offer, 0, large), oak.completed_with_output(offer, b"out"))
    await stream.send_and_ack(4, stream.lines(4, *last))
    assert node.lease(offer.lease_id) is None
    assert [(entry.id, entry.text) for entry in await read(log, node)] == [("0:2", large[:2_000])]
    assert await read(log, node) == []
    whole = await read(JobLog(node.engine, TaskId(offer.task_id)), node)
    assert [(entry.text[:1], entry.percent) for entry in whole] == [("a", 10), ("b", None), ("c", None)]


@pytest.mark.rule("JOB-010")
async def test_nobody_speaks_in_the_log_of_another_ones_work(node: AgentNode) -> None:
    oak, elm = AgentDriver(node), AgentDriver(node, "elm")
    offer = await oak.lease_job(await oak.start_work())
    await elm.register_and_stake()
    stream = await elm.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, said(offer, 0, "lies")))
    assert await read(JobLog(node.engine, TaskId(offer.task_id)), node) == []
    assert node.world.tables.rows["work_log"] == {}


@pytest.mark.rule("EVD-008")
async def test_a_log_is_there_until_its_evidence_is_pruned(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, said(offer, 0, "a"), ("CHANNEL_TERMINATED", {})))
    log = JobLog(node.engine, TaskId(offer.task_id))
    assert len(await read(log, node)) == 1
    node.pass_time(DAY_MS)
    await EvidencePruner(node.engine).run_once()
    assert await read(JobLog(node.engine, TaskId(offer.task_id)), node) == []
    assert node.world.tables.rows["work_log"] == {}


async def test_a_log_is_bounded_whatever_an_agent_sends(node: AgentNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_logs, "JOB_BYTES_MAX", 10)
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, *(said(offer, number, "1234") for number in range(5))))
    assert len(await read(JobLog(node.engine, TaskId(offer.task_id)), node)) == 2


def test_a_signal_is_held_only_by_who_waits_for_it() -> None:
    signals, task_id = LogSignals(), TaskId(bytes(32))
    signal = signals.signal_of(task_id)
    before = signal.changed
    signals.notify([task_id, TaskId(bytes(31) + b"1")])
    assert (before.is_set(), signal.changed.is_set(), len(signals)) == (True, False, 1)
    del signal, before
    gc.collect()
    assert len(signals) == 0


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'"payload_type":"PROGRESS"',
        b'{"payload_type":"PROGRESS","payload":{"lease_id":"zz","number":1}}',
        b'{"payload_type":"PROGRESS","payload":{"lease_id":"00","renewal":1}}',
        b'{"payload_type":"PROGRESS","payload":{"number":1}}',
    ],
)
def test_what_is_no_message_names_no_lease(line: bytes) -> None:
    assert leases_with_messages([line]) == ()
