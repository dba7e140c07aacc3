"""One lease through an agent: on disk before its ACK, told as evidence, its bytes kept until the verdict is final."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.house import comes, folders, made, working

from holdfast.agent.executors import Cancel, Where
from holdfast.agent.held import Told
from holdfast.agent.shipper import Shipper
from holdfast.agent.work import WorkFolder
from holdfast.core.canon import canonical
from holdfast.core.job.spec import Payload
from holdfast.core.provider.record import provider_id
from holdfast.core.refusal import Unavailable
from holdfast.core.result.ids import result_digest
from holdfast.core.values import Kind

WAY = ["LEASE_ACCEPTED", "EXECUTION_STARTED", "OUTPUT_READY", "LEASE_COMPLETED", "BLOCK_FENCE"]
FAILURE = ["LEASE_ACCEPTED", "EXECUTION_STARTED", "LEASE_FAILED", "BLOCK_FENCE"]


class Gate(msgspec.Struct, frozen=True):
    """An executor that works until the test lets it end, or somebody cancels."""

    begun: Any
    open: Any
    cancelled: Any
    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        self.begun.set()
        while not self.open.is_set():
            if cancel.wait(0.005):
                self.cancelled.set()
                return b""
        return canonical(payload.spec["prompt"])


def gate() -> Gate:
    return Gate(threading.Event(), threading.Event(), threading.Event())


@pytest.mark.rule("EVD-005")
async def test_a_leases_life_is_told_as_evidence_in_order(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path) as agent:
        lease = node.offer("hello")
        await comes(lambda: node.told(lease) == WAY, "all records")
        await comes(lambda: node.acts_of(lease), "what it does, on the other stream")
        assert agent.id == provider_id(node.registrations[0].public)
    output = canonical("hello")
    assert node.outputs == {result_digest(output): output}
    assert node.submissions[lease] == 1
    assert node.acts_of(lease)[0] == "ack"
    ready = next(each for each in node.records() if each["payload_type"] == "OUTPUT_READY")
    assert ready["payload"] == {
        "lease_id": lease.hex(),
        "digest": result_digest(output).hex(),
        "size": len(output),
    }


@pytest.mark.rule("EVD-005")
async def test_a_verdict_that_is_faster_than_the_spools_word_costs_no_fence(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is read back and sent as soon as it is spooled; who has emitted it may hear of that much later."""
    spool = Shipper.spool

    async def late(self: Shipper, payload_type: str, payload: dict[str, Any]) -> Told:
        told = await spool(self, payload_type, payload)
        if payload_type == "LEASE_COMPLETED":
            await asyncio.Event().wait()
        return told

    monkeypatch.setattr(Shipper, "spool", late)
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.told(lease) == WAY, "all records")
        await comes(lambda: not folders(tmp_path))


async def test_an_agent_says_what_it_offers(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path, region="eu", price=7, slots=3):
        await comes(lambda: node.acts)
    told = node.registrations[0]
    assert told.capabilities == {"AI": {"models": ["echo", "sleep"]}}
    assert (told.name, told.account, told.region, told.price, told.slots) == ("oak", "oak", "eu", 7, 3)
    assert (node.acts[0].act, node.acts[0].slots) == ("beat", 3)


@pytest.mark.rule("EVD-006")
async def test_a_lease_is_acknowledged_only_when_it_is_on_disk(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    keep = WorkFolder.keep_offer

    async def slow(self: WorkFolder, taken: Any) -> None:
        await asyncio.sleep(0.05)
        seen.append(node.acts_of(taken.lease_id))
        await keep(self, taken)

    monkeypatch.setattr(WorkFolder, "keep_offer", slow)
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.submissions[lease])
    assert seen == [[]]


async def test_a_lease_that_cannot_be_kept_is_declined(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: WorkFolder, taken: Any) -> None:
        raise Unavailable("EVD-006", "no space left", "")

    monkeypatch.setattr(WorkFolder, "keep_offer", fails)
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.acts_of(lease))
    assert node.acts_of(lease) == ["decline"]


@pytest.mark.rule("EVD-006")
async def test_the_output_is_kept_until_the_verdict(node: FakeNode, tmp_path: Path) -> None:
    node.judges = False
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.submissions[lease])
        await comes(lambda: "BLOCK_FENCE" in node.told(lease))
        output = tmp_path / "work" / lease.hex() / "output"
        assert output.read_bytes() == canonical("hello")
        node.judge(lease)
        await comes(lambda: not folders(tmp_path), "the folder is gone")


@pytest.mark.rule("EVD-006")
async def test_a_refused_result_is_final_too(node: FakeNode, tmp_path: Path) -> None:
    node.accepts = False
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.submissions[lease])
        await comes(lambda: not folders(tmp_path))
    assert node.delivered() == {lease: 1}


async def test_an_upload_is_tried_until_the_node_has_the_bytes(node: FakeNode, tmp_path: Path) -> None:
    node.refuse_uploads = 3
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.submissions[lease])
    assert node.refuse_uploads == 0
    assert node.told(lease).count("OUTPUT_READY") == 1


async def test_a_large_output_arrives_whole(node: FakeNode, tmp_path: Path) -> None:
    prompt = "x" * 1_000_000
    async with working(node, tmp_path):
        lease = node.offer(prompt)
        await comes(lambda: node.submissions[lease])
    assert list(node.outputs.values()) == [canonical(prompt)]


