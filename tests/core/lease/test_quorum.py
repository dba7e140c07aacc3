"""A job for several providers (LEA-009): its replicas, their votes, its one proof, and the money of all of them."""

from __future__ import annotations

import msgspec
import pytest
from tests.core import naive
from tests.core.core_driver import ALICE, CoreDriver
from tests.core.fleet import completion_envelope, fail_lease, fleet, lenient_policy, retry_job
from tests.core.histories.test_core_histories import indexes
from tests.core.lease.quorums import enqueue_quorum_job, payload, quorum_refusal, replicas, submit, vote

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Amount, Height, TaskId, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.invariants import broken_invariants as broken_money
from holdfast.core.job.model import JobState, pay_of
from holdfast.core.job.quorum import replica_id
from holdfast.core.job.spec import ParsedPayload, read_payload
from holdfast.core.lease.messages import ExpireDue, FailLease, JobAssigned, LeaseClosed
from holdfast.core.match.eligibility import why_not_eligible
from holdfast.core.policy import AdmissionPolicy, ProviderPolicy, RetryPolicy, TtlPolicy
from holdfast.core.proof.messages import (
    CompletionIgnored,
    ProofAccepted,
    ProofRefused,
    RecordVerdict,
    SubmitCompletion,
    VerifierFault,
    VoteCast,
)
from holdfast.core.provider.messages import HealthChanged, ProviderSlashed
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue, JobFailed, RaiseFee
from holdfast.core.queue.requeue import Requeue
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

pytestmark = pytest.mark.rule("LEA-009")


def balance(core: CoreDriver, owner: str) -> tuple[int, int, int]:
    account = core.state.ledger.accounts[owner]  # type: ignore[index]
    return account.available, account.held, account.pending


def is_consistent(core: CoreDriver) -> bool:
    """The money of all is where the rules say, and a fold and a snapshot come to the same."""
    again = State(core.state.policy)
    for event in core.events:
        state_machine.apply(again, event)
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    is_same = digest(again) == digest(copy) == digest(core.state) and copy.quorums == core.state.quorums
    is_same = is_same and indexes(copy, core.now_ms) == indexes(core.state, core.now_ms)
    return is_same and broken_money(core.state.ledger) == []


# ------------------------------------------------------------------------------------------------ asking for it


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (2, 3), (3, 4), (16, 16), (9, 16)])
def test_more_than_half_of_up_to_sixteen_may_be_asked_for(n: int, m: int) -> None:
    found = read_payload(payload(n, m))
    assert isinstance(found, ParsedPayload)
    assert (found.quorum_n, found.quorum_m, found.proof, found.replica_proof) == (n, m, "quorum", "attested")


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize(
    ("n", "m", "says"),
    [
        (0, 1, "payload.quorum.n: "),
        (1, 0, "payload.quorum.m: "),
        (17, 17, "payload.quorum.n: "),
        (9, 17, "payload.quorum.m: "),
        (3, 2, "payload.quorum.n: 3 of 2 can never agree"),
        (1, 2, "payload.quorum.n: 1 of 2 is not more than half"),
        (8, 16, "payload.quorum.n: 8 of 16 is not more than half"),
        ("2", 3, "payload.quorum.n: "),
    ],
)
def test_what_is_not_more_than_half_of_at_most_sixteen_is_refused_with_its_path(
    n: object, m: object, says: str
) -> None:
    assert quorum_refusal(CoreDriver(), n, m).startswith(says)


@pytest.mark.rule("JOB-003", "PRF-002")
def test_proof_by_quorum_without_a_quorum_is_refused_and_each_replica_can_have_another_proof() -> None:
    alone = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "proof": "quorum"}
    no = read_payload(alone)
    assert isinstance(no, Refused)
    assert no.message.startswith("payload.quorum: missing")
    found = read_payload(payload(2, 3, proof="recompute"))
    assert isinstance(found, ParsedPayload)
    assert (found.proof, found.replica_proof) == ("quorum", "recompute")


def test_a_job_has_so_many_replicas_with_names_that_anybody_computes() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    for index, replica in enumerate(replicas(core, job)):
        assert replica.id == naive.h("holdfast.replica.v1", job, index) == replica_id(job, index)
        assert (replica.parent, replica.state, replica.proof) == (job, JobState.QUEUED, "attested")
        assert replica.parent_event == core.state.queue.jobs[job].event


