"""Random lives of jobs with and without replicas: the laws of queue, leases, money and quorums hold at every step."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from tests.core.core_driver import ALICE
from tests.core.fleet import completion_envelope, join_provider
from tests.core.histories.test_queue_machine import QueueMachine, picks
from tests.core.journaled_core import JournaledCore, violated_invariants
from tests.core.lease.quorums import enqueue_quorum_job
from tests.counts import counts

from holdfast.core.base.values import ReservationId, TaskId
from holdfast.core.job.model import LIVE_STATES, Job, JobState, reservation_id
from holdfast.core.job.quorum import replica_ids
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.queue.requeue import Requeue
from holdfast.core.state import State


def violated_quorum_invariants(state: State) -> list[str]:
    """LEA-009 over the whole state: empty when all is well."""
    jobs = state.queue.jobs
    whole = [job for job in jobs.values() if job.quorum_m]
    named = {id_ for job in whole for id_ in replica_ids(job.id, job.quorum_m)}
    checks = {
        "every job with replicas has all of them, and nobody else has any": named
        == {job.id for job in jobs.values() if job.parent},
        "every quorum is a job's": set(state.quorums) == {job.id for job in whole},
        "replicas live as long as their job, and no longer": all(_is_with(state, job) for job in whole),
        "nobody has two replicas of one job": all(_is_distinct(state, job) for job in whole),
        "what is done is what n agree on": all(_is_agreed(state, job) for job in whole),
        "what lives can still be agreed on": all(_is_open(state, job) for job in whole if job.state in LIVE_STATES),
        "nobody is paid above the fee": all(_is_paid(state, job) for job in whole),
        "a replica has no hold but a part of its job's": all(
            state.ledger.reservations[ReservationId(id_)].status
            == state.ledger.reservations[_reservation(state, id_)].status
            for id_ in named & state.ledger.reservations.keys()
            if _reservation(state, id_) in state.ledger.reservations
        ),
    }
    return [law for law, holds in checks.items() if not holds]


def _of(state: State, job: Job) -> list[Job]:
    return [state.queue.jobs[id_] for id_ in replica_ids(job.id, job.quorum_m)]


def _reservation(state: State, replica: bytes) -> ReservationId:
    return reservation_id(state.queue.jobs[state.queue.jobs[TaskId(replica)].parent])


def _is_with(state: State, job: Job) -> bool:
    is_live = [each.state in LIVE_STATES for each in _of(state, job)]
    return any(is_live) if job.state in LIVE_STATES else not any(is_live)


def _is_distinct(state: State, job: Job) -> bool:
    held = [state.leases.by_job[each.id].provider_id for each in _of(state, job) if each.id in state.leases.by_job]
    all_of_them = [*held, *(vote.provider_id for vote in state.quorums[job.id].votes)]
    return len(set(all_of_them)) == len(all_of_them)


def _most(state: State, job: Job) -> int:
    return max(Counter(vote.digest for vote in state.quorums[job.id].votes).values(), default=0)


def _is_agreed(state: State, job: Job) -> bool:
    return (_most(state, job) >= job.quorum_n) == (job.state is JobState.COMPLETED)


def _is_open(state: State, job: Job) -> bool:
    return _most(state, job) + sum(each.state in LIVE_STATES for each in _of(state, job)) >= job.quorum_n


def _is_paid(state: State, job: Job) -> bool:
    paid = [each.charged for each in _of(state, job) if each.charged is not None]
    if job.state is not JobState.COMPLETED:
        return paid == []
    return len(paid) == job.quorum_n and sum(paid) == (job.charged or 0) <= job.max_fee


class QuorumMachine(QueueMachine):
    """The same life, with jobs that several providers must agree on, of whom some lie."""

    def new_core(self) -> JournaledCore:
        life = JournaledCore()
        for number in (4, 5):
            join_provider(life, number, slots=5)
        return life

    @rule(asks=st.sampled_from([(1, 1), (2, 2), (2, 3), (2, 3), (3, 3), (3, 4)]), fee=st.integers(1, 60))
    def enqueue_quorum(self, asks: tuple[int, int], fee: int) -> None:
        if self.core.state.ledger.accounts[ALICE].available >= fee:
            self.nonce += 1
            enqueue_quorum_job(self.core, *asks, max_fee=fee, nonce=self.nonce)

    @rule(pick=picks, lies=st.lists(st.booleans(), min_size=4, max_size=4), upto=st.integers(1, 4))
    def let_them_vote(self, pick: int, lies: list[bool], upto: int) -> None:
        """Some replicas of one job are leased and answered, each by its own light."""
        whole = [job for job in self.core.state.queue.jobs.values() if job.quorum_m and job.state in LIVE_STATES]
        if not whole:
            return
        self.be_busy([], 1)
        job = whole[pick % len(whole)]
        for id_, lie in zip(replica_ids(job.id, job.quorum_m)[:upto], lies, strict=False):
            lease = self.core.state.leases.by_job.get(id_)
            if lease is not None and lease.submitted is None:
                output = bytes(lease.provider_id[:1]) if lie else b"right"
                self.core.ask(
                    SubmitCompletion(lease.id, lease.provider_id, completion_envelope(self.core, id_, output))
                )
                self.core.ask(RecordVerdict(lease.id, is_good=True))

    @rule(has_liar=st.booleans(), fee=st.integers(1, 60), blocks=st.integers(0, 2))
    def agree(self, has_liar: bool, fee: int, blocks: int) -> None:
        """A whole life at once, so that payments are in blocks when a reorg comes."""
        self.enqueue_quorum((2, 3), fee)
        whole = [job for job in self.core.state.queue.jobs.values() if job.quorum_m and job.state in LIVE_STATES]
        self.let_them_vote(len(whole) - 1, [has_liar, False, False, False], 4)
        self.core.seal(blocks)

    @rule(pick=picks)
    def requeue_quorum(self, pick: int) -> None:
        jobs = self.core.state.queue.jobs.values()
        lost = [job.id for job in jobs if job.quorum_m and job.state is JobState.FAILED]
        if lost:
            self.core.ask(Requeue(lost[pick % len(lost)]))

    @invariant()
    def invariants_hold(self) -> None:
        super().invariants_hold()
        if hasattr(self, "core"):
            assert violated_quorum_invariants(self.core.state) == []


QuorumMachine.TestCase.settings = settings(
    max_examples=counts(80, 1_000), stateful_step_count=counts(50, 100), deadline=None
)


@pytest.mark.rule("LEA-009", "LEA-002", "ESC-001", "RTY-001", "ENG-003", "MAT-006", "CHN-004")
class TestQuorums(QuorumMachine.TestCase):  # type: ignore[misc, valid-type]
    """The machine, as pytest finds it."""


def test_a_lie_about_a_quorum_is_seen() -> None:
    """The laws themselves are looked at once: with a vote taken away they do not hold."""
    life = JournaledCore()
    job = enqueue_quorum_job(life, 1, 1)
    life.match()
    (replica,) = replica_ids(job, 1)
    lease = life.lease_of(replica)
    life.do(SubmitCompletion(lease.id, lease.provider_id, completion_envelope(life, replica)))
    life.do(RecordVerdict(lease.id, is_good=True))
    assert (violated_invariants(life), violated_quorum_invariants(life.state)) == ([], [])
    life.state.quorums[job].votes.clear()
    assert violated_quorum_invariants(life.state) == ["what is done is what n agree on"]
