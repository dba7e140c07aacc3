"""One lease through an agent: on disk before its ACK, told as evidence, its bytes kept until the verdict is final."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import lease_dirs, make_agent, running_agent, wait_until

from holdfast.agent import runner
from holdfast.agent.executors.contract import CancelSignal, ExecutorIsolation
from holdfast.agent.leases import lease_executor, work_dir
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter, SpooledAt
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import Payload
from holdfast.core.provider.model import provider_id
from holdfast.core.result.ids import result_digest
from holdfast.system.durable_files import replace_file
from holdfast.wire import signed_messages
from holdfast.wire.signed_messages import OUTPUT_INLINE_BYTES_MAX

LEASE_RECORDS = ["LEASE_ACCEPTED", "LEASE_COMPLETED", "BLOCK_FENCE"]
LARGE_RECORDS = ["LEASE_ACCEPTED", "OUTPUT_READY", "LEASE_COMPLETED", "BLOCK_FENCE"]
FAILURE = ["LEASE_ACCEPTED", "LEASE_FAILED", "BLOCK_FENCE"]
LARGE = "x" * (OUTPUT_INLINE_BYTES_MAX + 1)
"""A prompt whose echo does not fit into a record."""


class GatedExecutor(msgspec.Struct, frozen=True):
    """An executor that works until the test lets it end, or somebody cancels."""

    started: Any
    open: Any
    cancelled: Any
    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        self.started.set()
        while not self.open.is_set():
            if cancel.wait(0.005):
                self.cancelled.set()
                return b""
        return str(payload.spec["prompt"]).encode()


def make_gate() -> GatedExecutor:
    return GatedExecutor(threading.Event(), threading.Event(), threading.Event())


@pytest.mark.rule("EVD-005", "LEA-003")
async def test_a_leases_life_is_reported_as_evidence_in_order(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        await wait_until(lambda: node.record_types(lease) == LEASE_RECORDS, "all records")
        await wait_until(lambda: not agent.leases.leases)
        assert agent.id == provider_id(node.registrations[0].public)
    output = b"hello"
    assert node.outputs == {result_digest(output): output}
    assert node.submissions[lease] == 1
    assert node.leases[lease].is_acked
    assert node.acts_of(lease) == [], "the delivered acceptance is the ACK"
    assert lease_dirs(tmp_path) == []


@pytest.mark.rule("EVD-005", "EVD-006")
async def test_a_large_output_is_announced_and_uploaded_before_it_is_completed(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: node.record_types(lease) == LARGE_RECORDS, "all records")
        await wait_until(lambda: not lease_dirs(tmp_path))
    output = LARGE.encode()
    ready = next(each for each in node.records() if each["payload_type"] == "OUTPUT_READY")
    assert ready["payload"] == {"lease_id": lease.hex(), "digest": result_digest(output).hex(), "size": len(output)}
    assert node.outputs == {result_digest(output): output}


@pytest.mark.rule("PRV-003", "EVD-005")
@pytest.mark.parametrize(("model", "signatures"), [("echo", 1), ("sleep", 2)])
async def test_one_signature_covers_what_is_accepted_or_completed_together(
    node: FakeNode, tmp_path: Path, model: str, signatures: int
) -> None:
    """Work that takes no time is completed with its acceptance."""
    async with running_agent(node, tmp_path, slots=20):
        await wait_until(lambda: node.connected)
        leases = node.offer_many([f"job {n}" for n in range(20)], model)
        await wait_until(lambda: all(node.record_types(lease) == LEASE_RECORDS for lease in leases))
    assert signatures <= len(node.signatures) < (2 if model == "echo" else 41)


@pytest.mark.rule("EVD-005")
async def test_work_that_takes_long_is_reported_as_started_and_its_offer_leaves_the_spool(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_executor, "LONG_MS", 10)
    busy = make_gate()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}) as agent:
        lease = node.offer("hello", "gate")
        await wait_until(lambda: node.record_types(lease) == ["LEASE_ACCEPTED", "EXECUTION_STARTED"])
        await wait_until(lambda: lease_dirs(tmp_path) == [lease.hex()])
        await wait_until(lambda: not agent.emitter._held, "the spool may drop the record")
        busy.open.set()
        await wait_until(lambda: not lease_dirs(tmp_path))
    assert node.record_types(lease) == ["LEASE_ACCEPTED", "EXECUTION_STARTED", "LEASE_COMPLETED", "BLOCK_FENCE"]


@pytest.mark.rule("EVD-006")
async def test_the_spool_keeps_offer_and_output_until_the_verdict(node: FakeNode, tmp_path: Path) -> None:
    node.is_judging = False
    busy = make_gate()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}) as agent:
        lease = node.offer("hello", "gate")
        await wait_until(lambda: node.leases[lease].is_acked)
        [(_, spool)] = agent.emitter.open_sessions()
        assert spool.maintainer.keep_from == 1, "the offer"
        busy.open.set()
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(lease))
        assert spool.maintainer.keep_from == 2, "the output"
        node.send_verdict(lease)
        await wait_until(lambda: not agent.leases.leases)
        assert spool.maintainer.keep_from is None


@pytest.mark.rule("EVD-005")
async def test_a_verdict_before_the_record_is_spooled_costs_no_fence(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is read back and sent as soon as it is spooled; who has emitted it may hear of that much later."""
    wait_spooled = EvidenceEmitter.wait_spooled

    async def late(self: EvidenceEmitter, records: Any, emitted: Any) -> SpooledAt:
        told = await wait_spooled(self, records, emitted)
        if records[0][0] == "LEASE_COMPLETED":
            await asyncio.Event().wait()
        return told

    monkeypatch.setattr(EvidenceEmitter, "wait_spooled", late)
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        await wait_until(lambda: node.record_types(lease) == LEASE_RECORDS, "all records")
        await wait_until(lambda: not agent.leases.leases)
    assert node.record_types(lease) == LEASE_RECORDS


