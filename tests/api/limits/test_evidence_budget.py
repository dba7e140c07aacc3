"""Budgets of evidence: without a stake one waits, with one nobody is refused, dead letters are shortened (SEC-002)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.api.grpc.agent_driver import AgentDriver, agent_node
from tests.simulation.world import SimulatedClock

from holdfast.api.evidence.reader import dead_letter_bytes
from holdfast.api.evidence.validation import reject
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.limits.evidence_budget import BRIEF_BYTES, SHARED_BY, EvidenceBudget
from holdfast.core.evidence.messages import RejectedRecord

pytestmark = pytest.mark.rule("SEC-002")
KIB = 1_024


class MovingClock(SimulatedClock):
    """Sleeping takes as long as it says."""

    async def sleep(self, ms: int) -> None:
        self.monotonic += ms
        await super().sleep(ms)


def budget(clock: SimulatedClock) -> EvidenceBudget:
    settings = GrpcSettings(
        evidence_kib_per_s=1_000, evidence_kib_burst=2_000, unstaked_kib_per_s=10, unstaked_kib_burst=20
    )
    return EvidenceBudget(clock, settings)


async def test_a_sender_without_a_stake_waits_once_its_burst_is_spent() -> None:
    clock = MovingClock()
    told = budget(clock)
    await told.wait_turn("a", 20 * KIB, is_staked=False)
    assert clock.slept == []
    await told.wait_turn("a", 50 * KIB, is_staked=False)
    assert sum(clock.slept) == 5_000
    await told.wait_turn("b", 1, is_staked=False)
    assert sum(clock.slept) == 5_000, "another one has a burst of its own"


async def test_registering_again_and_again_makes_the_budget_no_larger() -> None:
    clock = MovingClock()
    told = budget(clock)
    for number in range(4 * SHARED_BY):
        await told.wait_turn(f"stranger-{number}", 20 * KIB, is_staked=False)
    assert sum(clock.slept) >= 5_000
    before = sum(clock.slept)
    await told.wait_turn("oak", 1_900 * KIB, is_staked=True)
    assert sum(clock.slept) == before, "who has a stake does not wait for strangers"
    await told.wait_turn("oak", 1_100 * KIB, is_staked=True)
    assert sum(clock.slept) == before + 1_000, "and has a budget of its own"


def test_a_dead_letter_over_budget_keeps_digest_size_and_beginning() -> None:
    told = budget(SimulatedClock())
    raw = bytes(15 * KIB)
    whole, short = (told.shorten("a", reject(1, ("BAD", "it is"), raw)) for _ in range(2))
    assert (len(whole.raw), len(short.raw), short.size, short.digest) == (len(raw), BRIEF_BYTES, len(raw), whole.digest)


async def test_evidence_of_an_agent_without_a_stake_is_stored_within_its_budget(tmp_path: Path) -> None:
    """Two strangers wrote 73 MB in 8 s."""
    async with agent_node(tmp_path) as node:
        clock = SimulatedClock()
        asked: list[tuple[int, bool]] = []

        class Noted(EvidenceBudget):
            async def wait_turn(self, sender: str, size: int, *, is_staked: bool) -> None:
                asked.append((size, is_staked))
                await asyncio.sleep(0)

            def shorten(self, sender: str, rejected: RejectedRecord) -> RejectedRecord:
                return msgspec.structs.replace(rejected, raw=rejected.raw[:3])

        node.agent_context.evidence_budget = Noted(clock, GrpcSettings())
        stranger, oak = AgentDriver(node, "stranger"), AgentDriver(node, "oak")
        await stranger.register()
        await oak.start_work()
        for agent in (stranger, oak):
            stream = await agent.open_evidence("s")
            await stream.send_and_ack(1, [b"not a record"])
        assert [is_staked for _, is_staked in asked] == [False, True]
        assert all(size == len(b"not a record") for size, _ in asked)
        events = list(node.engine.undurable_state.dead_letters)
        assert [await dead_letter_bytes(node.engine, event) for event in events] == [b"not", b"not"]