@pytest.mark.rule("JOB-005", "ESC-001")
def test_the_fee_is_reserved_once_and_the_requester_has_one_job_in_flight_that_takes_the_room_of_three() -> None:
    core = fleet(3)
    before, _, _ = balance(core, ALICE)
    enqueue_quorum_job(core, max_fee=70)
    assert balance(core, ALICE) == (before - 70, 70, 0)
    assert (core.state.queue.depth, core.state.queue.in_flight[ALICE]) == (3, 1)


@pytest.mark.rule("JOB-005")
@pytest.mark.parametrize(("room", "is_taken"), [(2, False), (3, True)])
def test_a_job_is_admitted_where_there_is_room_for_all_its_replicas(room: int, is_taken: bool) -> None:
    core = fleet(1, policy=lenient_policy(admission=AdmissionPolicy(queue_depth_max=room, back_pressure_ppm=1_000_000)))
    command = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload(2, 3), 100, 1)
    assert isinstance(command, Enqueue)
    assert isinstance(core.ask(command), tuple) is is_taken
    assert len(core.state.queue.jobs) == (4 if is_taken else 0)


# ------------------------------------------------------------------------------------------------ who gets it


@pytest.mark.rule("MAT-002")
@pytest.mark.parametrize("order", ["shuffle", "spread", "scored"])
def test_replicas_go_to_different_providers_however_many_slots_one_has(order: str) -> None:
    policy = lenient_policy()
    policy = msgspec.structs.replace(policy, match=msgspec.structs.replace(policy.match, order=order))
    core = fleet(2, slots=8, policy=policy)
    job = enqueue_quorum_job(core, 2, 3)
    given = [event for event in core.match() if isinstance(event, JobAssigned)]
    assert len({event.provider_id for event in given}) == len(given) == 2
    assert core.match() == ()
    waiting = next(each for each in replicas(core, job) if each.state is JobState.QUEUED)
    for provider in core.state.providers.values():
        assert why_not_eligible(core.state, provider, waiting, core.now_ms) == "has another replica of this job"


@pytest.mark.rule("MAT-002")
def test_who_has_delivered_a_replica_gets_no_other_and_who_failed_may_try_again() -> None:
    core = fleet(2, slots=8)
    job = enqueue_quorum_job(core, 2, 2)
    core.match()
    one, other = replicas(core, job)
    delivered, failed = core.lease_of(one.id).provider_id, core.lease_of(other.id).provider_id
    vote(core, one.id)
    fail_lease(core, other.id)
    retry_job(core, other.id)
    assert core.lease_of(other.id).provider_id == failed != delivered


@pytest.mark.rule("MAT-002", "MAT-004")
def test_a_replica_waits_rather_than_go_to_who_has_delivered_another() -> None:
    core = fleet(1, slots=8)
    job = enqueue_quorum_job(core, 2, 2)
    (given,) = core.match()
    assert isinstance(given, JobAssigned)
    vote(core, given.job_id)
    assert core.match() == ()
    waiting = next(each for each in replicas(core, job) if each.state is JobState.QUEUED)
    (provider,) = core.state.providers.values()
    assert why_not_eligible(core.state, provider, waiting, core.now_ms) == "has another replica of this job"


@pytest.mark.rule("PRI-003")
def test_a_raised_fee_moves_all_replicas_forward() -> None:
    core = fleet(1, slots=1)
    core.enqueue(nonce=7, max_fee=100)
    job = enqueue_quorum_job(core, 1, 1, max_fee=50)
    core.do(RaiseFee(job, Amount(200)))
    (replica,) = replicas(core, job)
    assert replica.priority == core.state.queue.jobs[job].priority
    assert [event.job_id for event in core.match() if isinstance(event, JobAssigned)] == [replica.id]


# ------------------------------------------------------------------------------------------------ agreeing


