"""Submitted, no mark ends a lease: what its holder is told after the deadline; and a tick over very many groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.core_driver import ALICE, CoreDriver, leased

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind, Tier
from holdfast.core.lease.messages import AckLease, RenewLease
from holdfast.core.match import provider_index
from holdfast.core.match.decide import LiveRules
from holdfast.core.match.eligibility import Profile, why_not_able
from holdfast.core.match.provider_index import FITTING_CACHE_MAX, IndexedProvider
from holdfast.core.proof.messages import CompletionIgnored, SubmitCompletion
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.queue.ready_queue import JobShape
from holdfast.core.state_snapshot import digest

T_MS = 600_000


@pytest.mark.rule("RCV-001", "EVD-006")
@pytest.mark.parametrize("at_ms", [T_MS - 1, T_MS, 10 * T_MS])
def test_who_has_submitted_must_wait_for_the_verdict_also_after_the_deadline(at_ms: int) -> None:
    core, job, lease = leased()
    core.submit(job)
    core.now_ms += at_ms
    for act in (AckLease(lease.id, lease.provider_id), RenewLease(lease.id, lease.provider_id, 1)):
        refused = core.ask(act)
        assert isinstance(refused, Refused)
        assert (refused.rule, refused.name) == ("RCV-001", "Refused")


@pytest.mark.rule("RCV-002")
@pytest.mark.parametrize("at_ms", [T_MS - 1, T_MS, 10 * T_MS])
def test_a_repeat_is_answered_as_the_first_and_another_digest_is_equivocation_while_the_verdict_waits(
    at_ms: int,
) -> None:
    core, job, lease = leased()
    first, other = core.envelope(job, b"out"), core.envelope(job, b"other")
    core.submit(job)
    core.now_ms += at_ms
    assert core.ask(SubmitCompletion(lease.id, lease.provider_id, first)) == ()
    told = core.do(SubmitCompletion(lease.id, lease.provider_id, other))
    assert isinstance(told[0], CompletionIgnored)


@pytest.mark.rule("RCV-002", "OBS-001")
def test_what_is_submitted_too_late_changes_nothing_and_is_counted() -> None:
    core, job, lease = leased()
    proof = core.envelope(job, b"out")
    core.now_ms += T_MS
    before = digest(core.state)
    late = core.ask(SubmitCompletion(lease.id, lease.provider_id, proof))
    assert isinstance(late, Refused)
    assert (late.name, core.state.metrics.counts["ignored", ""], digest(core.state)) == ("LeaseLost", 1, before)


def in_groups(count: int, model: str = "echo") -> CoreDriver:
    """So many jobs, no two of which ask for the same, and one provider with one slot."""
    core = CoreDriver()
    core.funded(amount=10_000_000)
    core.provider(slots=1)
    for number in range(count):
        core.do(enqueue_command(core, number, model))
    return core


def enqueue_command(core: CoreDriver, number: int, model: str = "echo") -> Enqueue:
    payload = {"kind": "AI", "spec": {"model": model.format(number), "prompt": "hi"}, "units": number + 1}
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, 1, number + 1)
    assert isinstance(command, Enqueue)
    return command


@pytest.mark.rule("MAT-004")
def test_what_nobody_can_do_is_asked_once_however_much_of_it_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    core, asked = in_groups(FITTING_CACHE_MAX + 10, model="nobodys-{}"), list[bytes]()
    able = why_not_able

    def counted(profile: Profile, kind: Kind, requirements: bytes) -> str | None:
        asked.append(requirements)
        return able(profile, kind, requirements)

    monkeypatch.setattr(provider_index, "why_not_able", counted)
    for nonce in range(3):
        core.do(enqueue_command(core, 100_000 + nonce, model="another-{}"))
        core.match()
    assert len(asked) == FITTING_CACHE_MAX + 13


@pytest.mark.rule("MAT-007")
def test_once_the_last_slot_is_taken_nobody_is_asked_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    core, asked = in_groups(50), list[JobShape]()
    welcome = LiveRules.provider_filter

    def counted(rules: LiveRules, ask: JobShape) -> Callable[[IndexedProvider], bool] | None:
        asked.append(ask)
        return welcome(rules, ask)

    monkeypatch.setattr(LiveRules, "provider_filter", counted)
    assert len(core.match()) == 1
    assert len(asked) == 1