async def test_an_agent_registers_what_it_offers(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path, region="eu", price=7, slots=3):
        await wait_until(lambda: node.acts)
    told = node.registrations[0]
    assert told.capabilities == {"AI": {"models": ["echo", "sleep"]}}
    assert (told.name, told.account, told.region, told.price, told.slots) == ("oak", "oak", "eu", 7, 3)
    assert (node.acts[0].act, node.acts[0].slots) == ("beat", 3)


@pytest.mark.rule("EVD-006", "SP-005")
async def test_a_lease_is_acknowledged_only_when_it_is_on_disk(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the spool's disk hangs nothing is sent about the lease, also not when the node asks again."""
    may_sync, real_sync = threading.Event(), os.fdatasync

    def hang(file: int) -> None:
        may_sync.wait(60)
        real_sync(file)

    async with running_agent(node, tmp_path) as agent:
        await wait_until(lambda: node.acts, "its first heartbeat")
        monkeypatch.setattr(os, "fdatasync", hang)
        lease = node.offer("hello")
        await wait_until(lambda: lease in agent.leases.leases)
        node.end_work_streams()
        try:
            await wait_until(lambda: sum(act.act == "beat" for act in node.acts) >= 2, "another stream")
            assert (node.acts_of(lease), node.record_types(lease)) == ([], [])
        finally:
            may_sync.set()
        await wait_until(lambda: node.submissions[lease])


@pytest.mark.rule("RCV-002", "SP-005")
async def test_a_digest_is_on_disk_before_the_node_hears_of_it(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an agent that is killed could compute again and sign another one."""
    gate, may_sync, real_sync = make_gate(), threading.Event(), os.fdatasync

    def hang(file: int) -> None:
        may_sync.wait(60)
        real_sync(file)

    async with running_agent(node, tmp_path, executors={(Kind.AI, "echo"): gate}) as agent:
        lease = node.offer("hello")
        await wait_until(lambda: node.leases[lease].is_acked)
        monkeypatch.setattr(os, "fdatasync", hang)
        gate.open.set()
        try:
            await wait_until(lambda: agent.leases.leases[lease].is_reported, "it is signed and on its way to the disk")
            beats = len(node.acts)
            node.end_work_streams()
            await wait_until(lambda: len(node.acts) > beats, "another stream")
            assert "LEASE_COMPLETED" not in node.record_types(lease)
        finally:
            may_sync.set()
        await wait_until(lambda: node.submissions[lease])


@pytest.mark.rule("RCV-002")
async def test_a_large_output_is_on_disk_before_its_digest_is_signed(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed, keep, seen, kept = signed_messages.to_sign_output, replace_file, list[bool](), list[bytes]()

    def checked(lease_id: bytes, digest: bytes, size: int) -> bytes:
        seen.append(kept == [LARGE.encode()])
        return signed(lease_id, digest, size)

    def synced(path: Path, raw: bytes) -> None:
        keep(path, raw)
        if path.name == work_dir.OUTPUT:
            kept.append(raw)

    monkeypatch.setattr(work_dir, "replace_file", synced)
    monkeypatch.setattr(signed_messages, "to_sign_output", checked)
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: node.submissions[lease])
    assert seen
    assert all(seen)


@pytest.mark.rule("EVD-006")
async def test_a_large_offer_is_a_file_before_it_is_acknowledged(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    keep = WorkDir.store_offer

    async def slow(self: WorkDir, taken: Any) -> None:
        await asyncio.sleep(0.05)
        seen.append(node.record_types(taken.lease_id))
        await keep(self, taken)

    monkeypatch.setattr(WorkDir, "store_offer", slow)
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: node.submissions[lease])
    assert seen == [[]]
    accepted = next(each for each in node.records() if each["payload_type"] == "LEASE_ACCEPTED")
    assert "payload" not in accepted["payload"]


async def test_a_lease_that_cannot_be_kept_is_declined(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: WorkDir, taken: Any) -> None:
        raise Unavailable("EVD-006", "no space left", "")

    monkeypatch.setattr(WorkDir, "store_offer", fails)
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer(LARGE)
        await wait_until(lambda: node.acts_of(lease))
        await wait_until(lambda: not agent.leases.leases)
        monkeypatch.setattr(EvidenceEmitter, "try_emit", lambda *_: None)
        small = node.offer("small")
        await wait_until(lambda: node.acts_of(small))
        await wait_until(lambda: not agent.leases.leases)
        monkeypatch.undo()
    assert node.acts_of(lease) == node.acts_of(small) == ["decline"]
    assert (node.leases[lease].ended_reason, node.leases[small].ended_reason) == ("NO_DISK", "NO_ROOM_FOR_EVIDENCE")


@pytest.mark.rule("EVD-006")
async def test_a_large_output_is_kept_until_the_verdict(node: FakeNode, tmp_path: Path) -> None:
    node.is_judging = False
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: node.submissions[lease])
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(lease))
        output = tmp_path / "work" / lease.hex() / "output"
        assert output.read_bytes() == LARGE.encode()
        node.send_verdict(lease)
        await wait_until(lambda: not lease_dirs(tmp_path), "the folder is gone")


@pytest.mark.rule("EVD-006")
@pytest.mark.parametrize("prompt", ["hello", LARGE])
async def test_a_refused_result_is_final_too(node: FakeNode, tmp_path: Path, prompt: str) -> None:
    node.accepts = False
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer(prompt)
        await wait_until(lambda: node.submissions[lease])
        await wait_until(lambda: not agent.leases.leases)
        assert lease_dirs(tmp_path) == []
    assert node.delivered() == {lease: 1}


async def test_an_upload_is_tried_until_the_node_has_the_bytes(node: FakeNode, tmp_path: Path) -> None:
    node.refuse_uploads = 3
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: node.submissions[lease])
    assert node.refuse_uploads == 0
    assert node.record_types(lease).count("OUTPUT_READY") == 1


async def test_a_large_output_arrives_whole(node: FakeNode, tmp_path: Path) -> None:
    prompt = "x" * 1_000_000
    async with running_agent(node, tmp_path):
        lease = node.offer(prompt)
        await wait_until(lambda: node.submissions[lease])
    assert list(node.outputs.values()) == [prompt.encode()]


async def test_an_output_that_the_node_never_accepts_is_a_failure(node: FakeNode, tmp_path: Path) -> None:
    node.refuse_output = ("TooLarge", "TIER-001")
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: node.leases[lease].ended_reason == "PROVIDER_FAIL")
        await wait_until(lambda: not lease_dirs(tmp_path))
    failed = next(each for each in node.records() if each["payload_type"] == "LEASE_FAILED")
    assert failed["payload"]["reason"] == "OUTPUT_REFUSED: TooLarge: no"


async def test_an_upload_for_a_lost_lease_ends_it(node: FakeNode, tmp_path: Path) -> None:
    node.refuse_output = ("LeaseLost", "LEA-005")
    async with running_agent(node, tmp_path):
        lease = node.offer(LARGE)
        await wait_until(lambda: "BLOCK_FENCE" in node.record_types(lease))
        await wait_until(lambda: not lease_dirs(tmp_path))
    assert node.delivered() == {}


# ------------------------------------------------------------------------------------------------ what goes wrong


class FailingExecutor(msgspec.Struct, frozen=True):
    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        raise ArithmeticError("it does not add up")


@pytest.mark.rule("EVD-005")
async def test_a_fault_of_the_executor_is_a_failed_lease_with_its_reason(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path, executors={(Kind.AI, "faulty"): FailingExecutor()}) as agent:
        lease = node.offer("hello", "faulty")
        await wait_until(lambda: node.record_types(lease) == FAILURE)
        await wait_until(lambda: not agent.leases.leases)
    failed = next(each for each in node.records() if each["payload_type"] == "LEASE_FAILED")
    assert failed["payload"]["reason"] == "EXECUTOR_ERROR: ArithmeticError: it does not add up"
    assert node.leases[lease].ended_reason == "PROVIDER_FAIL"


async def test_an_execution_that_takes_too_long_is_a_failed_lease(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path, execution_ms_max=20):
        lease = node.offer("hello", "sleep", ms=60_000)
        await wait_until(lambda: node.record_types(lease) == FAILURE)
    failed = next(each for each in node.records() if each["payload_type"] == "LEASE_FAILED")
    assert failed["payload"]["reason"] == "TIME_OUT: not done after 20 ms"


async def test_work_on_a_lost_lease_is_stopped(node: FakeNode, tmp_path: Path) -> None:
    busy = make_gate()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}) as agent:
        lease = node.offer("hello", "gate")
        await wait_until(busy.started.is_set)
        node.lose(lease)
        await wait_until(busy.cancelled.is_set)
        await wait_until(lambda: not agent.leases.leases)
        other = node.offer("other")
        await wait_until(lambda: node.submissions[other], "the agent works on")
    assert node.delivered() == {other: 1}
    fence = next(each for each in node.records() if each["payload_type"] == "BLOCK_FENCE")
    assert (fence["payload"]["status"], fence["payload"]["reason"]) == ("LOST", "LEASE_EXPIRED")


@pytest.mark.rule("EVD-005")
async def test_a_completion_that_came_too_late_blocks_nothing(node: FakeNode, tmp_path: Path) -> None:
    """The lease is lost while the node does not answer: its completion is stored as evidence and means nothing."""
    busy = make_gate()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}) as agent:
        lease = node.offer("late", "gate")
        await wait_until(busy.started.is_set)
        await wait_until(lambda: node.leases[lease].is_acked)
        node.leases[lease].ended_reason = "LEASE_EXPIRED"  # without a message to the agent
        busy.open.set()
        await wait_until(lambda: "LEASE_COMPLETED" in node.record_types(lease))
        other = node.offer("other")
        await wait_until(lambda: node.submissions[other])
        node.end_work_streams()
        await wait_until(lambda: not agent.leases.leases, "asked on the next stream, the node says that it is over")
    assert node.submissions[lease] == 0


async def test_what_does_not_fit_is_declined(node: FakeNode, tmp_path: Path) -> None:
    busy = make_gate()
    async with running_agent(node, tmp_path, slots=1, executors={(Kind.AI, "gate"): busy}):
        first = node.offer("first", "gate")
        await wait_until(busy.started.is_set)
        second, third = node.offer("second"), node.offer("third", "unknown")
        await wait_until(lambda: node.leases[second].ended_reason and node.leases[third].ended_reason)
        busy.open.set()
        await wait_until(lambda: node.submissions[first])
        fourth = node.offer("fourth", "unknown")
        await wait_until(lambda: node.leases[fourth].ended_reason)
    assert node.leases[second].ended_reason == "FULL"
    assert node.leases[fourth].ended_reason == "NOT_OFFERED: AI 'unknown' is not offered here"


# ------------------------------------------------------------------------------------------------ staying alive


async def test_a_long_execution_renews_its_lease_before_its_deadline(node: FakeNode, tmp_path: Path) -> None:
    busy = make_gate()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        lease = node.offer("long", "gate", t_ms=400)
        await wait_until(lambda: node.leases[lease].renewals == 4, "all renewals that there are")
        await wait_until(lambda: node.record_types(lease).count("PROGRESS") >= 4)
        busy.open.set()
        await wait_until(lambda: node.submissions[lease])
    renewals = [act.renewal for act in node.acts if act.act == "renew"]
    assert renewals[:4] == [1, 2, 3, 4]
    assert renewals[4:] in ([], [5]), "a refused one is not asked for again"


async def test_heartbeats_come_as_often_as_the_node_wants_them(node: FakeNode, tmp_path: Path) -> None:
    node.heartbeat_ms = 10
    async with running_agent(node, tmp_path):
        await wait_until(lambda: sum(act.act == "beat" for act in node.acts) >= 5)


@pytest.mark.rule("PRV-002", "RCV-002")
async def test_an_agent_whose_heartbeat_is_refused_registers_again(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second agent of the same key is refused its place, but has registered what it offers."""
    monkeypatch.setattr(runner, "REGISTRATION_POLL_MS", 1)
    node.heartbeat_ms, node.registrations_wanted = 60_000, 3
    async with running_agent(node, tmp_path):
        await wait_until(lambda: len(node.registrations) >= 3 and sum(act.act == "beat" for act in node.acts) >= 3)


async def test_a_verdict_that_was_missed_is_asked_for_with_the_heartbeat(node: FakeNode, tmp_path: Path) -> None:
    node.heartbeat_ms, node.is_judging = 20, False
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        await wait_until(lambda: node.submissions[lease])
        node.leases[lease].ended_reason = "COMPLETED"  # without a message to the agent
        await wait_until(lambda: not agent.leases.leases)


@pytest.mark.rule("RCV-002")
async def test_a_second_agent_of_a_key_ends_at_its_start_and_one_that_has_worked_tries_again(
    node: FakeNode, tmp_path: Path
) -> None:
    node.is_key_taken = True
    second = make_agent(node, tmp_path / "second")
    with pytest.raises(Unavailable, match="taken"):
        await second.run(asyncio.Event())
    assert (node.registrations, node.evidence) == ([], {})
    node.is_key_taken = False
    async with running_agent(node, tmp_path / "first") as agent:
        await wait_until(lambda: agent.leases.is_connected)
        agent.registration, node.is_key_taken = None, True
        node.end_work_streams()
        await wait_until(lambda: agent._stream_backoff.failures > 1, "it is refused, and tries again")
        node.is_key_taken = False
        await wait_until(lambda: agent.leases.is_connected)


async def test_two_agents_cannot_share_a_folder(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path):
        with pytest.raises(Unavailable, match="another agent works"):
            await make_agent(node, tmp_path).start()