@pytest.mark.rule("PRF-002", "PRF-003", "LEA-007")
def test_the_job_is_done_with_the_nth_equal_digest_and_the_rest_is_cancelled_without_blame() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    assert [type(event) for event in vote(core, two)] == [VoteCast]
    assert core.state.queue.jobs[job].state is JobState.QUEUED
    last = core.lease_of(one)
    events = vote(core, three)
    closed = [event for event in events if isinstance(event, LeaseClosed)]
    assert [(each.id, each.reason, each.is_failure) for each in closed] == [(last.id, "QUORUM_REACHED", False)]
    assert core.state.queue.jobs[job].state is JobState.COMPLETED
    states = [(each.state, each.reason) for each in replicas(core, job)]
    done = (JobState.COMPLETED, "")
    assert states == [(JobState.CANCELLED, "QUORUM_REACHED"), done, done]
    assert core.state.results[job].method == "quorum"
    assert (core.state.queue.depth, core.state.queue.in_flight) == (0, {})
    assert is_consistent(core)


@pytest.mark.rule("PRF-001", "RES-001")
def test_its_one_proof_names_the_agreeing_leases_by_index_and_anybody_computes_its_nullifier() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    ids = [each.id for each in replicas(core, job)]
    leases = [core.lease_of(id_) for id_ in ids]
    vote(core, ids[2])
    accepted = next(event for event in vote(core, ids[0]) if isinstance(event, ProofAccepted))
    votes = [[index, leases[index].id, leases[index].provider_id] for index in (0, 2)]
    told = {"task_id": job, "n": 2, "m": 3, "output_digest": accepted.digest, "output_size": 5, "votes": votes}
    assert accepted.nullifier == naive.h("animica.proof.nullifier.v1", 1, 0, naive.cbor(told))


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize(
    ("max_fee", "n", "units", "price", "share"),
    [(100, 2, 2, 3, 6), (12, 2, 2, 3, 6), (11, 2, 2, 3, 5), (13, 2, 2, 3, 6), (1, 2, 2, 3, 0), (5, 3, 1, 0, 0)],
)
def test_a_share_is_what_the_work_costs_and_no_more_than_its_part_of_the_fee(
    max_fee: int, n: int, units: int, price: int, share: int
) -> None:
    core = fleet(1)
    job = core.state.queue.jobs[enqueue_quorum_job(core, n, 2 * n - 1, max_fee)]
    assert pay_of(msgspec.structs.replace(job, units=units), price) == share
    assert n * share <= max_fee


@pytest.mark.rule("ESC-001", "ESC-002")
@pytest.mark.parametrize(("max_fee", "share"), [(100, 6), (13, 6), (12, 6)])
def test_each_that_agrees_is_paid_its_share_and_the_rest_goes_back(max_fee: int, share: int) -> None:
    core = fleet(3)
    before, _, _ = balance(core, ALICE)
    job = enqueue_quorum_job(core, max_fee=max_fee)
    core.match()
    one, two, _ = (each.id for each in replicas(core, job))
    payees = [core.state.providers[core.lease_of(id_).provider_id].account for id_ in (one, two)]
    earlier = [balance(core, payee) for payee in payees]
    vote(core, one)
    vote(core, two)
    assert balance(core, ALICE) == (before - max_fee, 0, max_fee - 2 * share)
    assert [balance(core, payee)[2] for payee in payees] == [share, share]
    assert [each.charged for each in replicas(core, job)] == [share, share, None]
    assert core.state.queue.jobs[job].charged == 2 * share
    core.seal(13)
    assert balance(core, ALICE) == (before - 2 * share, 0, 0)
    assert [balance(core, payee)[0] for payee in payees] == [was[0] + share for was in earlier]
    assert (len(core.state.queue.jobs), core.state.quorums) == (0, {})
    assert is_consistent(core)


@pytest.mark.rule("CHN-003", "CHN-004", "RES-006", "ESC-002")
def test_a_reorg_rolls_back_what_all_were_paid_and_the_same_proof_pays_them_again() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.seal()
    core.match()
    one, two, _ = (each.id for each in replicas(core, job))
    vote(core, one)
    vote(core, two)
    paid, first = {owner: balance(core, owner) for owner in core.state.ledger.accounts}, core.state.results[job]
    known, height = (first.proof_nullifier, first.result_digest), first.height_resolved
    core.seal(3)
    core.do(RollBackBlocks(Height(1)))
    assert {owner: balance(core, owner) for owner in core.state.ledger.accounts} == paid
    again = core.state.results[job]
    assert ((again.proof_nullifier, again.result_digest), again.height_resolved) == (known, height)
    core.do(RollBackBlocks(Height(0)))
    assert core.state.results[job].height_resolved == 1
    assert {each.settled_height for each in replicas(core, job)} == {1, None}
    assert is_consistent(core)
    core.seal(13)
    assert is_consistent(core)


