"""Schedules: what is created, when it fires, what a refusal does, and that nothing fires twice (JOB-014)."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.blocks import SEAL
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import ALICE, BEGIN_MS, CoreDriver
from tests.core.fleet import fleet, lenient_policy
from tests.core.journaled_core import JournaledCore

from holdfast.core.base.canonical import H, canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import AccountId, Digest, Height, KeyId, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.model import Account
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.ids import tx_hash
from holdfast.core.key.messages import CreateKey, RevokeKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.policy import AdmissionPolicy, Policy, SchedulePolicy
from holdfast.core.queue.messages import Enqueue, JobAdmitted
from holdfast.core.schedule import fire as firing
from holdfast.core.schedule.messages import (
    CreateSchedule,
    FireSchedule,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    ScheduleCreated,
    ScheduleEnded,
    ScheduleFired,
    SchedulePaused,
    ScheduleRefused,
)
from holdfast.core.schedule.model import FIRINGS_KEPT, MISSED_MAX, Schedule, ScheduleState
from holdfast.core.state_digest import digest
from holdfast.core.state_machine import decide

BOB = AccountId("bob")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
PAYLOAD = canonical({"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2})
LIMITS = DEVELOPMENT.schedule


def request(**terms: object) -> CreateSchedule:
    given: dict[str, object] = {"caller": ALICE, "name": "nightly", "tier": Tier.FREE, "payload": PAYLOAD}
    given |= {"max_fee": 100, "interval_ms": HOUR_MS} | terms
    return CreateSchedule(**given)  # type: ignore[arg-type]


def with_schedule(core: CoreDriver, **terms: object) -> Schedule:
    (created,) = core.do(request(**terms))
    assert isinstance(created, ScheduleCreated)
    return core.state.schedules.by_id[created.id]


def fire(core: CoreDriver, schedule: Schedule, late_ms: int = 0) -> tuple[Event, ...]:
    """At its time, or later."""
    core.now_ms = max(core.now_ms, schedule.next_ms + late_ms)
    return core.do(FireSchedule(schedule.id, schedule.next_ms))


def only(events: tuple[Event, ...], kind: type) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


# ------------------------------------------------------------------------------------------------ firing


@pytest.mark.rule("JOB-014")
def test_a_firing_admits_its_job_in_the_same_decision_with_its_fee_reserved() -> None:
    core = fleet()
    schedule = with_schedule(core)
    assert schedule.next_ms == BEGIN_MS + HOUR_MS
    fired, admitted = fire(core, schedule)
    assert isinstance(fired, ScheduleFired)
    assert isinstance(admitted, JobAdmitted)
    assert (fired.task_id, fired.due_ms, fired.next_ms) == (admitted.id, BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS)
    assert (admitted.caller, admitted.max_fee, admitted.not_before_ms) == (ALICE, 100, 0)
    call = {"max_fee": 100, "payload": {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}}
    whole = call | {"schedule": schedule.id}
    assert admitted.tx_hash == tx_hash(core.state.policy.chain_id, b"alice", BEGIN_MS + HOUR_MS, whole)  # type: ignore[arg-type]
    assert (schedule.fired, schedule.firings[-1].task_id) == (1, admitted.id)
    assert broken_invariants(core.state) == []


@pytest.mark.rule("JOB-014")
def test_the_same_firing_again_changes_nothing() -> None:
    core = fleet()
    schedule = with_schedule(core)
    due_ms = schedule.next_ms
    fire(core, schedule)
    before = digest(core.state)
    assert core.do(FireSchedule(schedule.id, due_ms)) == ()
    assert digest(core.state) == before
    assert len(core.state.queue.jobs) == 1


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(("early_ms", "is_fired"), [(1, False), (0, True)])
def test_a_schedule_fires_at_its_time_and_not_a_millisecond_before(early_ms: int, is_fired: bool) -> None:
    core = fleet()
    schedule = with_schedule(core)
    core.now_ms = schedule.next_ms - early_ms
    assert list(core.state.schedules.due_until(core.now_ms)) == ([schedule] if is_fired else [])
    assert isinstance(core.ask(FireSchedule(schedule.id, schedule.next_ms)), Refused) is not is_fired


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize("terms", [{"interval_ms": HOUR_MS}, {"cron": "0 * * * *", "interval_ms": 0}])
def test_what_was_missed_in_an_outage_fires_once_and_is_counted(terms: dict[str, object]) -> None:
    core = fleet()
    schedule = with_schedule(core, **terms)
    begun = schedule.next_ms
    events = fire(core, schedule, late_ms=5 * HOUR_MS + 1)
    assert len(only(events, JobAdmitted)) == 1
    assert schedule.firings[-1].missed == 5
    assert schedule.next_ms == begun + 6 * HOUR_MS
    assert not list(core.state.schedules.due_until(core.now_ms))


def test_missed_firings_are_counted_up_to_a_bound() -> None:
    core = fleet()
    schedule = with_schedule(core, cron="* * * * *", interval_ms=0)
    fire(core, schedule, late_ms=2 * MISSED_MAX * MINUTE_MS)
    assert schedule.firings[-1].missed == MISSED_MAX


@pytest.mark.rule("JOB-014")
def test_an_interval_keeps_its_phase_however_late_a_firing_is() -> None:
    core = fleet()
    schedule = with_schedule(core)
    fire(core, schedule, late_ms=HOUR_MS // 2)
    assert schedule.next_ms == BEGIN_MS + 2 * HOUR_MS


@pytest.mark.rule("JOB-014")
def test_a_cron_schedule_has_a_fixed_offset_from_utc() -> None:
    core = fleet()
    utc = with_schedule(core, name="utc", cron="0 9 * * *", interval_ms=0)
    east = with_schedule(core, name="east", cron="0 9 * * *", interval_ms=0, offset_min=120)
    assert (east.next_ms - utc.next_ms) % (24 * HOUR_MS) == 22 * HOUR_MS


# ------------------------------------------------------------------------------------------------ ends


@pytest.mark.rule("JOB-014")
def test_a_schedule_ends_after_its_last_run() -> None:
    core = fleet()
    schedule = with_schedule(core, runs=2)
    assert not only(fire(core, schedule), ScheduleEnded)
    (ended,) = only(fire(core, schedule), ScheduleEnded)
    assert isinstance(ended, ScheduleEnded)
    assert (ended.reason, schedule.state, schedule.runs_left) == (firing.RUNS_DONE, ScheduleState.ENDED, 0)
    core.now_ms += 10 * HOUR_MS
    assert not list(core.state.schedules.due_until(core.now_ms))
    assert broken_invariants(core.state) == []


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(("more_ms", "is_ended"), [(-1, True), (0, False), (1, False)])
def test_a_schedule_fires_at_its_end_and_not_after_it(more_ms: int, is_ended: bool) -> None:
    core = fleet()
    schedule = with_schedule(core, until_ms=BEGIN_MS + 2 * HOUR_MS + more_ms)
    ended = only(fire(core, schedule), ScheduleEnded)
    assert bool(ended) is is_ended
    assert (schedule.state is ScheduleState.ENDED) is is_ended


@pytest.mark.rule("JOB-014")
def test_a_refused_firing_uses_no_run_and_ends_with_the_schedules_time() -> None:
    core = fleet(money=50)
    schedule = with_schedule(core, runs=1, until_ms=BEGIN_MS + HOUR_MS)
    events = fire(core, schedule)
    assert [type(event) for event in events] == [ScheduleRefused, ScheduleEnded]
    assert (schedule.runs_left, schedule.reason) == (1, firing.UNTIL_PAST)


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.rule("JOB-014")
def test_a_refused_firing_is_recorded_with_its_reason_and_the_schedule_goes_on() -> None:
    core = fleet(money=150)
    schedule = with_schedule(core)
    fire(core, schedule)
    (refused,) = fire(core, schedule)
    assert isinstance(refused, ScheduleRefused)
    assert (refused.rule, refused.refusal) == ("ESC-001", "InsufficientFunds")
    assert (schedule.state, schedule.refused, schedule.refusals_in_row) == (ScheduleState.ACTIVE, 1, 1)
    core.funded()
    fire(core, schedule)
    assert (schedule.fired, schedule.refusals_in_row) == (2, 0)
    assert [bool(each.task_id) for each in schedule.firings] == [True, False, True]


@pytest.mark.rule("JOB-014")
def test_refusals_in_a_row_pause_the_schedule_with_an_event() -> None:
    core = fleet(money=50, policy=lenient_policy(schedule=SchedulePolicy(refusals_in_row_max=3)))
    schedule = with_schedule(core)
    assert [len(fire(core, schedule)) for _ in range(2)] == [1, 1]
    _, paused = fire(core, schedule)
    assert isinstance(paused, SchedulePaused)
    assert (paused.reason, schedule.state) == (firing.REFUSED_IN_A_ROW, ScheduleState.PAUSED)
    core.do(ResumeSchedule(schedule.id, ALICE))
    assert (schedule.refusals_in_row, schedule.reason) == (0, "")


@pytest.mark.rule("JOB-014", "JOB-005")
def test_a_full_queue_refuses_a_firing_and_leaves_nothing_behind() -> None:
    core = fleet(policy=lenient_policy(admission=AdmissionPolicy(queue_depth_max=1)))
    schedule = with_schedule(core)
    fire(core, schedule)
    account: Account = msgspec.structs.replace(core.state.ledger.accounts[ALICE])
    fire(core, schedule)
    assert schedule.firings[-1].refusal == "QueueFull"
    assert core.state.ledger.accounts[ALICE] == account
    assert len(core.state.queue.jobs) == 1


@pytest.mark.rule("JOB-014", "SEC-002")
def test_the_cap_of_its_key_counts_and_a_revoked_key_fires_nothing() -> None:
    core, key = fleet(), KeyId("ab" * 8)
    core.do(CreateKey(key, secret_hash(b"x"), Role.REQUESTER, ALICE, daily_cap=150))
    schedule = with_schedule(core, key=key, interval_ms=MINUTE_MS)
    fire(core, schedule)
    fire(core, schedule)
    assert schedule.firings[-1].refusal == "SpendCapReached"
    core.now_ms += 24 * HOUR_MS
    fire(core, schedule)
    assert schedule.fired == 2
    core.do(RevokeKey(key))
    fire(core, schedule)
    assert (schedule.firings[-1].refusal, schedule.fired) == ("KeyRevoked", 2)


def test_a_transaction_that_somebody_took_before_is_a_refusal_and_no_crash() -> None:
    """JOB-004 lets a key with a scope name any transaction, also the one of the next firing."""
    core = fleet()
    schedule = with_schedule(core)
    taken = firing.build_request(core.state, schedule)
    assert isinstance(taken, Enqueue)
    core.do(taken)
    fire(core, schedule)
    assert schedule.firings[-1].refusal == "IdReused"


# ------------------------------------------------------------------------------------------------ create


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(
    ("terms", "fault"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": " x"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"cron": "* * * * *"}, "one of them"),
        ({"interval_ms": 0}, "one of them"),
        ({"interval_ms": LIMITS.interval_ms_min - 1}, "interval_ms"),
        ({"interval_ms": LIMITS.interval_ms_max + 1}, "interval_ms"),
        ({"interval_ms": 0, "cron": "61 * * * *"}, "minute"),
        ({"interval_ms": 0, "cron": "0 0 30 2 *"}, "never"),
        ({"offset_min": 841}, "offset_min"),
        ({"offset_min": -841}, "offset_min"),
        ({"runs": 0}, "runs"),
        ({"until_ms": BEGIN_MS}, "until_ms"),
        ({"until_ms": BEGIN_MS + HOUR_MS - 1}, "until_ms"),
        ({"payload": b"x" * (LIMITS.payload_bytes_max + 1)}, "payload"),
    ],
)
def test_a_schedule_with_wrong_terms_is_refused_by_name_and_changes_nothing(
    terms: dict[str, object], fault: str
) -> None:
    core = fleet()
    refused = core.ask(request(**terms))
    assert isinstance(refused, Refused)
    assert (refused.rule, refused.name) == ("JOB-014", "InvalidParams")
    assert fault in refused.message
    assert not core.state.schedules.by_id


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(
    "terms",
    [
        {"name": "x" * 64},
        {"interval_ms": LIMITS.interval_ms_min},
        {"interval_ms": LIMITS.interval_ms_max},
        {"offset_min": 840},
        {"runs": 1},
        {"until_ms": BEGIN_MS + HOUR_MS},
    ],
)
def test_terms_at_their_limits_are_accepted(terms: dict[str, object]) -> None:
    assert with_schedule(fleet(), **terms)


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize(("cron", "is_too_often"), [("*/4 * * * *", True), ("*/5 * * * *", False), ("@daily", False)])
def test_how_often_an_expression_may_fire_is_policy(cron: str, is_too_often: bool) -> None:
    core = fleet(policy=lenient_policy(schedule=SchedulePolicy(interval_ms_min=5 * MINUTE_MS)))
    assert isinstance(core.ask(request(cron=cron, interval_ms=0)), Refused) is is_too_often


@pytest.mark.rule("JOB-014")
def test_how_many_schedules_a_caller_has_and_how_many_there_are_is_policy() -> None:
    core = fleet(policy=lenient_policy(schedule=SchedulePolicy(per_caller_max=2, total_max=3)))
    with_schedule(core, name="a")
    second = with_schedule(core, name="b")
    over = core.ask(request(name="c"))
    assert isinstance(over, Refused)
    assert over.name == "QueueFull"
    with_schedule(core, caller=BOB)
    assert isinstance(core.ask(request(caller=BOB, name="more")), Refused)
    core.do(RemoveSchedule(second.id, ALICE))
    with_schedule(core, name="c")


@pytest.mark.rule("JOB-014")
def test_the_same_name_with_the_same_terms_is_a_repeat_and_with_others_it_is_taken() -> None:
    core = fleet()
    schedule = with_schedule(core)
    repeat = decide(core.state, request(), core.now_ms)
    assert isinstance(repeat, Decided)
    assert (repeat.events, repeat.repeat_of) == ((), schedule.event)
    other = core.ask(request(max_fee=101))
    assert isinstance(other, Refused)
    assert other.name == "IdReused"
    assert with_schedule(core, caller=BOB).id != schedule.id


def test_a_name_that_is_free_again_makes_another_schedule() -> None:
    core = fleet()
    first = with_schedule(core)
    core.do(RemoveSchedule(first.id, ALICE))
    assert with_schedule(core).id != first.id


# ------------------------------------------------------------------------------------------------ pause, resume, remove


@pytest.mark.rule("JOB-014")
def test_a_paused_schedule_does_not_fire_and_resumes_from_the_next_time_on() -> None:
    core = fleet()
    schedule = with_schedule(core)
    due_ms = schedule.next_ms
    core.do(PauseSchedule(schedule.id, ALICE, "on holiday"))
    assert core.do(PauseSchedule(schedule.id, ALICE)) == ()
    assert (schedule.state, schedule.reason) == (ScheduleState.PAUSED, "on holiday")
    core.now_ms = due_ms + 3 * HOUR_MS
    assert core.do(FireSchedule(schedule.id, due_ms)) == ()
    core.do(ResumeSchedule(schedule.id, ALICE))
    assert core.do(ResumeSchedule(schedule.id, ALICE)) == ()
    assert (schedule.state, schedule.next_ms) == (ScheduleState.ACTIVE, due_ms + 4 * HOUR_MS)
    assert not core.state.queue.jobs
    assert broken_invariants(core.state) == []


def test_a_schedule_that_is_resumed_before_its_time_keeps_it() -> None:
    core = fleet()
    schedule = with_schedule(core)
    due_ms = schedule.next_ms
    core.do(PauseSchedule(schedule.id, ALICE))
    core.do(ResumeSchedule(schedule.id, ALICE))
    assert schedule.next_ms == due_ms


@pytest.mark.rule("JOB-014")
def test_a_schedule_whose_end_is_past_is_not_resumed_and_an_ended_one_is_neither_paused_nor_resumed() -> None:
    core = fleet()
    schedule = with_schedule(core, until_ms=BEGIN_MS + HOUR_MS)
    core.do(PauseSchedule(schedule.id, ALICE))
    core.now_ms += 2 * HOUR_MS
    assert isinstance(core.ask(ResumeSchedule(schedule.id, ALICE)), Refused)
    once = with_schedule(core, name="once", runs=1)
    fire(core, once)
    assert isinstance(core.ask(PauseSchedule(once.id, ALICE)), Refused)
    assert isinstance(core.ask(ResumeSchedule(once.id, ALICE)), Refused)


@pytest.mark.rule("JOB-014")
def test_a_removed_schedule_is_gone_and_its_job_goes_on() -> None:
    core = fleet()
    schedule = with_schedule(core, input_digest=Digest(b"d" * 32))
    assert core.state.schedules.input_uses == {b"d" * 32: 1}
    fire(core, schedule)
    core.do(RemoveSchedule(schedule.id, ALICE))
    assert not core.state.schedules.by_id
    assert not core.state.schedules.input_uses
    assert len(core.state.queue.jobs) == 1
    assert broken_invariants(core.state) == []


@pytest.mark.rule("JOB-014", "JOB-010")
@pytest.mark.parametrize("command", [PauseSchedule, ResumeSchedule, RemoveSchedule])
def test_to_another_account_a_schedule_does_not_exist(
    command: type[PauseSchedule | ResumeSchedule | RemoveSchedule],
) -> None:
    core = fleet()
    schedule = with_schedule(core)
    theirs, nobodys = core.ask(command(schedule.id, BOB)), core.ask(command(H("x", b"")[:16], BOB))  # type: ignore[arg-type]
    assert isinstance(theirs, Refused)
    assert isinstance(nobodys, Refused)
    assert (theirs.name, theirs.rule) == (nobodys.name, nobodys.rule) == ("NotFound", "JOB-014")
    assert core.ask(command(schedule.id, None)) is not None


def test_a_schedule_keeps_its_last_firings_alone() -> None:
    core = fleet()
    schedule = with_schedule(core)
    for _ in range(FIRINGS_KEPT + 3):
        fire(core, schedule)
    assert len(schedule.firings) == FIRINGS_KEPT
    assert schedule.firings[-1].due_ms == BEGIN_MS + (FIRINGS_KEPT + 3) * HOUR_MS


# ------------------------------------------------------------------------------------------------ folding


@pytest.mark.rule("JOB-014", "ENG-003")
@pytest.mark.parametrize("from_snapshot", [False, True])
def test_a_new_owner_has_the_same_schedules_and_fires_what_was_missed_once(from_snapshot: bool) -> None:
    core = JournaledCore(lenient_policy())
    schedule = with_schedule(core, input_digest=Digest(b"d" * 32))
    with_schedule(core, name="paused", cron="@daily", interval_ms=0)
    core.do(PauseSchedule(core.state.schedules.by_name[ALICE]["paused"], ALICE))
    fire(core, schedule)
    core.store()
    core.crash(10 * HOUR_MS, from_snapshot=from_snapshot)
    assert broken_invariants(core.state) == []
    (due,) = core.state.schedules.due_until(core.now_ms)
    fire(core, due)
    assert not list(core.state.schedules.due_until(core.now_ms))
    assert due.fired == 2
    assert due.firings[-1].missed == 9
    core.close()


@pytest.mark.rule("JOB-014", "CHN-003")
def test_a_rollback_touches_no_schedule() -> None:
    """Its events are no transactions; the admission of its job is moved as every admission is."""
    core = fleet(policy=lenient_policy())
    schedule = with_schedule(core)
    core.seal()
    fire(core, schedule)
    core.do(SEAL)
    before = msgspec.msgpack.encode(schedule)
    core.do(RollBackBlocks(Height(1)))
    assert msgspec.msgpack.encode(core.state.schedules.by_id[schedule.id]) == before
    assert broken_invariants(core.state) == []
    assert core.do(FireSchedule(schedule.id, BEGIN_MS + HOUR_MS)) == ()


def test_a_policy_of_before_schedules_is_read_with_their_defaults() -> None:
    raw = msgspec.to_builtins(DEVELOPMENT)
    del raw["schedule"], raw["admission"]["run_at_ahead_ms_max"]
    assert msgspec.convert(raw, Policy) == DEVELOPMENT
