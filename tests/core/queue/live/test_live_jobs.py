"""A packed job is the same job: whatever is done with a mapping that packs, one that never packs has the same."""

from __future__ import annotations

import random
from typing import Final
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.core_driver import CoreDriver
from tests.core.histories.test_core_histories import STEPS, Step, new_core
from tests.core.queue.test_ready_queue import random_job
from tests.counts import counts

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Amount, ReservationId, TaskId
from holdfast.core.escrow.model import NO_ROW, Reservation, Reservations, ReservationStatus
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import Job, JobState
from holdfast.core.policy import MatchPolicy, PriorityPolicy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.queue.live.live_jobs import LiveJobs
from holdfast.core.queue.live.packed_jobs import JobTerms, PackedJob
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.core.workflows import seal

UNPACKED: Final = 2**62


def plain_job(chance: random.Random) -> Job:
    job = random_job(chance)
    job.not_before_ms, job.expires_height = 0, chance.choice((0, 7, 2**40))  # type: ignore[assignment]
    job.is_public = chance.choice((0, 1))
    return job


def jobs_with_reservations(recent_max: int) -> LiveJobs:
    jobs = LiveJobs(recent_max)
    jobs.share(Reservations())
    return jobs


def admit(jobs: LiveJobs, job: Job) -> None:
    jobs.reservations[ReservationId(job.id)] = Reservation(
        NO_ROW, ReservationId(job.id), job.caller, Amount(job.max_fee)
    )
    jobs[job.id] = job


def copies(jobs: LiveJobs) -> dict[TaskId, Job]:
    return {id_: msgspec.structs.replace(job) for id_, job in jobs.items()}


def test_a_plain_job_is_packed_without_loss() -> None:
    chance = random.Random(1)
    for _ in range(200):
        jobs, job = jobs_with_reservations(0), plain_job(chance)
        wanted = msgspec.structs.replace(job)
        admit(jobs, job)
        assert list(jobs.packed.raw) == [job.id]
        assert jobs.peek(job.id) == jobs[job.id] == wanted
        assert not jobs.packed.raw


def test_every_field_of_a_job_is_packed_or_its_default_says_all() -> None:
    """A field that is added to `Job` must be packed, or keep a job from being packed where it is not the default."""
    packed = {"id", *PackedJob._fields, *JobTerms._fields}
    left = {field.name: field.default for field in msgspec.structs.fields(Job) if field.name not in packed}
    assert set(left) == {
        "state", "attempts", "failures", "not_before_ms", "relative_expires_ms", "charged", "payee", "settled_height",
        "reason", "ended_ms", "requeues", "requeued_ms", "parent", "parent_event", "quorum_n", "quorum_m",
        "input_digest", "run_ms_max", "run_at_ms",
    }  # fmt: skip
    job = plain_job(random.Random(2))
    assert {name: getattr(job, name) for name in left} == left


@pytest.mark.parametrize(
    "change",
    [
        {"state": JobState.ASSIGNED},
        {"attempts": 1},
        {"requeues": 1},
        {"quorum_m": 3},
        {"parent": TaskId(bytes(32))},
        {"not_before_ms": 5},
        {"run_at_ms": 5},
    ],
)
def test_a_job_that_is_not_as_it_was_admitted_is_not_packed(change: dict[str, object]) -> None:
    jobs = jobs_with_reservations(0)
    admit(jobs, msgspec.structs.replace(plain_job(random.Random(3)), **change))
    assert (len(jobs.records), len(jobs.packed.raw)) == (1, 0)


@pytest.mark.parametrize("change", [{"amount": 10**9}, {"owner": "eve"}, {"status": ReservationStatus.REFUNDED}])
def test_a_job_whose_reservation_says_something_else_is_not_packed(change: dict[str, object]) -> None:
    jobs, job = jobs_with_reservations(0), plain_job(random.Random(4))
    usual = Reservation(NO_ROW, ReservationId(job.id), job.caller, Amount(job.max_fee))
    jobs.reservations[ReservationId(job.id)] = msgspec.structs.replace(usual, **change)
    jobs[job.id] = job
    assert (len(jobs.records), len(jobs.packed.raw)) == (1, 0)


def test_only_what_waits_behind_enough_others_is_packed() -> None:
    chance, jobs = random.Random(5), jobs_with_reservations(3)
    admitted = [plain_job(chance) for _ in range(5)]
    for job in admitted:
        admit(jobs, job)
    assert (list(jobs.packed.raw), list(jobs.records)) == (
        [job.id for job in admitted[:2]],
        [job.id for job in admitted[2:]],
    )


def test_looking_unpacks_nothing_and_reading_for_a_change_unpacks_one() -> None:
    chance, jobs = random.Random(6), jobs_with_reservations(0)
    for _ in range(20):
        admit(jobs, plain_job(chance))
    held, some_id = jobs.reservations, next(iter(jobs))
    assert [jobs.peek(id_) for id_ in jobs] == list(jobs.values()) == [job for _, job in jobs.items()]
    assert [held.peek(id_) for id_ in held] == list(held.values()) == [each for _, each in held.items()]
    assert (len(jobs), len(held), some_id in jobs, ReservationId(some_id) in held) == (20, 20, True, True)
    assert (len(jobs.packed.raw), len(held.records)) == (20, 0)
    held[ReservationId(some_id)].amount += 1  # type: ignore[assignment]
    jobs[some_id].max_fee += 1
    assert (len(jobs.packed.raw), list(held.records), list(jobs.records)) == (19, [ReservationId(some_id)], [some_id])
    assert (jobs[some_id].max_fee, held[ReservationId(some_id)].amount) == (jobs.records[some_id].max_fee,) * 2


