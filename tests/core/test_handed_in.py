"""Handed in, no mark ends a lease: what its holder is told after the deadline; and a tick over very many groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.ways import ALICE, Way, leased

from holdfast.core.lease.acts import AckLease, RenewLease
from holdfast.core.match import supply
from holdfast.core.match.decide import RulesNow
from holdfast.core.match.fit import Profile, why_not_able
from holdfast.core.match.supply import FITS_KEPT_MAX, Seat
from holdfast.core.proof.acts import CompletionIgnored, Submit
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.queue.line import Ask
from holdfast.core.refusal import Refused
from holdfast.core.state import digest
from holdfast.core.values import Kind, Tier

T_MS = 600_000


@pytest.mark.rule("RCV-001", "EVD-006")
@pytest.mark.parametrize("at_ms", [T_MS - 1, T_MS, 10 * T_MS])
def test_who_has_handed_in_is_told_to_wait_for_the_verdict_also_after_the_deadline(at_ms: int) -> None:
    way, job, lease = leased()
    way.submit(job)
    way.now_ms += at_ms
    for act in (AckLease(lease.id, lease.provider_id), RenewLease(lease.id, lease.provider_id, 1)):
        refused = way.ask(act)
        assert isinstance(refused, Refused)
        assert (refused.rule, refused.name) == ("RCV-001", "Refused")


@pytest.mark.rule("RCV-002")
@pytest.mark.parametrize("at_ms", [T_MS - 1, T_MS, 10 * T_MS])
def test_a_repeat_is_answered_as_the_first_and_another_digest_is_equivocation_while_the_verdict_waits(
    at_ms: int,
) -> None:
    way, job, lease = leased()
    first, other = way.envelope(job, b"out"), way.envelope(job, b"other")
    way.submit(job)
    way.now_ms += at_ms
    assert way.ask(Submit(lease.id, lease.provider_id, first)) == ()
    told = way.do(Submit(lease.id, lease.provider_id, other))
    assert isinstance(told[0], CompletionIgnored)


@pytest.mark.rule("RCV-002", "OBS-001")
def test_what_is_handed_in_too_late_changes_nothing_and_is_counted() -> None:
    way, job, lease = leased()
    proof = way.envelope(job, b"out")
    way.now_ms += T_MS
    before = digest(way.state)
    late = way.ask(Submit(lease.id, lease.provider_id, proof))
    assert isinstance(late, Refused)
    assert (late.name, way.state.tally.counts["ignored", ""], digest(way.state)) == ("LeaseLost", 1, before)


def in_groups(count: int, model: str = "echo") -> Way:
    """So many jobs, no two of which ask for the same, and one provider with one slot."""
    way = Way()
    way.funded(amount=10_000_000)
    way.provider(slots=1)
    for number in range(count):
        way.do(asked_for(way, number, model))
    return way


def asked_for(way: Way, number: int, model: str = "echo") -> Enqueue:
    payload = {"kind": "AI", "spec": {"model": model.format(number), "prompt": "hi"}, "units": number + 1}
    command = prepare(way.state.policy, ALICE, Tier.FREE, payload, 1, number + 1)
    assert isinstance(command, Enqueue)
    return command


@pytest.mark.rule("MAT-004")
def test_what_nobody_can_do_is_asked_once_however_much_of_it_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    way, asked = in_groups(FITS_KEPT_MAX + 10, model="nobodys-{}"), list[bytes]()
    able = why_not_able

    def counted(profile: Profile, kind: Kind, requirements: bytes) -> str | None:
        asked.append(requirements)
        return able(profile, kind, requirements)

    monkeypatch.setattr(supply, "why_not_able", counted)
    for nonce in range(3):
        way.do(asked_for(way, 100_000 + nonce, model="another-{}"))
        way.match()
    assert len(asked) == FITS_KEPT_MAX + 13


@pytest.mark.rule("MAT-007")
def test_once_the_last_slot_is_taken_nobody_is_asked_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    way, asked = in_groups(50), list[Ask]()
    welcome = RulesNow.welcome

    def counted(rules: RulesNow, ask: Ask) -> Callable[[Seat], bool] | None:
        asked.append(ask)
        return welcome(rules, ask)

    monkeypatch.setattr(RulesNow, "welcome", counted)
    assert len(way.match()) == 1
    assert len(asked) == 1
