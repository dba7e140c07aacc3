"""After any crash, fault or second crash everything promised holds: every short history, every state it may leave."""

from __future__ import annotations

import pytest
from tests.counts import FULL, counts
from tests.spool.crash.campaign import EVERY_DAY, IN_FULL, SETUPS, explore
from tests.spool.crash.explore import AFTER_A_FAULT, FIRST, KILL, SECOND

PLANS = IN_FULL if FULL else EVERY_DAY
STATES = {
    "plain": counts(22_200, 380_000),
    "segments": counts(10_200, 164_000),
    "one-segment": counts(4_200, 127_000),
    "always-near-window": counts(6_300, 193_000),
    "capped": counts(3_900, 92_000),
    "capped-segments": counts(1_600, 47_000),
    "full-disk": counts(1_600, 41_000),
    "full-disk-segments": counts(2_090, 30_000),
}
"""From at least so many states a spool is opened and held to what was promised: different bytes on the disk, or the
same ones that a sync covers in one and not in the other. Each counts once for a way of opening it."""


def test_there_are_as_many_states_as_we_say() -> None:
    assert sum(STATES.values()) >= counts(50_000, 1_000_000)
    assert STATES.keys() == SETUPS.keys() == PLANS.keys()


@pytest.mark.timeout(3_000)
@pytest.mark.rule("SP-001", "SP-002", "SP-003", "SP-005", "SP-ACK-001", "SP-ACK-002", "SP-ACK-003")
@pytest.mark.rule("SP-RET-001", "SP-RET-002", "SP-RET-003", "SP-CRASH-001", "SP-CRASH-002", "SP-CRASH-003")
@pytest.mark.parametrize("name", SETUPS)
def test_no_crash_and_no_failing_disk_breaks_a_promise(name: str) -> None:
    explorer = explore(SETUPS[name], PLANS[name])
    print(f"{name}: {len(explorer.judged)} states, {explorer.checks} checks, {dict(explorer.kinds)}")
    assert explorer.judged == explorer.states, "a state was counted and not opened"
    assert len(explorer.judged) >= STATES[name]
    assert all(explorer.kinds[kind] for kind in (FIRST, SECOND, KILL, AFTER_A_FAULT))
