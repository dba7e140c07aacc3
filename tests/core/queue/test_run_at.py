"""Jobs with a time of their own: admitted and paid for now, assigned at that time and not before (JOB-013)."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import ALICE, BEGIN_MS, CoreDriver
from tests.core.fleet import fail_lease, fleet

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.values import TaskId, Tier
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import Job, JobState
from holdfast.core.lease.messages import ExpireDue, JobAssigned
from holdfast.core.match.decide import may_have_work
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue, JobAdmitted
from holdfast.core.queue.priority import sort_priority

HOUR_MS = 3_600_000
AHEAD_MAX = DEVELOPMENT.admission.run_at_ahead_ms_max
LATER = BEGIN_MS + 2 * HOUR_MS


def request(not_before_ms: int, nonce: int = 1, idempotency: bytes = b"", **more: object) -> Enqueue:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2, **more}
    made = build_enqueue(
        DEVELOPMENT, ALICE, Tier.FREE, payload, 100, nonce, idempotency=idempotency, not_before_ms=not_before_ms
    )
    assert isinstance(made, Enqueue), made
    return made


def admitted(core: CoreDriver, command: Enqueue) -> Job:
    event = core.do(command)[0]
    assert isinstance(event, JobAdmitted)
    return core.state.queue.jobs[event.id]


def assigned(events: tuple[Event, ...]) -> set[TaskId]:
    return {event.job_id for event in events if isinstance(event, JobAssigned)}


@pytest.mark.rule("JOB-013")
@pytest.mark.parametrize(("early_ms", "is_given"), [(1, False), (0, True)])
def test_a_job_is_assigned_at_its_time_and_not_a_millisecond_before(early_ms: int, is_given: bool) -> None:
    core = fleet()
    job = admitted(core, request(LATER))
    assert not assigned(core.match())
    core.now_ms = LATER - early_ms
    assert assigned(core.match()) == ({job.id} if is_given else set())
    assert may_have_work(core.state, LATER) is not is_given
    assert broken_invariants(core.state) == []


@pytest.mark.rule("JOB-013")
def test_its_fee_is_reserved_at_once_and_a_cancelled_one_gets_it_back() -> None:
    core = fleet()
    before = core.state.ledger.accounts[ALICE].available
    job = admitted(core, request(LATER))
    assert core.state.ledger.accounts[ALICE].available == before - 100
    core.do(CancelJob(job.id, ALICE))
    assert core.state.queue.jobs[job.id].state is JobState.CANCELLED
    assert broken_invariants(core.state) == []
    core.now_ms = LATER
    assert not assigned(core.match())


@pytest.mark.rule("JOB-013", "TTL-001")
def test_its_time_to_live_counts_from_its_time() -> None:
    core, usual = fleet(0), DEVELOPMENT.result.result_ttl_blocks
    job = admitted(core, request(LATER, ttl_ms=HOUR_MS))
    assert job.expires_ms == LATER + HOUR_MS
    blocks = -(-2 * HOUR_MS // DEVELOPMENT.chain.block_ms)
    assert job.expires_height == core.state.open_height + usual + blocks
    core.now_ms = LATER + HOUR_MS - 1
    core.do(ExpireDue())
    assert core.state.queue.jobs[job.id].state is JobState.QUEUED
    core.now_ms += 1
    core.do(ExpireDue())
    assert core.state.queue.jobs[job.id].state is JobState.EXPIRED


@pytest.mark.rule("JOB-013", "PRI-002")
def test_its_age_counts_from_its_time_so_it_does_not_overtake_what_waited_longer() -> None:
    core = fleet(0)
    early = admitted(core, request(LATER))
    assert early.priority == sort_priority(100, early.size_bytes, Tier.FREE, LATER, DEVELOPMENT.priority)
    core.now_ms = LATER - 1
    waiting = admitted(core, request(0, nonce=2))
    core.now_ms = LATER
    core.match()
    order = list(core.state.queue.ready_queue.in_order())
    assert order == [waiting.id, early.id]
    (group,) = core.state.queue.ready_queue.groups.values()
    assert [key[-32:] for key in group.by_age] == order


@pytest.mark.rule("JOB-013")
@pytest.mark.parametrize("not_before_ms", [0, 1, BEGIN_MS - 1, BEGIN_MS])
def test_a_time_that_is_past_is_now(not_before_ms: int) -> None:
    core = fleet()
    job = admitted(core, request(not_before_ms))
    assert (job.not_before_ms, job.run_at_ms) == (0, 0)
    assert assigned(core.match()) == {job.id}


@pytest.mark.rule("JOB-013")
@pytest.mark.parametrize(
    ("ahead_ms", "is_admitted"), [(AHEAD_MAX - 1, True), (AHEAD_MAX, True), (AHEAD_MAX + 1, False)]
)
def test_how_far_ahead_a_time_may_be_is_policy(ahead_ms: int, is_admitted: bool) -> None:
    core = fleet()
    outcome = core.ask(request(BEGIN_MS + ahead_ms))
    assert isinstance(outcome, Refused) is not is_admitted
    if isinstance(outcome, Refused):
        assert (outcome.rule, outcome.name) == ("JOB-013", "InvalidParams")
        assert not core.state.queue.jobs


@pytest.mark.rule("JOB-013")
def test_a_time_that_no_row_can_hold_is_refused() -> None:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    for wrong in (-1, 2**63):
        made = build_enqueue(DEVELOPMENT, ALICE, Tier.FREE, payload, 100, 1, not_before_ms=wrong)
        assert isinstance(made, Refused)
        assert "not_before_ms" in made.message


@pytest.mark.rule("JOB-002", "JOB-013")
def test_another_time_is_another_job_and_another_request_under_an_idempotency_key() -> None:
    core = fleet()
    first = admitted(core, request(LATER, idempotency=b"key"))
    assert core.do(request(LATER, idempotency=b"key")) == ()
    other = core.ask(request(LATER + 1, nonce=2, idempotency=b"key"))
    assert isinstance(other, Refused)
    assert other.name == "IdReused"
    assert admitted(core, request(LATER + 1)).id != first.id


@pytest.mark.rule("JOB-013", "LEA-009")
def test_replicas_wait_with_their_job() -> None:
    core = fleet(3)
    job = admitted(core, request(LATER, quorum={"n": 2, "m": 3}))
    assert not assigned(core.match())
    core.now_ms = LATER
    assert len(assigned(core.match()) - {job.id}) == 3
    assert broken_invariants(core.state) == []


@pytest.mark.rule("JOB-013", "RTY-001")
def test_a_retry_after_its_time_waits_as_every_retry_does() -> None:
    core = fleet()
    job = admitted(core, request(LATER))
    core.now_ms = LATER
    core.match()
    fail_lease(core, job.id)
    again = core.state.queue.jobs[job.id]
    assert again.not_before_ms > LATER
    assert again.run_at_ms == LATER
    core.now_ms = again.not_before_ms
    assert assigned(core.match()) == {job.id}


@pytest.mark.rule("JOB-013", "CAN-005")
def test_an_event_of_a_job_without_a_time_has_the_bytes_it_always_had() -> None:
    """An older reader knows nothing of the field; a newer one reads the older event as ready at once."""
    core = fleet()
    event = core.do(request(0))[0]
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(event))
    assert raw[-1] == 0
    assert msgspec.convert(raw[:-1], JobAdmitted, builtin_types=(bytes,)) == event
