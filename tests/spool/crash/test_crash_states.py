"""After any crash, fault or second crash everything promised holds: every short history, every state it may leave."""

from __future__ import annotations

import pytest
from tests.counts import FULL, counts
from tests.spool.crash.campaign import DELETED, SETUPS, deletion, explored, plan, rotten

KINDS = ("power cut", "kill", "second power cut")
STATES = {
    "plain": counts(16_500, 250_000),
    "segments": counts(8_800, 150_000),
    "one-segment": counts(5_500, 190_000),
    "always-near-window": counts(3_200, 250_000),
    "capped": counts(5_000, 60_000),
    "capped-segments": counts(3_000, 40_000),
    "full-disk": counts(4_700, 60_000),
    "full-disk-segments": counts(3_600, 40_000),
}
"""At least so many distinct states are opened: by what the disk holds, in sessions of different names."""


def test_there_are_as_many_states_as_we_say() -> None:
    assert sum(STATES.values()) >= counts(50_000, 1_000_000)
    assert STATES.keys() == SETUPS.keys()


@pytest.mark.timeout(3_000)
@pytest.mark.rule("SP-002", "SP-003", "SP-005", "SP-ACK-001", "SP-ACK-003", "SP-RET-001", "SP-RET-002", "SP-RET-003")
@pytest.mark.rule("SP-CRASH-001", "SP-CRASH-002", "SP-CRASH-003")
@pytest.mark.parametrize("name", SETUPS)
def test_no_crash_and_no_failing_disk_breaks_a_promise(name: str) -> None:
    setup = SETUPS[name]
    explorer = explored(setup, plan(setup, full=FULL))
    print(f"{name}: {len(explorer.states)} distinct states, {explorer.checks} checks, {dict(explorer.kinds)}")
    assert len(explorer.states) >= STATES[name]
    assert min(explorer.kinds[kind] for kind in KINDS) > 0


@pytest.mark.rule("SP-CRASH-002")
@pytest.mark.parametrize("name", SETUPS)
def test_damage_in_the_middle_is_told_and_never_passed_over(name: str) -> None:
    rot = rotten(SETUPS[name], counts(8, 1))
    assert len(rot.states) >= counts(500, 4_000)


@pytest.mark.rule("SP-RET-001")
@pytest.mark.parametrize("name", ["plain", "segments"])
@pytest.mark.parametrize("word", DELETED)
def test_a_crash_while_a_finished_session_is_deleted_leaves_nothing_that_looks_unfinished(name: str, word: str) -> None:
    states = deletion(SETUPS[name], word)
    assert len(states) >= 10
