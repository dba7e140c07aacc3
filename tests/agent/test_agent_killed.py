"""kill -9 of a real agent at every stage of a lease: the work is delivered, and its completion is told exactly once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import lease_dirs, wait_until
from tests.agent.killable_agent import KILL_POINTS, LARGE_KILL_POINTS, THROWN, KillableAgent
from tests.agent.test_lease_executor import LARGE
from tests.counts import counts
from tests.shipping.test_session_sender import check_complete

from holdfast.core.result.ids import result_digest

SEED = 20261116
SUBMITTED_POINTS = ["completion emitted", "completion spooled", "completion acked"]
"""Points after which a verdict that comes later, or was missed, makes a difference."""
SMALL_POINTS = [point for point in KILL_POINTS if point != "never"]
LARGE_POINTS = [*SMALL_POINTS, *LARGE_KILL_POINTS]
Start = Callable[[str], KillableAgent]


@pytest.fixture
def start(node: FakeNode, tmp_path: Path) -> Iterator[Start]:
    """Start an agent on the test's folder; none outlives the test."""
    begun: list[KillableAgent] = []

    def start(point: str) -> KillableAgent:
        begun.append(KillableAgent(node.port, tmp_path / "agent", point))
        return begun[-1]

    yield start
    for agent in begun:
        agent.kill()


@pytest.mark.rule("EVD-005", "EVD-006")
@pytest.mark.parametrize(
    ("point", "judges"), [(point, True) for point in SMALL_POINTS] + [(point, False) for point in SUBMITTED_POINTS]
)
async def test_an_agent_killed_at_any_stage_delivers_its_work_once(
    node: FakeNode, tmp_path: Path, start: Start, point: str, judges: bool
) -> None:
    """The spool is all that the next process has: there are no other files, and the output is in it."""
    node.is_judging = judges
    lease = node.offer("hello")
    assert await start(point).ended() == -9
    assert lease_dirs(tmp_path / "agent") == []
    start("never")
    await wait_until(lambda: node.submissions[lease] == 1)
    if not judges and not node.leases[lease].ended_reason:
        assert base64.b64encode(b"hello") in spooled_bytes(tmp_path / "agent")
        await wait_until(lambda: node.connected)
        node.send_verdict(lease)
    await check_delivered_once(node, tmp_path, lease, "hello")


@pytest.mark.rule("EVD-005", "EVD-006")
@pytest.mark.parametrize(
    ("point", "judges"),
    [(point, True) for point in LARGE_POINTS] + [(point, False) for point in [*SUBMITTED_POINTS, "being removed"]],
)
async def test_an_agent_killed_at_any_stage_of_a_large_lease_delivers_its_work_once(
    node: FakeNode, tmp_path: Path, start: Start, point: str, judges: bool
) -> None:
    node.is_judging = judges
    lease = node.offer(LARGE)
    first = start(point)
    if point == "being removed" and not judges:
        await wait_until(lambda: node.submissions[lease])
        node.send_verdict(lease)
    assert await first.ended() == -9
    start("never")
    await wait_until(lambda: node.submissions[lease] == 1)
    if not judges and not node.leases[lease].ended_reason:
        assert lease_dirs(tmp_path / "agent") == [lease.hex()]
        await wait_until(lambda: node.connected)
        node.send_verdict(lease)
    await check_delivered_once(node, tmp_path, lease, LARGE)


async def check_delivered_once(node: FakeNode, tmp_path: Path, lease: bytes, prompt: str) -> None:
    await wait_until(lambda: not lease_dirs(tmp_path / "agent"), "nothing is left of it")
    await wait_until(lambda: node.record_types(lease).count("LEASE_COMPLETED") == 1)
    assert node.delivered() == {lease: 1}
    assert node.outputs == {result_digest(prompt.encode()): prompt.encode()}
    assert node.leases[lease].ended_reason == "JUDGED"
    check_complete(node)


def spooled_bytes(data: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (data / "spool").rglob("*.jsonl"))


