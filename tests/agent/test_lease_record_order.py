"""The records of a lease keep their order, and its fence is the last one, whatever ends first (EVD-005)."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import lease_dirs, running_agent, wait_until
from tests.agent.test_lease_executor import make_gate

from holdfast.agent.executors.contract import ExecutorIsolation, Work
from holdfast.agent.leases import lease_executor
from holdfast.agent.leases.spooled_leases import SpooledLeases
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.leases.work_reports import BYTES_MAX, TEXT_MAX
from holdfast.agent.transport.evidence_emitter import EmittedRecord, EvidenceEmitter
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Kind

pytestmark = pytest.mark.rule("EVD-005")


async def test_a_renewal_while_the_outcome_is_spooled_is_no_progress(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, may_sync, real_sync = make_gate(), threading.Event(), os.fdatasync

    def hang(file: int) -> None:
        may_sync.wait(60)
        real_sync(file)

    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}) as agent:
        lease = node.offer("hello", "gate", t_ms=400)
        await wait_until(lambda: "PROGRESS" in node.record_types(lease), "a renewal while it works is progress")
        monkeypatch.setattr(os, "fdatasync", hang)
        busy.open.set()
        try:
            await wait_until(lambda: agent.leases.leases[lease].is_fenced, "its fence waits for the disk")
            before = node.leases[lease].renewals
            await wait_until(lambda: node.leases[lease].renewals > before, "the lease is renewed meanwhile")
        finally:
            may_sync.set()
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(lease))
        other = node.offer("behind it")
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(other))
    assert node.record_types(lease)[-2:] == ["LEASE_COMPLETED", "BLOCK_FENCE"]


class Chatty(msgspec.Struct, frozen=True):
    """Says more than a lease may, then works until it is cancelled."""

    started: Any
    isolation: ExecutorIsolation = ExecutorIsolation.ASYNC

    async def run_async(self, work: Work) -> bytes:
        for _ in range(2 * BYTES_MAX // TEXT_MAX):
            work.report(None, "x" * TEXT_MAX)
        self.started.set()
        await asyncio.Event().wait()
        return b""


async def test_what_was_dropped_of_a_lost_lease_is_said_before_its_fence(node: FakeNode, tmp_path: Path) -> None:
    chatty: Any = Chatty(threading.Event())
    async with running_agent(node, tmp_path, executors={(Kind.AI, "chatty"): chatty}) as agent:
        lease = node.offer("hello", "chatty")
        await wait_until(chatty.started.is_set)
        node.lose(lease)
        await wait_until(lambda: not agent.leases.leases)
        other = node.offer("behind it")
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(other))
    types = node.record_types(lease)
    assert types[:3] == ["LEASE_ACCEPTED", "EXECUTION_STARTED", "PROGRESS"]
    assert types[-2:] == ["PROGRESS", "BLOCK_FENCE"]
    said = [each["payload"] for each in node.records() if each["payload_type"] == "PROGRESS"]
    assert said[-1]["text"].startswith("dropped ")


async def test_a_start_that_the_spool_refused_is_told_before_the_outcome(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, refused, real = make_gate(), list[str](), EvidenceEmitter.try_emit

    def refuse_once(self: EvidenceEmitter, payload_type: str, payload: dict[str, Any]) -> EmittedRecord | None:
        if payload_type == "EXECUTION_STARTED" and not refused:
            refused.append(payload_type)
            busy.open.set()
            return None
        return real(self, payload_type, payload)

    monkeypatch.setattr(lease_executor, "LONG_MS", 1)
    monkeypatch.setattr(EvidenceEmitter, "try_emit", refuse_once)
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        lease = node.offer("hello", "gate")
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(lease))
        other = node.offer("behind it")
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(other))
    assert node.record_types(lease) == ["LEASE_ACCEPTED", "EXECUTION_STARTED", "LEASE_COMPLETED", "BLOCK_FENCE"]


async def test_a_lease_that_an_earlier_process_has_fenced_is_not_executed_again(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not remove the files: only that is left to do."""

    async def fails(self: WorkDir, lease_id: bytes) -> None:
        raise Unavailable("EVD-006", "the disk fails", "")

    busy = make_gate()
    executors = {(Kind.AI, "gate"): busy}
    with monkeypatch.context() as failing:
        failing.setattr(WorkDir, "remove", fails)
        failing.setattr(lease_executor, "LONG_MS", 1)
        async with running_agent(node, tmp_path, executors=executors) as agent:
            lease = node.offer("hello", "gate")
            await wait_until(lambda: lease_dirs(tmp_path))
            node.lose(lease)
            await wait_until(lambda: not agent.leases.leases)
    before, key = node.record_types(lease), ("BLOCK_FENCE", lease)
    monkeypatch.setattr(SpooledLeases, "is_spooled", lambda _, *asked: asked == key)  # as after a kill
    busy.started.clear()
    async with running_agent(node, tmp_path, executors=executors):
        await wait_until(lambda: not lease_dirs(tmp_path))
    assert (node.record_types(lease), busy.started.is_set()) == (before, False)