@pytest.mark.rule("RCV-002")
def test_a_vote_submitted_again_is_answered_as_the_first_and_another_is_equivocation() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    one = replicas(core, job)[0].id
    lease, same, other = (
        core.lease_of(one),
        completion_envelope(core, one, b"right"),
        completion_envelope(core, one, b"wrong"),
    )
    vote(core, one)
    assert core.ask(SubmitCompletion(lease.id, lease.provider_id, same)) == ()
    assert isinstance(core.do(SubmitCompletion(lease.id, lease.provider_id, other))[0], CompletionIgnored)


# ------------------------------------------------------------------------------------------------ disagreeing


@pytest.mark.rule("RTY-003", "PRF-002")
def test_who_is_outvoted_loses_health_and_no_stake_and_the_verdict_is_kept() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    liar = core.lease_of(two).provider_id
    stake, vote_ = core.state.providers[liar].stake, vote(core, two, b"wrong")
    assert [type(event) for event in vote_] == [VoteCast]
    vote(core, one)
    events = vote(core, three)
    no = next(event for event in events if isinstance(event, ProofRefused))
    assert (no.task_id, no.provider_id, no.verdict) == (two, liar, "QUORUM_MINORITY")
    worse = [event for event in events if isinstance(event, HealthChanged) and event.id == liar]
    assert [each.by_ppm for each in worse] == [-core.state.policy.provider.quorum_minority_decay_ppm]
    assert (core.state.providers[liar].stake, core.state.providers[liar].completed) == (stake, 0)
    assert balance(core, core.state.providers[liar].account)[2] == 0


@pytest.mark.rule("PRV-004")
def test_where_policy_says_so_who_is_outvoted_is_slashed() -> None:
    core = fleet(3, policy=lenient_policy(provider=ProviderPolicy(quorum_minority_slashes=True)))
    job = enqueue_quorum_job(core)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    liar = core.lease_of(two).provider_id
    vote(core, two, b"wrong")
    vote(core, one)
    slashed = [event for event in vote(core, three) if isinstance(event, ProviderSlashed)]
    assert [(each.id, each.reason, each.severity) for each in slashed] == [(liar, "QUORUM_MINORITY", "minor")]
    assert is_consistent(core)


@pytest.mark.rule("ESC-001")
def test_where_so_many_differ_that_none_can_win_the_job_has_failed_and_its_money_goes_back() -> None:
    core = fleet(3)
    before, _, _ = balance(core, ALICE)
    job = enqueue_quorum_job(core, 3, 3)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    assert [type(event) for event in vote(core, one, b"a")] == [VoteCast]
    lease = core.lease_of(three)
    events = vote(core, two, b"b")
    assert [type(event) for event in events] == [VoteCast, LeaseClosed, JobFailed]
    assert (events[1].id, events[1].reason, events[1].is_failure) == (lease.id, "QUORUM_LOST", False)  # type: ignore[attr-defined]
    found = core.state.queue.jobs[job]
    assert (found.state, found.reason) == (JobState.FAILED, "QUORUM_LOST")
    assert [each.state for each in replicas(core, job)] == [JobState.COMPLETED] * 2 + [JobState.CANCELLED]
    assert balance(core, ALICE) == (before - 100, 0, 100)
    assert (core.state.queue.depth, core.state.queue.in_flight) == (0, {})
    assert core.state.touched["failed_job"][found.event].reason == "QUORUM_LOST"  # type: ignore[union-attr]
    assert is_consistent(core)


def test_two_of_three_may_still_agree_after_two_that_differ() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core, 2, 3)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    vote(core, one, b"a")
    vote(core, two, b"b")
    assert core.state.queue.jobs[job].state is JobState.QUEUED
    vote(core, three, b"b")
    assert core.state.queue.jobs[job].state is JobState.COMPLETED


# ------------------------------------------------------------------------------------------------ failing