async def test_an_output_that_the_node_never_takes_is_a_failure(node: FakeNode, tmp_path: Path) -> None:
    node.refuse_output = ("TooLarge", "TIER-001")
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.leases[lease].over == "PROVIDER_FAIL")
        await comes(lambda: not folders(tmp_path))
    failed = next(each for each in node.records() if each["payload_type"] == "LEASE_FAILED")
    assert failed["payload"]["reason"] == "OUTPUT_REFUSED: TooLarge: no"


async def test_an_upload_for_a_lost_lease_ends_it(node: FakeNode, tmp_path: Path) -> None:
    node.refuse_output = ("LeaseLost", "LEA-005")
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: "BLOCK_FENCE" in node.told(lease))
        await comes(lambda: not folders(tmp_path))
    assert node.delivered() == {}


# ------------------------------------------------------------------------------------------------ what goes wrong


class Faulty(msgspec.Struct, frozen=True):
    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        raise ArithmeticError("it does not add up")


@pytest.mark.rule("EVD-005")
async def test_a_fault_of_the_executor_is_a_failed_lease_with_its_reason(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path, executors={(Kind.AI, "faulty"): Faulty()}):
        lease = node.offer("hello", "faulty")
        await comes(lambda: node.told(lease) == FAILURE)
        await comes(lambda: not folders(tmp_path))
    failed = next(each for each in node.records() if each["payload_type"] == "LEASE_FAILED")
    assert failed["payload"]["reason"] == "EXECUTOR_ERROR: ArithmeticError: it does not add up"
    assert node.leases[lease].over == "PROVIDER_FAIL"


async def test_an_execution_that_takes_too_long_is_a_failed_lease(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path, execution_ms_max=20):
        lease = node.offer("hello", "sleep", ms=60_000)
        await comes(lambda: node.told(lease) == FAILURE)
    failed = next(each for each in node.records() if each["payload_type"] == "LEASE_FAILED")
    assert failed["payload"]["reason"] == "TIME_OUT: not done after 20 ms"


async def test_work_on_a_lost_lease_is_stopped(node: FakeNode, tmp_path: Path) -> None:
    busy = gate()
    async with working(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        lease = node.offer("hello", "gate")
        await comes(busy.begun.is_set)
        node.lose(lease)
        await comes(busy.cancelled.is_set)
        await comes(lambda: not folders(tmp_path))
        other = node.offer("other")
        await comes(lambda: node.submissions[other], "the agent works on")
    assert node.delivered() == {other: 1}
    fence = next(each for each in node.records() if each["payload_type"] == "BLOCK_FENCE")
    assert (fence["payload"]["status"], fence["payload"]["reason"]) == ("LOST", "LEASE_EXPIRED")


@pytest.mark.rule("EVD-005")
async def test_a_completion_that_came_too_late_blocks_nothing(node: FakeNode, tmp_path: Path) -> None:
    """The lease is lost while the node does not answer: its completion is stored as evidence and means nothing."""
    busy = gate()
    async with working(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        lease = node.offer("late", "gate")
        await comes(busy.begun.is_set)
        await comes(lambda: node.leases[lease].is_acked)
        node.leases[lease].over = "LEASE_EXPIRED"  # and nobody is told
        busy.open.set()
        await comes(lambda: "LEASE_COMPLETED" in node.told(lease))
        other = node.offer("other")
        await comes(lambda: node.submissions[other])
        node.hang_up()
        await comes(lambda: not folders(tmp_path), "asked on the next stream, the node says that it is over")
    assert node.submissions[lease] == 0


async def test_what_does_not_fit_is_declined(node: FakeNode, tmp_path: Path) -> None:
    busy = gate()
    async with working(node, tmp_path, slots=1, executors={(Kind.AI, "gate"): busy}):
        first = node.offer("first", "gate")
        await comes(busy.begun.is_set)
        second, third = node.offer("second"), node.offer("third", "unknown")
        await comes(lambda: node.leases[second].over and node.leases[third].over)
        busy.open.set()
        await comes(lambda: node.submissions[first])
        fourth = node.offer("fourth", "unknown")
        await comes(lambda: node.leases[fourth].over)
    assert node.leases[second].over == "FULL"
    assert node.leases[fourth].over == "NOT_OFFERED: AI 'unknown' is not offered here"


# ------------------------------------------------------------------------------------------------ staying alive


async def test_a_long_execution_renews_its_lease_before_the_mark(node: FakeNode, tmp_path: Path) -> None:
    busy = gate()
    async with working(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        lease = node.offer("long", "gate", t_ms=400)
        await comes(lambda: node.leases[lease].renewals == 4, "all renewals that there are")
        await comes(lambda: node.told(lease).count("PROGRESS") >= 4)
        busy.open.set()
        await comes(lambda: node.submissions[lease])
    renewals = [act.renewal for act in node.acts if act.act == "renew"]
    assert renewals[:4] == [1, 2, 3, 4]
    assert renewals[4:] in ([], [5]), "a refused one is not asked for again"


async def test_heartbeats_come_as_often_as_the_node_wants_them(node: FakeNode, tmp_path: Path) -> None:
    node.heartbeat_ms = 10
    async with working(node, tmp_path):
        await comes(lambda: sum(act.act == "beat" for act in node.acts) >= 5)


async def test_a_verdict_that_was_missed_is_asked_for_with_the_heartbeat(node: FakeNode, tmp_path: Path) -> None:
    node.heartbeat_ms, node.judges = 20, False
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await comes(lambda: node.submissions[lease])
        node.leases[lease].over = "COMPLETED"  # said to nobody
        await comes(lambda: not folders(tmp_path))


async def test_two_agents_cannot_share_a_folder(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path):
        with pytest.raises(Unavailable, match="another agent works"):
            await made(node, tmp_path).start()