def test_an_unknown_id_is_a_key_error_in_both_mappings() -> None:
    jobs = jobs_with_reservations(0)
    job, reservation = TaskId(bytes(32)), ReservationId(bytes(32))
    assert (jobs.get(job), jobs.peek(job), job in jobs) == (None, None, False)
    assert (jobs.reservations.get(reservation), jobs.reservations.peek(reservation)) == (None, None)
    for read in (lambda: jobs[job], lambda: jobs.reservations[reservation]):
        with pytest.raises(KeyError):
            read()


@pytest.mark.rule("ENG-004")
def test_a_job_that_has_left_memory_leaves_nothing_behind() -> None:
    jobs, chance = jobs_with_reservations(1_000), random.Random(3)
    for _ in range(500):
        job = plain_job(chance)
        admit(jobs, job)
        del jobs[job.id], jobs.reservations[ReservationId(job.id)]
    assert len(jobs._recent) == 1


@settings(max_examples=counts(60, 3_000), deadline=None)
@given(st.integers(0, 3), st.randoms(use_true_random=False), st.integers(0, 60))
def test_a_mapping_that_packs_holds_what_a_dictionary_holds(recent_max: int, chance: random.Random, many: int) -> None:
    jobs, plain, seen = jobs_with_reservations(recent_max), dict[TaskId, Job](), list[TaskId]()
    for _ in range(many):
        id_ = chance.choice(seen) if seen else None
        match chance.randrange(6):
            case 0 | 1 | 2:
                job = plain_job(chance)
                admit(jobs, msgspec.structs.replace(job))
                plain[job.id] = job
                seen.append(job.id)
            case 3 if id_ in plain:
                for each in (jobs, plain):
                    each[id_].attempts += 1
            case 4 if id_ in plain:
                del jobs[id_], plain[id_]
                del jobs.reservations[ReservationId(id_)]
            case 5 if id_ in plain:
                changed = jobs.peek(id_)
                assert changed is not None
                changed.priority += 1
                jobs.rewrite(changed)
                plain[id_].priority += 1
        assert copies(jobs) == plain
        assert len(jobs) == len(plain) == len(jobs.reservations)
    assert {id_: jobs.get(id_) for id_ in seen} == {id_: plain.get(id_) for id_ in seen}
    assert (jobs.packed.raw, jobs.packed.terms) == ({}, {}), "terms that no job has are forgotten"


# ------------------------------------------------------------------------------------------------ whole lives


class TwinCore(CoreDriver):
    """Two states that are asked the same: one never packs, the other packs every job at once."""

    def __init__(self) -> None:
        super().__init__()
        self.state.queue.jobs.recent_max = UNPACKED
        self.twin = State(self.state.policy)
        self.twin.queue.jobs.recent_max = 0
        self._followed = 0

    def ask(self, command: Command) -> tuple[Event, ...] | Refused:
        self.follow()
        decided = state_machine.decide(self.twin, command, self.now_ms)
        outcome = super().ask(command)
        assert outcome == (decided if isinstance(decided, Refused) else decided.events)
        self.follow()
        return outcome

    def follow(self) -> None:
        for event in self.events[self._followed :]:
            state_machine.apply(self.twin, event)
        self._followed = len(self.events)


def _adopt_priorities(core: CoreDriver, pick: int) -> None:
    core.ask(AdoptPolicy(msgspec.structs.replace(core.state.policy, priority=PriorityPolicy(fee_ref=10 + pick))))


def _adopt_window(core: CoreDriver, pick: int) -> None:
    window = MatchPolicy(requester_window_ms=pick % 2 * 1_000, requester_window_jobs_max=2)
    core.ask(AdoptPolicy(msgspec.structs.replace(core.state.policy, match=window)))


@pytest.mark.rule("PRI-003")
def test_new_priorities_reach_packed_jobs_and_leave_them_packed() -> None:
    core = TwinCore()
    core.funded()
    for nonce in range(5):
        core.enqueue(nonce, max_fee=10 * (1 + nonce))
    before = {id_: job.priority for id_, job in core.twin.queue.jobs.items()}
    _adopt_priorities(core, 1)
    assert digest(core.twin) == digest(core.state)
    after = {id_: job.priority for id_, job in core.twin.queue.jobs.items()}
    assert (len(core.twin.queue.jobs.packed.raw), before != after) == (5, True)
    assert broken_invariants(core.twin) == []


LIVES: Final[list[Step]] = [*STEPS, _adopt_priorities, _adopt_window]
lives = st.lists(st.tuples(st.integers(0, len(LIVES) - 1), st.integers(0, 11)), max_size=70)


@pytest.mark.rule("ENG-003")
@settings(max_examples=counts(40, 3_000), deadline=None)
@given(lives)
def test_random_lives_are_decided_the_same_whether_jobs_are_packed_or_not(life: list[tuple[int, int]]) -> None:
    with (
        patch.object(seal, "AT_ONCE_MAX", 1),
        patch("tests.core.histories.test_core_histories.CoreDriver", TwinCore),
    ):
        core = new_core()
        assert isinstance(core, TwinCore)
        for step, pick in life:
            LIVES[step](core, pick)
            core.follow()
            assert not core.state.queue.jobs.packed.raw
            assert digest(core.twin) == digest(core.state)
            assert broken_invariants(core.twin) == []
            assert {**core.twin.queue.jobs} == core.state.queue.jobs.records