@pytest.mark.rule("RTY-001")
def test_a_replica_that_fails_too_often_ends_alone_while_the_others_can_agree() -> None:
    core = fleet(3, policy=lenient_policy(retry=RetryPolicy(failures_max=1)))
    job = enqueue_quorum_job(core, 2, 3)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    fail_lease(core, one)
    states = [each.state for each in replicas(core, job)]
    assert states == [JobState.FAILED, JobState.ASSIGNED, JobState.ASSIGNED]
    assert not any(isinstance(event, JobFailed) for event in core.events)
    lease = core.lease_of(three)
    events = fail_lease(core, two)
    assert [type(event).__name__ for event in events[-2:]] == ["LeaseClosed", "JobFailed"]
    assert lease.reason == "QUORUM_LOST"
    assert core.state.queue.jobs[job].reason == "QUORUM_LOST"
    assert is_consistent(core)


@pytest.mark.rule("PRF-002")
def test_a_proof_that_nobody_can_check_ends_its_replica_and_a_bad_one_counts_against_it() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core, 2, 3)
    core.match()
    one, two, _ = (each.id for each in replicas(core, job))
    submit(core, one)
    core.do(RecordVerdict(core.lease_of(one).id, False, "none", fault=VerifierFault.NO_VERIFIER))
    assert core.state.queue.jobs[one].state is JobState.FAILED
    submit(core, two)
    core.do(RecordVerdict(core.lease_of(two).id, False, "forged"))
    assert (core.state.queue.jobs[two].state, core.state.queue.jobs[two].failures) == (JobState.QUEUED, 1)
    assert core.state.queue.jobs[job].state is JobState.QUEUED


@pytest.mark.rule("RTY-001")
def test_two_replicas_that_end_in_one_run_of_the_reaper_fail_the_quorum_together() -> None:
    core = fleet(3, policy=lenient_policy(retry=RetryPolicy(failures_max=1)))
    job = enqueue_quorum_job(core, 2, 3)
    core.match()
    core.now_ms += 5_000
    while core.do(ExpireDue()):
        pass
    assert core.state.queue.jobs[job].state is JobState.FAILED
    assert core.state.leases.by_id == {}
    assert is_consistent(core)


@pytest.mark.rule("RTY-001", "LEA-001")
def test_a_failed_job_is_requeued_with_all_its_replicas_whose_attempts_go_on_counting() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core, 3, 3)
    core.match()
    one, two, _ = (each.id for each in replicas(core, job))
    vote(core, one, b"a")
    vote(core, two, b"b")
    before = [(each.event, each.attempts) for each in replicas(core, job)]
    core.do(Requeue(job))
    assert [(each.event, each.attempts) for each in replicas(core, job)] == before
    assert {each.state for each in replicas(core, job)} == {JobState.QUEUED}
    assert core.state.quorums[job].votes == []
    given = [event for event in core.match() if isinstance(event, JobAssigned)]
    assert [event.attempt for event in given] == [1, 1, 1]
    for each in replicas(core, job):
        vote(core, each.id)
    assert core.state.queue.jobs[job].state is JobState.COMPLETED
    core.do(RollBackBlocks(Height(0)))
    assert is_consistent(core)
    core.seal(13)
    assert core.state.ledger.reservations.keys() & {job} == set()
    assert is_consistent(core)


@pytest.mark.rule("RTY-001")
def test_a_failed_job_evicted_from_memory_is_requeued_with_the_rows_of_its_replicas() -> None:
    core = fleet(2)
    job = enqueue_quorum_job(core, 2, 2)
    core.match()
    one, two = (each.id for each in replicas(core, job))
    vote(core, one, b"a")
    vote(core, two, b"b")
    rows = [msgspec.structs.replace(each) for each in (core.state.queue.jobs[job], *replicas(core, job))]
    core.seal(13)
    assert core.state.queue.jobs == {}
    no = core.ask(Requeue(job, rows[0]))
    assert isinstance(no, Refused)
    assert no.name == "NotFound"
    core.do(Requeue(job, rows[0], tuple(rows[1:])))
    assert [each.attempts for each in replicas(core, job)] == [1, 1]
    assert is_consistent(core)


# ------------------------------------------------------------------------------------------------ ending