@pytest.mark.rule("RCV-002")
@pytest.mark.parametrize(
    ("point", "prompt"),
    [
        ("output written", "hello"),
        ("signed", "hello"),
        ("completion emitted", "hello"),
        ("completion spooled", "hello"),
        ("completion acked", "hello"),
        ("output written", LARGE),
        ("uploaded", LARGE),
        ("signed", LARGE),
    ],
)
async def test_an_agent_killed_after_its_digest_is_on_disk_never_computes_another(
    node: FakeNode, tmp_path: Path, start: Start, point: str, prompt: str
) -> None:
    """The work gives other bytes every time: a second digest would be equivocation."""
    lease = node.offer(prompt, "dice")
    assert await start(point).ended() == -9
    start("never")
    await wait_until(lambda: node.submissions[lease] == 1)
    await wait_until(lambda: node.delivered() == {lease: 1} and not lease_dirs(tmp_path / "agent"))
    assert (tmp_path / "agent" / THROWN).read_bytes() == b"."
    assert len(node.outputs) == 1


@pytest.mark.rule("EVD-005", "EVD-006")
async def test_a_lease_whose_acceptance_was_acked_is_resumed_without_the_node(
    node: FakeNode, tmp_path: Path, start: Start
) -> None:
    """The node has everything that was spooled, and is gone: the offer in the spool is enough to do the work."""
    lease = node.offer("hello", "sleep", ms=60_000)
    agent = start("never")
    await wait_until(lambda: node.leases[lease].is_acked)
    agent.kill()
    await node.stop()
    start("never")
    await wait_until(lambda: lease_dirs(tmp_path / "agent") == [lease.hex()], "it is resumed, and a file by now")


@pytest.mark.rule("EVD-005", "EVD-006")
async def test_a_lease_that_was_lost_while_the_agent_was_dead_is_dropped(
    node: FakeNode, tmp_path: Path, start: Start
) -> None:
    lease = node.offer(LARGE)
    assert await start("output written").ended() == -9
    node.leases[lease].ended_reason = "LEASE_EXPIRED"
    start("never")
    await wait_until(lambda: not lease_dirs(tmp_path / "agent"))
    other = node.offer("other")
    await wait_until(lambda: node.submissions[other])
    assert node.submissions[lease] == 0


@pytest.mark.rule("EVD-005")
async def test_a_spooled_completion_reaches_the_node_without_its_agents_leases(
    node: FakeNode, tmp_path: Path, start: Start
) -> None:
    """Nothing was sent: the node took no evidence while the agent lived. The spool is enough."""
    node.is_unresponsive = True
    lease = node.offer("hello")
    assert await start("completion spooled").ended() == -9
    assert node.record_types(lease) == []
    node.is_unresponsive = False
    start("never")
    await wait_until(lambda: node.submissions[lease] == 1)
    await wait_until(lambda: not lease_dirs(tmp_path / "agent"))
    check_complete(node)
    assert node.delivered() == {lease: 1}


@pytest.mark.rule("EVD-005", "EVD-006")
async def test_an_agent_killed_at_random_delivers_every_lease_once(
    node: FakeNode, tmp_path: Path, start: Start
) -> None:
    random = Random(SEED)
    leases = [node.offer(f"job {n}", "sleep", ms=random.randrange(80)) for n in range(4)]
    for round_ in range(counts(4, 60)):
        agent = start("never")
        await wait_until(lambda: node.connected)
        leases += [node.offer(f"more {round_} {n}", "sleep", ms=random.randrange(80)) for n in range(3)]
        await asyncio.sleep(random.random() / 5)
        agent.kill()
        if random.randrange(3) == 0:
            await node.stop()
            await node.start()
    start("never")
    taken = [lease for lease in leases if node.leases[lease].ended_reason != "FULL"]
    await wait_until(
        lambda: all(node.submissions[lease] == 1 for lease in taken if node.leases[lease].ended_reason != "FULL")
    )
    await wait_until(lambda: not lease_dirs(tmp_path / "agent"))
    delivered = {lease for lease in leases if node.leases[lease].ended_reason == "JUDGED"}
    assert len(delivered) >= 4
    assert node.delivered() == dict.fromkeys(delivered, 1)
    assert all(node.leases[lease].ended_reason in ("JUDGED", "FULL") for lease in leases)
    check_complete(node)
