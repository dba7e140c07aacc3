"""Marks, the end of sessions, dead letters and pruning, decided and applied without a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import PAYLOAD_TAG, JournalHead, PayloadRef
from holdfast.core.base.values import Digest, EventNo
from holdfast.core.evidence.messages import (
    AssignChannel,
    EvidenceStored,
    PruneEvidence,
    RejectedRecord,
    ResolveDeadLetter,
    SealSession,
    SessionSealed,
    StoreEvidence,
)
from holdfast.core.evidence.model import NO_PROVIDER, DeadLetterStatus, SessionEnd, SessionWatermark, is_final
from holdfast.core.evidence.sessions import owner_of
from holdfast.core.policy import DAY_MS, EvidencePolicy, Policy, UnstakedEvidence
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot


def evidence_core(**settings: Any) -> CoreDriver:
    return CoreDriver(
        State(msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, **settings)))
    )


def store(first: int, last: int, session: str = "s1", channel: str = "c", **fields: Any) -> StoreEvidence:
    return StoreEvidence(NO_PROVIDER, channel, session, first, last, b"{}\n" * (last - first + 1), **fields)


def rejected(sequence: int, raw: bytes = b"x") -> RejectedRecord:
    return RejectedRecord(sequence, "Malformed", "no record", raw, len(raw), Digest(H(PAYLOAD_TAG, raw)))


def refused(outcome: object) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome


# ------------------------------------------------------------------------------------------------ marks


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(("first", "name"), [(3, None), (4, "EvidenceGap"), (1, "EvidenceGap")])
def test_only_what_follows_the_watermark_is_stored(first: int, name: str | None) -> None:
    world = evidence_core()
    world.do(store(1, 2))
    outcome = world.ask(store(first, first + 2))
    assert (refused(outcome).name if name else outcome) is not None
    assert world.state.watermarks["c/s1"].acked == (2 if name else 5)


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (store(2**63 - 1, 2**63 - 1), "EvidenceGap"),
        (store(2**64 - 1, 2**64 - 1), "InvalidParams"),
        (store(0, 0), "InvalidParams"),
        (store(1, 1, session=""), "InvalidParams"),
        (store(1, 1, session="s" * 129), "InvalidParams"),
        (store(1, 1, channel="ab" * 32), "Forbidden"),
        (store(1, 1, rejected=(rejected(2),)), "InvalidParams"),
        (StoreEvidence(NO_PROVIDER, "c", "s", 1, 1, b"x" * ((4 << 20) + 1)), "TooLarge"),
        (StoreEvidence(NO_PROVIDER, "c", "s", 1, 1, b""), "TooLarge"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name_and_leaves_no_watermark(command: StoreEvidence, name: str) -> None:
    world = evidence_core()
    assert refused(world.ask(command)).name == name
    assert world.state.watermarks == {}


@pytest.mark.rule("SEC-001")
def test_a_channel_begins_as_many_sessions_as_policy_says() -> None:
    world = evidence_core(sessions_per_channel_max=2)
    world.do(store(1, 1, "s1"))
    world.do(store(1, 1, "s2"))
    assert refused(world.ask(store(1, 1, "s3"))).name == "TooLarge"
    world.do(store(2, 2, "s1"))
    world.do(store(1, 1, "s1", channel="d"))


# ------------------------------------------------------------------------------------------------ the end


@pytest.mark.rule("SP-RET-001")
@pytest.mark.parametrize(("ending", "before", "after"), [(0, False, False), (1, False, True), (2, True, True)])
def test_a_session_is_final_by_its_last_record_and_where_that_is_a_fence_when_a_newer_one_begins(
    ending: SessionEnd, before: bool, after: bool
) -> None:
    world = evidence_core()
    world.do(store(1, 1, ending=SessionEnd(ending)))
    assert is_final(world.state.watermarks["c/s1"]) is before
    world.do(store(1, 1, "s1", channel="d"))
    assert is_final(world.state.watermarks["c/s1"]) is before
    events = world.do(store(1, 1, "s2"))
    assert any(isinstance(event, SessionSealed) for event in events) is (ending == 1)
    assert is_final(world.state.watermarks["c/s1"]) is after


@pytest.mark.rule("SP-RET-001")
def test_a_session_without_an_end_is_sealed_by_an_operator_and_is_open_again_when_records_come() -> None:
    world = evidence_core()
    world.do(store(1, 2))
    world.do(SealSession("c", "s1"))
    assert is_final(world.state.watermarks["c/s1"])
    assert world.do(SealSession("c", "s1")) == ()
    world.do(store(3, 3))
    assert not is_final(world.state.watermarks["c/s1"])
    assert refused(world.ask(SealSession("c", "none"))).name == "NotFound"


# ------------------------------------------------------------------------------------------------ pruning


def prune(until: int, *rows: int, session: str = "s1") -> PruneEvidence:
    return PruneEvidence("c", session, until, tuple(map(EventNo, rows)))


@pytest.mark.rule("EVD-008")
@pytest.mark.parametrize(("waited_ms", "is_due"), [(7 * DAY_MS - 1, False), (7 * DAY_MS, True)])
def test_records_are_pruned_when_their_session_was_final_for_as_long_as_policy_says(
    waited_ms: int, is_due: bool
) -> None:
    world = evidence_core(retain_days=7)
    world.do(store(1, 5, ending=SessionEnd.TERMINATED))
    world.now_ms += waited_ms
    world.state.touched["evidence"].clear()
    outcome = world.ask(prune(5, 1))
    mark = world.state.watermarks["c/s1"]
    if is_due:
        assert (mark.acked, mark.pruned) == (5, 5)
        assert world.state.touched["evidence"] == {1: None}
        assert refused(world.ask(store(1, 0))) is not None
        assert world.do(store(1, 5)) == ()
    else:
        assert refused(outcome).rule == "EVD-008"
        assert mark.pruned == 0


@pytest.mark.rule("EVD-008")
@pytest.mark.parametrize(
    ("knobs", "ending", "command", "name"),
    [
        ({}, SessionEnd.TERMINATED, prune(5, 1), "Refused"),
        ({"retain_days": 0}, SessionEnd.NONE, prune(5, 1), "NotFinal"),
        ({"retain_days": 0}, SessionEnd.FENCE, prune(5, 1), "NotFinal"),
        ({"retain_days": 0}, SessionEnd.TERMINATED, prune(6, 1), "InvalidParams"),
        ({"retain_days": 0}, SessionEnd.TERMINATED, prune(5), "InvalidParams"),
        ({"retain_days": 0}, SessionEnd.TERMINATED, prune(5, *range(1_001)), "InvalidParams"),
        ({"retain_days": 0}, SessionEnd.TERMINATED, prune(5, 1, session="none"), "NotFound"),
    ],
)
def test_nothing_is_pruned_that_policy_or_the_session_still_holds(
    knobs: dict[str, Any], ending: SessionEnd, command: PruneEvidence, name: str
) -> None:
    world = evidence_core(**knobs)
    world.do(store(1, 5, ending=ending))
    assert refused(world.ask(command)).name == name
    assert world.state.watermarks["c/s1"].pruned == 0


# ------------------------------------------------------------------------------------------------ letters, owners


@pytest.mark.rule("EVD-007")
def test_a_dead_letter_waits_in_memory_until_it_is_resolved_and_keeps_its_row() -> None:
    world = evidence_core()
    world.do(store(1, 3, rejected=(rejected(2), rejected(3, b"y" * 5_000))))
    first, second = world.state.dead_letters
    assert world.state.dead_letters_waiting == {"c": 2}
    world.do(ResolveDeadLetter(first, "seen"))
    assert list(world.state.dead_letters) == [second]
    row = world.state.touched["dead_letter"][first]
    assert (row.status, row.note, row.ended_ms) == (DeadLetterStatus.SETTLED, "seen", world.now_ms)  # type: ignore[union-attr]
    assert refused(world.ask(ResolveDeadLetter(first))).name == "NotFound"
    assert refused(world.ask(ResolveDeadLetter(second, "n" * 201))).name == "InvalidParams"
    world.do(ResolveDeadLetter(second))
    assert world.state.dead_letters_waiting == {}


@pytest.mark.rule("EVD-007")
def test_a_retry_that_is_refused_leaves_its_dead_letter_where_it_was() -> None:
    world = evidence_core()
    world.do(store(1, 1, rejected=(rejected(1),)))
    (event,) = world.state.dead_letters
    before = digest(world.state)
    assert refused(world.ask(ResolveDeadLetter(event, retry_command=store(9, 9)))).name == "EvidenceGap"
    assert digest(world.state) == before
    world.do(ResolveDeadLetter(event, retry_command=store(2, 2)))
    assert world.state.watermarks["c/s1"].acked == 2


@pytest.mark.rule("EVD-009")
def test_a_channel_is_its_own_unless_an_operator_says_whose() -> None:
    world = evidence_core()
    assert owner_of(world.state, "c") == "c"
    world.do(AssignChannel("c", "air-1"))
    assert owner_of(world.state, "c") == "air-1"
    assert world.do(AssignChannel("c", "air-1")) == ()
    world.do(AssignChannel("c", ""))
    assert (owner_of(world.state, "c"), world.state.channel_owners) == ("c", {})
    assert refused(world.ask(AssignChannel("ab" * 32, "air-1"))).name == "Forbidden"
    assert refused(world.ask(AssignChannel("c", "n" * 65))).name == "InvalidParams"


# ------------------------------------------------------------------------------------------------ keeping


@pytest.mark.rule("ENG-003")
def test_a_snapshot_brings_back_dead_letters_owners_and_what_is_counted() -> None:
    world = evidence_core(retain_days=0)
    world.do(store(1, 3, rejected=(rejected(2),), ending=SessionEnd.FENCE))
    world.do(store(1, 1, "s2", ending=SessionEnd.TERMINATED))
    world.do(prune(1, 4, session="s2"))
    world.do(AssignChannel("c", "air-1"))
    state = world.state
    back, _ = restore(snapshot(state, JournalHead(last=state.last_event)), state.policy)
    assert digest(back) == digest(state)
    assert (back.dead_letters, back.channel_owners, back.dead_letters_waiting) == (
        state.dead_letters,
        state.channel_owners,
        state.dead_letters_waiting,
    )
    assert back.channel_sessions["c"] == state.channel_sessions["c"]


@pytest.mark.rule("CAN-005", "ENG-003")
def test_fields_that_an_event_lacks_have_no_effect_and_add_nothing_to_the_digest() -> None:
    """A watermark as a history without session ends leaves it: its later fields hold their defaults."""
    state = State(Policy())
    raw = b"{}\n"
    stored = EvidenceStored(NO_PROVIDER, "c", "s1", 1, 1, PayloadRef(Digest(H(PAYLOAD_TAG, raw)), len(raw), raw))
    state_machine.apply(state, stored)
    watermark = state.watermarks["c/s1"]
    assert msgspec.structs.astuple(watermark)[5:] == (0, 0, 0, 0)
    before = digest(state)

    class Grown(SessionWatermark):
        """The record of a later version: one field more."""

        note: str = ""

    state.watermarks["c/s1"] = Grown(*msgspec.structs.astuple(watermark))
    assert digest(state) == before
    state.watermarks["c/s1"].note = "x"  # type: ignore[attr-defined]
    assert digest(state) != before