@pytest.mark.rule("JOB-008")
def test_cancelling_the_job_cancels_its_replicas_and_their_leases() -> None:
    core = fleet(3)
    before, _, _ = balance(core, ALICE)
    job = enqueue_quorum_job(core)
    core.match()
    core.do(CancelJob(job, ALICE))
    assert {each.state for each in replicas(core, job)} == {JobState.CANCELLED}
    assert core.state.leases.by_id == {}
    assert balance(core, ALICE) == (before - 100, 0, 100)
    assert is_consistent(core)


@pytest.mark.rule("JOB-008")
def test_nobody_cancels_raises_or_requeues_a_replica_alone() -> None:
    core = fleet(3)
    replica = replicas(core, enqueue_quorum_job(core))[0].id
    for command in (CancelJob(replica), RaiseFee(replica, Amount(900)), Requeue(replica)):
        no = core.ask(command)
        assert isinstance(no, Refused)
        assert no.rule == "LEA-009"


@pytest.mark.rule("JOB-008", "RCV-001")
def test_a_job_is_not_cancelled_while_one_of_its_replicas_waits_for_the_verdict() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    submit(core, replicas(core, job)[1].id)
    no = core.ask(CancelJob(job))
    assert isinstance(no, Refused)
    assert no.rule == "RCV-001"


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("late_ms", "state"), [(-1, JobState.QUEUED), (0, JobState.EXPIRED)])
def test_the_job_expires_with_all_its_replicas_to_the_millisecond(late_ms: int, state: JobState) -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core, ttl_ms=4_000)
    core.match()
    for each in replicas(core, job):
        core.ack(each.id)
    core.now_ms += 4_000 + late_ms
    core.do(ExpireDue())
    assert core.state.queue.jobs[job].state is state
    is_over = state is JobState.EXPIRED
    assert {each.state for each in replicas(core, job)} == {JobState.CANCELLED if is_over else JobState.ASSIGNED}
    assert is_consistent(core)


@pytest.mark.rule("TTL-001")
def test_the_first_lease_of_any_replica_begins_the_time_of_all() -> None:
    core = fleet(1, policy=lenient_policy(ttl=TtlPolicy(relative_ms=60_000)))
    job = enqueue_quorum_job(core, 2, 3)
    core.match()
    core.now_ms += 60_000
    core.do(ExpireDue())
    assert (core.state.queue.jobs[job].state, core.state.queue.jobs[job].reason) == (JobState.EXPIRED, "RELATIVE_TTL")
    assert is_consistent(core)


@pytest.mark.rule("TTL-001", "RCV-001")
def test_what_one_replica_submitted_freezes_the_time_of_all_until_its_verdict() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core, ttl_ms=4_000)
    core.match()
    one = replicas(core, job)[0].id
    submit(core, one)
    core.now_ms += 4_000
    core.do(ExpireDue())
    assert core.state.queue.jobs[job].state is JobState.QUEUED
    core.do(RecordVerdict(core.lease_of(one).id, is_good=True))
    core.do(ExpireDue())
    assert core.state.queue.jobs[job].state is JobState.EXPIRED


@pytest.mark.rule("TTL-001", "RTY-002")
def test_a_replica_whose_retry_would_start_too_late_ends_and_the_others_go_on() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core, ttl_ms=3_000)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    fail_lease(core, one)
    assert core.state.queue.jobs[one].state is JobState.EXPIRED
    vote(core, two)
    vote(core, three)
    assert core.state.queue.jobs[job].state is JobState.COMPLETED


def test_a_quorum_of_one_is_a_job_like_any_other() -> None:
    core = fleet(1)
    job = enqueue_quorum_job(core, 1, 1)
    core.match()
    vote(core, replicas(core, job)[0].id)
    assert core.state.queue.jobs[job].state is JobState.COMPLETED
    assert is_consistent(core)


def test_a_provider_says_no_more_of_a_replica_that_was_taken_from_it() -> None:
    core = fleet(3)
    job: TaskId = enqueue_quorum_job(core)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    lease = core.lease_of(one)
    late = completion_envelope(core, one)
    vote(core, two)
    vote(core, three)
    for command in (FailLease(lease.id, lease.provider_id), SubmitCompletion(lease.id, lease.provider_id, late)):
        no = core.ask(command)
        assert isinstance(no, Refused)
        assert no.name == "LeaseLost"
