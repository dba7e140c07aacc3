"""Submitted, no mark ends a lease: what its holder is told after the deadline; and a tick over very many groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.core.core_driver import ALICE, CoreDriver, leased

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind, TaskId, Tier
from holdfast.core.lease.messages import AckLease, RenewLease
from holdfast.core.lease.model import Lease
from holdfast.core.match import provider_index
from holdfast.core.match.decide import LiveRules
from holdfast.core.match.eligibility import Profile, why_not_able
from holdfast.core.match.provider_index import FITTING_CACHE_MAX, IndexedProvider
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import CompletionIgnored, RecordVerdict, SubmitCompletion
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.queue.ready_queue import JobShape
from holdfast.core.result import result_digest
from holdfast.core.state_digest import digest

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
    assert (late.name, core.state.result_counts["ignored", ""], digest(core.state)) == ("LeaseLost", 1, before)


def in_groups(count: int, model: str = "echo") -> CoreDriver:
    """So many jobs, no two of which ask for the same, and one provider with one slot."""
    core = CoreDriver()
    core.funded(amount=10_000_000)
    core.provider(slots=1, price=0)
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


# ------------------------------------------------------------------------------------------------ equivocation


def second(core: CoreDriver, job: TaskId, lease: Lease, **told: Any) -> SubmitCompletion:
    """Another digest of the same lease, whose output the node does not hold."""
    body = body_of(job, lease.id, lease.provider_id, result_digest(b"other"), 5, {"ms": 5})
    envelope = Envelope(1, "attested", body, b"s" * 64)
    return SubmitCompletion(lease.id, lease.provider_id, envelope, is_output_held=False, **told)


@pytest.mark.rule("RCV-002", "PRV-004")
@pytest.mark.parametrize("is_good", [True, False])
@pytest.mark.parametrize("has_left_memory", [False, True])
def test_another_digest_after_the_verdict_is_recorded_and_slashed_once(is_good: bool, has_left_memory: bool) -> None:
    core, job, lease = leased()
    core.submit(job)
    core.do(RecordVerdict(lease.id, is_good))
    provider = core.state.providers[lease.provider_id]
    at_stake, record = provider.at_stake, None
    if has_left_memory:
        record = msgspec.structs.replace(lease)
        core.state.attempts.pop(job)
    events = core.do(second(core, job, lease, record=record))
    assert isinstance(events[0], CompletionIgnored)
    assert (events[0].reason, events[0].is_penalized) == ("EQUIVOCATION", True)
    assert provider.at_stake == at_stake - at_stake * 250_000 // 1_000_000
    assert core.ask(second(core, job, lease, record=record)) == (), "once for a lease"


@pytest.mark.rule("RCV-002")
def test_a_repeat_after_the_verdict_is_none_and_so_is_what_another_provider_says() -> None:
    core, job, lease = leased()
    core.submit(job)
    first = core.envelope(job, b"out")
    core.do(RecordVerdict(lease.id, is_good=True))
    assert core.ask(SubmitCompletion(lease.id, lease.provider_id, first)) == ()
    assert not core.state.providers[lease.provider_id].slashed


@pytest.mark.rule("RCV-002")
def test_after_the_time_of_the_tombstone_it_is_ignored_and_without_stake_only_recorded() -> None:
    core, job, lease = leased()
    core.submit(job)
    core.do(RecordVerdict(lease.id, is_good=True))
    core.now_ms += core.state.policy.ttl.tombstone_ms
    late = core.ask(second(core, job, lease))
    assert isinstance(late, Refused)
    assert late.name == "LeaseLost"
    core.now_ms -= 1
    core.state.providers[lease.provider_id].stake = 0
    (only,) = core.do(second(core, job, lease))
    assert isinstance(only, CompletionIgnored)
