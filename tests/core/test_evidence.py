"""Marks, the end of sessions, dead letters and pruning, decided and applied without a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.books import DEVELOPMENT
from tests.core.ways import Way

from holdfast.core import law
from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG, Payload, Tip
from holdfast.core.evidence.letters import Dead, ReleaseLetter, Standing
from holdfast.core.evidence.marks import NOBODY, Ending, EvidenceTaken, SessionSealed, TakeEvidence, is_final
from holdfast.core.evidence.sessions import AssignChannel, PruneEvidence, SealSession, owner_of
from holdfast.core.policy import EvidencePolicy, Policy
from holdfast.core.policy.knobs import DAY_MS
from holdfast.core.refusal import Refused
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import Digest, EventNo


def way(**knobs: Any) -> Way:
    return Way(State(msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(**knobs))))


def take(first: int, last: int, session: str = "s1", channel: str = "c", **told: Any) -> TakeEvidence:
    return TakeEvidence(NOBODY, channel, session, first, last, b"{}\n" * (last - first + 1), **told)


def dead(sequence: int, raw: bytes = b"x") -> Dead:
    return Dead(sequence, "Malformed", "no record", raw, len(raw), Digest(H(PAYLOAD_TAG, raw)))


def refused(outcome: object) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome


# ------------------------------------------------------------------------------------------------ marks


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(("first", "name"), [(3, None), (4, "EvidenceGap"), (1, "EvidenceGap")])
def test_only_what_follows_the_mark_is_taken(first: int, name: str | None) -> None:
    world = way()
    world.do(take(1, 2))
    outcome = world.ask(take(first, first + 2))
    assert (refused(outcome).name if name else outcome) is not None
    assert world.state.marks["c/s1"].acked == (2 if name else 5)


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (take(2**63 - 1, 2**63 - 1), "EvidenceGap"),
        (take(2**64 - 1, 2**64 - 1), "InvalidParams"),
        (take(0, 0), "InvalidParams"),
        (take(1, 1, session=""), "InvalidParams"),
        (take(1, 1, session="s" * 129), "InvalidParams"),
        (take(1, 1, channel="ab" * 32), "Forbidden"),
        (take(1, 1, dead=(dead(2),)), "InvalidParams"),
        (TakeEvidence(NOBODY, "c", "s", 1, 1, b"x" * ((4 << 20) + 1)), "TooLarge"),
        (TakeEvidence(NOBODY, "c", "s", 1, 1, b""), "TooLarge"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name_and_leaves_no_mark(command: TakeEvidence, name: str) -> None:
    world = way()
    assert refused(world.ask(command)).name == name
    assert world.state.marks == {}


@pytest.mark.rule("SEC-001")
def test_a_channel_begins_as_many_sessions_as_policy_says() -> None:
    world = way(sessions_per_channel_max=2)
    world.do(take(1, 1, "s1"))
    world.do(take(1, 1, "s2"))
    assert refused(world.ask(take(1, 1, "s3"))).name == "TooLarge"
    world.do(take(2, 2, "s1"))
    world.do(take(1, 1, "s1", channel="d"))


# ------------------------------------------------------------------------------------------------ the end


@pytest.mark.rule("SP-RET-001")
@pytest.mark.parametrize(("ending", "before", "after"), [(0, False, False), (1, False, True), (2, True, True)])
def test_a_session_is_final_by_its_last_record_and_where_that_is_a_fence_when_a_newer_one_begins(
    ending: Ending, before: bool, after: bool
) -> None:
    world = way()
    world.do(take(1, 1, ending=Ending(ending)))
    assert is_final(world.state.marks["c/s1"]) is before
    world.do(take(1, 1, "s1", channel="d"))
    assert is_final(world.state.marks["c/s1"]) is before
    events = world.do(take(1, 1, "s2"))
    assert any(isinstance(event, SessionSealed) for event in events) is (ending == 1)
    assert is_final(world.state.marks["c/s1"]) is after


@pytest.mark.rule("SP-RET-001")
def test_a_session_without_an_end_is_sealed_by_an_operator_and_is_open_again_when_records_come() -> None:
    world = way()
    world.do(take(1, 2))
    world.do(SealSession("c", "s1"))
    assert is_final(world.state.marks["c/s1"])
    assert world.do(SealSession("c", "s1")) == ()
    world.do(take(3, 3))
    assert not is_final(world.state.marks["c/s1"])
    assert refused(world.ask(SealSession("c", "none"))).name == "NotFound"


# ------------------------------------------------------------------------------------------------ pruning


def prune(until: int, *rows: int, session: str = "s1") -> PruneEvidence:
    return PruneEvidence("c", session, until, tuple(map(EventNo, rows)))


@pytest.mark.rule("EVD-008")
@pytest.mark.parametrize(("waited_ms", "is_due"), [(7 * DAY_MS - 1, False), (7 * DAY_MS, True)])
def test_records_go_when_their_session_was_final_for_as_long_as_policy_says(waited_ms: int, is_due: bool) -> None:
    world = way(retain_days=7)
    world.do(take(1, 5, ending=Ending.TERMINATED))
    world.now_ms += waited_ms
    world.state.touched["evidence"].clear()
    outcome = world.ask(prune(5, 1))
    mark = world.state.marks["c/s1"]
    if is_due:
        assert (mark.acked, mark.pruned) == (5, 5)
        assert world.state.touched["evidence"] == {1: None}
        assert refused(world.ask(take(1, 0))) is not None
        assert world.do(take(1, 5)) == ()
    else:
        assert refused(outcome).rule == "EVD-008"
        assert mark.pruned == 0


@pytest.mark.rule("EVD-008")
@pytest.mark.parametrize(
    ("knobs", "ending", "command", "name"),
    [
        ({}, Ending.TERMINATED, prune(5, 1), "Refused"),
        ({"retain_days": 0}, Ending.NONE, prune(5, 1), "NotFinal"),
        ({"retain_days": 0}, Ending.FENCE, prune(5, 1), "NotFinal"),
        ({"retain_days": 0}, Ending.TERMINATED, prune(6, 1), "InvalidParams"),
        ({"retain_days": 0}, Ending.TERMINATED, prune(5), "InvalidParams"),
        ({"retain_days": 0}, Ending.TERMINATED, prune(5, *range(1_001)), "InvalidParams"),
        ({"retain_days": 0}, Ending.TERMINATED, prune(5, 1, session="none"), "NotFound"),
    ],
)
def test_nothing_goes_that_policy_or_the_session_still_holds(
    knobs: dict[str, Any], ending: Ending, command: PruneEvidence, name: str
) -> None:
    world = way(**knobs)
    world.do(take(1, 5, ending=ending))
    assert refused(world.ask(command)).name == name
    assert world.state.marks["c/s1"].pruned == 0


# ------------------------------------------------------------------------------------------------ letters, owners


@pytest.mark.rule("EVD-007")
def test_a_letter_waits_in_memory_until_it_is_dealt_with_and_keeps_its_row() -> None:
    world = way()
    world.do(take(1, 3, dead=(dead(2), dead(3, b"y" * 5_000))))
    first, second = world.state.letters
    assert world.state.buried == {"c": 2}
    world.do(ReleaseLetter(first, "seen"))
    assert list(world.state.letters) == [second]
    row = world.state.touched["dead_letter"][first]
    assert (row.status, row.note, row.ended_ms) == (Standing.SETTLED, "seen", world.now_ms)  # type: ignore[union-attr]
    assert refused(world.ask(ReleaseLetter(first))).name == "NotFound"
    assert refused(world.ask(ReleaseLetter(second, "n" * 201))).name == "InvalidParams"
    world.do(ReleaseLetter(second))
    assert world.state.buried == {}


@pytest.mark.rule("EVD-007")
def test_an_ask_that_is_refused_leaves_its_letter_where_it_was() -> None:
    world = way()
    world.do(take(1, 1, dead=(dead(1),)))
    (event,) = world.state.letters
    before = digest(world.state)
    assert refused(world.ask(ReleaseLetter(event, ask=take(9, 9)))).name == "EvidenceGap"
    assert digest(world.state) == before
    world.do(ReleaseLetter(event, ask=take(2, 2)))
    assert world.state.marks["c/s1"].acked == 2


@pytest.mark.rule("EVD-009")
def test_a_channel_is_its_own_unless_an_operator_says_whose() -> None:
    world = way()
    assert owner_of(world.state, "c") == "c"
    world.do(AssignChannel("c", "air-1"))
    assert owner_of(world.state, "c") == "air-1"
    assert world.do(AssignChannel("c", "air-1")) == ()
    world.do(AssignChannel("c", ""))
    assert (owner_of(world.state, "c"), world.state.owners) == ("c", {})
    assert refused(world.ask(AssignChannel("ab" * 32, "air-1"))).name == "Forbidden"
    assert refused(world.ask(AssignChannel("c", "n" * 65))).name == "InvalidParams"


# ------------------------------------------------------------------------------------------------ keeping


@pytest.mark.rule("ENG-003")
def test_a_snapshot_brings_back_letters_owners_and_what_is_counted() -> None:
    world = way(retain_days=0)
    world.do(take(1, 3, dead=(dead(2),), ending=Ending.FENCE))
    world.do(take(1, 1, "s2", ending=Ending.TERMINATED))
    world.do(prune(1, 4, session="s2"))
    world.do(AssignChannel("c", "air-1"))
    state = world.state
    back, _ = restore(snapshot(state, Tip(last=state.last_event)), state.policy)
    assert digest(back) == digest(state)
    assert (back.letters, back.owners, back.buried) == (state.letters, state.owners, state.buried)
    assert back.begun["c"] == state.begun["c"]


@pytest.mark.rule("CAN-005", "ENG-003")
def test_a_history_from_before_sessions_had_an_end_folds_to_the_digest_it_had() -> None:
    """Events without the later fields have none of the later effects."""
    state = State(Policy())
    raw = b"{}\n"
    old = EvidenceTaken(NOBODY, "c", "s1", 1, 1, Payload(Digest(H(PAYLOAD_TAG, raw)), len(raw), raw))
    law.apply(state, old)
    mark = state.marks["c/s1"]
    assert msgspec.structs.astuple(mark)[5:] == (0, 0, 0, 0)
    assert digest(state) == bytes.fromhex("2df7701d01fb73cad677b2ae2abe186bbd7cd19f0d6407b75772b85b7259064b")
