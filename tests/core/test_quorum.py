"""A job for several providers (LEA-009): its replicas, their votes, its one proof, and the money of all of them."""

from __future__ import annotations

import msgspec
import pytest
from tests.core import naive
from tests.core.fleet import fleet, given_back, patient, sent, tried_again
from tests.core.quorums import asked, hand_in, payload, refused, replicas, vote
from tests.core.test_way_histories import indexes
from tests.core.ways import ALICE, Way

from holdfast.core import law
from holdfast.core.chain.acts import RollBack
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.event import Tip
from holdfast.core.job.quorum import replica_id, share_of
from holdfast.core.job.record import JobState
from holdfast.core.job.spec import Asked, read_payload
from holdfast.core.lease.acts import FailLease, JobAssigned, JobFailed, LeaseClosed, Reap
from holdfast.core.match.fit import why_not
from holdfast.core.policy import AdmissionPolicy, ProviderPolicy, RetryPolicy, TtlPolicy
from holdfast.core.proof.acts import Judge, ProofAccepted, ProofRefused, Submit, Trouble
from holdfast.core.proof.votes import VoteCast
from holdfast.core.provider.acts import HealthMoved, ProviderSlashed
from holdfast.core.queue.acts import Cancel, Enqueue, RaiseFee
from holdfast.core.queue.decide import prepare
from holdfast.core.queue.requeue import Requeue
from holdfast.core.refusal import Refused
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import Amount, Height, TaskId, Tier

pytestmark = pytest.mark.rule("LEA-009")


def balance(way: Way, owner: str) -> tuple[int, int, int]:
    account = way.state.ledger.accounts[owner]  # type: ignore[index]
    return account.available, account.held, account.pending


def is_whole(way: Way) -> bool:
    """The money of all is where the rules say, and a fold and a snapshot come to the same."""
    again = State(way.state.policy)
    for event in way.events:
        law.apply(again, event)
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    is_same = digest(again) == digest(copy) == digest(way.state) and copy.quorums == way.state.quorums
    is_same = is_same and indexes(copy, way.now_ms) == indexes(way.state, way.now_ms)
    return is_same and broken_money(way.state.ledger) == []


# ------------------------------------------------------------------------------------------------ asking for it


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (2, 3), (3, 4), (16, 16), (9, 16)])
def test_more_than_half_of_up_to_sixteen_may_be_asked_for(n: int, m: int) -> None:
    found = read_payload(payload(n, m))
    assert isinstance(found, Asked)
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
    assert refused(Way(), n, m).startswith(says)


@pytest.mark.rule("JOB-003", "PRF-002")
def test_proof_by_quorum_without_a_quorum_is_refused_and_each_replica_can_have_another_proof() -> None:
    alone = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "proof": "quorum"}
    no = read_payload(alone)
    assert isinstance(no, Refused)
    assert no.says.startswith("payload.quorum: missing")
    found = read_payload(payload(2, 3, proof="recompute"))
    assert isinstance(found, Asked)
    assert (found.proof, found.replica_proof) == ("quorum", "recompute")


def test_a_job_has_so_many_replicas_with_names_that_anybody_computes() -> None:
    way = fleet(3)
    job = asked(way)
    for index, replica in enumerate(replicas(way, job)):
        assert replica.id == naive.h("holdfast.replica.v1", job, index) == replica_id(job, index)
        assert (replica.parent, replica.state, replica.proof) == (job, JobState.QUEUED, "attested")
        assert replica.parent_event == way.state.queue.jobs[job].event


@pytest.mark.rule("JOB-005", "ESC-001")
def test_the_fee_is_reserved_once_and_the_requester_has_one_job_in_flight_that_takes_the_room_of_three() -> None:
    way = fleet(3)
    before, _, _ = balance(way, ALICE)
    asked(way, max_fee=70)
    assert balance(way, ALICE) == (before - 70, 70, 0)
    assert (way.state.queue.depth, way.state.queue.in_flight[ALICE]) == (3, 1)


@pytest.mark.rule("JOB-005")
@pytest.mark.parametrize(("room", "is_taken"), [(2, False), (3, True)])
def test_a_job_is_taken_in_where_there_is_room_for_all_its_replicas(room: int, is_taken: bool) -> None:
    way = fleet(1, policy=patient(admission=AdmissionPolicy(queue_depth_max=room, back_pressure_ppm=1_000_000)))
    command = prepare(way.state.policy, ALICE, Tier.FREE, payload(2, 3), 100, 1)
    assert isinstance(command, Enqueue)
    assert isinstance(way.ask(command), tuple) is is_taken
    assert len(way.state.queue.jobs) == (4 if is_taken else 0)


# ------------------------------------------------------------------------------------------------ who gets it


@pytest.mark.rule("MAT-002")
@pytest.mark.parametrize("order", ["shuffle", "spread", "scored"])
def test_replicas_go_to_different_providers_however_many_slots_one_has(order: str) -> None:
    policy = patient()
    policy = msgspec.structs.replace(policy, match=msgspec.structs.replace(policy.match, order=order))
    way = fleet(2, slots=8, policy=policy)
    job = asked(way, 2, 3)
    given = [event for event in way.match() if isinstance(event, JobAssigned)]
    assert len({event.provider_id for event in given}) == len(given) == 2
    assert way.match() == ()
    waiting = next(each for each in replicas(way, job) if each.state is JobState.QUEUED)
    for provider in way.state.providers.values():
        assert why_not(way.state, provider, waiting, way.now_ms) == "has another replica of this job"


@pytest.mark.rule("MAT-002")
def test_who_has_delivered_a_replica_gets_no_other_and_who_failed_may_try_again() -> None:
    way = fleet(2, slots=8)
    job = asked(way, 2, 2)
    way.match()
    one, other = replicas(way, job)
    delivered, failed = way.lease_of(one.id).provider_id, way.lease_of(other.id).provider_id
    vote(way, one.id)
    given_back(way, other.id)
    tried_again(way, other.id)
    assert way.lease_of(other.id).provider_id == failed != delivered


@pytest.mark.rule("MAT-002", "MAT-004")
def test_a_replica_waits_rather_than_go_to_who_has_delivered_another() -> None:
    way = fleet(1, slots=8)
    job = asked(way, 2, 2)
    (given,) = way.match()
    assert isinstance(given, JobAssigned)
    vote(way, given.job_id)
    assert way.match() == ()
    waiting = next(each for each in replicas(way, job) if each.state is JobState.QUEUED)
    (provider,) = way.state.providers.values()
    assert why_not(way.state, provider, waiting, way.now_ms) == "has another replica of this job"


@pytest.mark.rule("PRI-003")
def test_a_raised_fee_moves_all_replicas_forward() -> None:
    way = fleet(1, slots=1)
    way.enqueue(nonce=7, max_fee=100)
    job = asked(way, 1, 1, max_fee=50)
    way.do(RaiseFee(job, Amount(200)))
    (replica,) = replicas(way, job)
    assert replica.priority == way.state.queue.jobs[job].priority
    assert [event.job_id for event in way.match() if isinstance(event, JobAssigned)] == [replica.id]


# ------------------------------------------------------------------------------------------------ agreeing


@pytest.mark.rule("PRF-002", "PRF-003", "LEA-007")
def test_the_job_is_done_with_the_nth_equal_digest_and_the_rest_is_cancelled_without_blame() -> None:
    way = fleet(3)
    job = asked(way)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    assert [type(event) for event in vote(way, two)] == [VoteCast]
    assert way.state.queue.jobs[job].state is JobState.QUEUED
    last = way.lease_of(one)
    events = vote(way, three)
    closed = [event for event in events if isinstance(event, LeaseClosed)]
    assert [(each.id, each.reason, each.is_failure) for each in closed] == [(last.id, "QUORUM_REACHED", False)]
    assert way.state.queue.jobs[job].state is JobState.COMPLETED
    states = [(each.state, each.reason) for each in replicas(way, job)]
    done = (JobState.COMPLETED, "")
    assert states == [(JobState.CANCELLED, "QUORUM_REACHED"), done, done]
    assert way.state.results[job].method == "quorum"
    assert (way.state.queue.depth, way.state.queue.in_flight) == (0, {})
    assert is_whole(way)


@pytest.mark.rule("PRF-001", "RES-001")
def test_its_one_proof_names_the_agreeing_leases_by_index_and_anybody_computes_its_nullifier() -> None:
    way = fleet(3)
    job = asked(way)
    way.match()
    ids = [each.id for each in replicas(way, job)]
    leases = [way.lease_of(id_) for id_ in ids]
    vote(way, ids[2])
    accepted = next(event for event in vote(way, ids[0]) if isinstance(event, ProofAccepted))
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
    assert share_of(max_fee, n, units, price) == share
    assert n * share <= max_fee


@pytest.mark.rule("ESC-001", "ESC-002")
@pytest.mark.parametrize(("max_fee", "share"), [(100, 6), (11, 5), (1, 0)])
def test_each_that_agrees_is_paid_its_share_and_the_rest_goes_back(max_fee: int, share: int) -> None:
    way = fleet(3)
    before, _, _ = balance(way, ALICE)
    job = asked(way, max_fee=max_fee)
    way.match()
    one, two, _ = (each.id for each in replicas(way, job))
    payees = [way.state.providers[way.lease_of(id_).provider_id].account for id_ in (one, two)]
    earlier = [balance(way, payee) for payee in payees]
    vote(way, one)
    vote(way, two)
    assert balance(way, ALICE) == (before - max_fee, 0, max_fee - 2 * share)
    assert [balance(way, payee)[2] for payee in payees] == [share, share]
    assert [each.charged for each in replicas(way, job)] == [share, share, None]
    assert way.state.queue.jobs[job].charged == 2 * share
    way.seal(13)
    assert balance(way, ALICE) == (before - 2 * share, 0, 0)
    assert [balance(way, payee)[0] for payee in payees] == [was[0] + share for was in earlier]
    assert (way.state.queue.jobs, way.state.quorums) == ({}, {})
    assert is_whole(way)


@pytest.mark.rule("CHN-003", "CHN-004", "RES-006", "ESC-002")
def test_a_reorg_takes_back_what_all_were_paid_and_the_same_proof_pays_them_again() -> None:
    way = fleet(3)
    job = asked(way)
    way.seal()
    way.match()
    one, two, _ = (each.id for each in replicas(way, job))
    vote(way, one)
    vote(way, two)
    paid, first = {owner: balance(way, owner) for owner in way.state.ledger.accounts}, way.state.results[job]
    known, height = (first.proof_nullifier, first.result_digest), first.height_resolved
    way.seal(3)
    way.do(RollBack(Height(1)))
    assert {owner: balance(way, owner) for owner in way.state.ledger.accounts} == paid
    again = way.state.results[job]
    assert ((again.proof_nullifier, again.result_digest), again.height_resolved) == (known, height)
    way.do(RollBack(Height(0)))
    assert way.state.results[job].height_resolved == 1
    assert {each.settled_height for each in replicas(way, job)} == {1, None}
    assert is_whole(way)
    way.seal(13)
    assert is_whole(way)


@pytest.mark.rule("RCV-002")
def test_a_vote_handed_in_again_is_answered_as_the_first_and_another_is_in_conflict() -> None:
    way = fleet(3)
    job = asked(way)
    way.match()
    one = replicas(way, job)[0].id
    lease, same, other = way.lease_of(one), sent(way, one, b"right"), sent(way, one, b"wrong")
    vote(way, one)
    assert way.ask(Submit(lease.id, lease.provider_id, same)) == ()
    no = way.ask(Submit(lease.id, lease.provider_id, other))
    assert isinstance(no, Refused)
    assert no.name == "ProofConflict"


# ------------------------------------------------------------------------------------------------ disagreeing


@pytest.mark.rule("RTY-003", "PRF-002")
def test_who_is_outvoted_loses_health_and_no_stake_and_the_verdict_is_kept() -> None:
    way = fleet(3)
    job = asked(way)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    liar = way.lease_of(two).provider_id
    stake, vote_ = way.state.providers[liar].stake, vote(way, two, b"wrong")
    assert [type(event) for event in vote_] == [VoteCast]
    vote(way, one)
    events = vote(way, three)
    no = next(event for event in events if isinstance(event, ProofRefused))
    assert (no.task_id, no.provider_id, no.verdict) == (two, liar, "QUORUM_MINORITY")
    worse = [event for event in events if isinstance(event, HealthMoved) and event.id == liar]
    assert [each.by_ppm for each in worse] == [-way.state.policy.provider.quorum_minority_decay_ppm]
    assert (way.state.providers[liar].stake, way.state.providers[liar].completed) == (stake, 0)
    assert balance(way, way.state.providers[liar].account)[2] == 0


@pytest.mark.rule("PRV-004")
def test_where_policy_says_so_who_is_outvoted_is_slashed() -> None:
    way = fleet(3, policy=patient(provider=ProviderPolicy(quorum_minority_slashes=True)))
    job = asked(way)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    liar = way.lease_of(two).provider_id
    vote(way, two, b"wrong")
    vote(way, one)
    slashed = [event for event in vote(way, three) if isinstance(event, ProviderSlashed)]
    assert [(each.id, each.reason, each.severity) for each in slashed] == [(liar, "QUORUM_MINORITY", "minor")]
    assert is_whole(way)


@pytest.mark.rule("ESC-001")
def test_where_so_many_differ_that_none_can_win_the_job_has_failed_and_its_money_goes_back() -> None:
    way = fleet(3)
    before, _, _ = balance(way, ALICE)
    job = asked(way, 3, 3)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    assert [type(event) for event in vote(way, one, b"a")] == [VoteCast]
    lease = way.lease_of(three)
    events = vote(way, two, b"b")
    assert [type(event) for event in events] == [VoteCast, LeaseClosed, JobFailed]
    assert (events[1].id, events[1].reason, events[1].is_failure) == (lease.id, "QUORUM_LOST", False)  # type: ignore[attr-defined]
    found = way.state.queue.jobs[job]
    assert (found.state, found.reason) == (JobState.FAILED, "QUORUM_LOST")
    assert [each.state for each in replicas(way, job)] == [JobState.COMPLETED] * 2 + [JobState.CANCELLED]
    assert balance(way, ALICE) == (before - 100, 0, 100)
    assert (way.state.queue.depth, way.state.queue.in_flight) == (0, {})
    assert way.state.touched["failed_job"][found.event].reason == "QUORUM_LOST"  # type: ignore[union-attr]
    assert is_whole(way)


def test_two_of_three_may_still_agree_after_two_that_differ() -> None:
    way = fleet(3)
    job = asked(way, 2, 3)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    vote(way, one, b"a")
    vote(way, two, b"b")
    assert way.state.queue.jobs[job].state is JobState.QUEUED
    vote(way, three, b"b")
    assert way.state.queue.jobs[job].state is JobState.COMPLETED


# ------------------------------------------------------------------------------------------------ failing


@pytest.mark.rule("RTY-001")
def test_a_replica_that_fails_too_often_ends_alone_while_the_others_can_agree() -> None:
    way = fleet(3, policy=patient(retry=RetryPolicy(failures_max=1)))
    job = asked(way, 2, 3)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    given_back(way, one)
    states = [each.state for each in replicas(way, job)]
    assert states == [JobState.FAILED, JobState.ASSIGNED, JobState.ASSIGNED]
    assert not any(isinstance(event, JobFailed) for event in way.events)
    lease = way.lease_of(three)
    events = given_back(way, two)
    assert [type(event).__name__ for event in events[-2:]] == ["LeaseClosed", "JobFailed"]
    assert lease.reason == "QUORUM_LOST"
    assert way.state.queue.jobs[job].reason == "QUORUM_LOST"
    assert is_whole(way)


@pytest.mark.rule("PRF-002")
def test_a_proof_that_nobody_can_check_ends_its_replica_and_a_bad_one_counts_against_it() -> None:
    way = fleet(3)
    job = asked(way, 2, 3)
    way.match()
    one, two, _ = (each.id for each in replicas(way, job))
    hand_in(way, one)
    way.do(Judge(way.lease_of(one).id, False, "none", trouble=Trouble.NO_VERIFIER))
    assert way.state.queue.jobs[one].state is JobState.FAILED
    hand_in(way, two)
    way.do(Judge(way.lease_of(two).id, False, "forged"))
    assert (way.state.queue.jobs[two].state, way.state.queue.jobs[two].failures) == (JobState.QUEUED, 1)
    assert way.state.queue.jobs[job].state is JobState.QUEUED


@pytest.mark.rule("RTY-001")
def test_two_replicas_that_end_in_one_look_of_the_reaper_lose_the_quorum_together() -> None:
    way = fleet(3, policy=patient(retry=RetryPolicy(failures_max=1)))
    job = asked(way, 2, 3)
    way.match()
    way.now_ms += 5_000
    while way.do(Reap()):
        pass
    assert way.state.queue.jobs[job].state is JobState.FAILED
    assert way.state.leases.by_id == {}
    assert is_whole(way)


@pytest.mark.rule("RTY-001", "LEA-001")
def test_a_lost_job_is_put_back_with_all_its_replicas_whose_attempts_go_on_counting() -> None:
    way = fleet(3)
    job = asked(way, 3, 3)
    way.match()
    one, two, _ = (each.id for each in replicas(way, job))
    vote(way, one, b"a")
    vote(way, two, b"b")
    before = [(each.event, each.attempts) for each in replicas(way, job)]
    way.do(Requeue(job))
    assert [(each.event, each.attempts) for each in replicas(way, job)] == before
    assert {each.state for each in replicas(way, job)} == {JobState.QUEUED}
    assert way.state.quorums[job].votes == []
    given = [event for event in way.match() if isinstance(event, JobAssigned)]
    assert [event.attempt for event in given] == [1, 1, 1]
    for each in replicas(way, job):
        vote(way, each.id)
    assert way.state.queue.jobs[job].state is JobState.COMPLETED
    way.do(RollBack(Height(0)))
    assert is_whole(way)
    way.seal(13)
    assert way.state.ledger.holds.keys() & {job} == set()
    assert is_whole(way)


@pytest.mark.rule("RTY-001")
def test_a_lost_job_that_memory_has_let_go_is_put_back_with_the_rows_of_its_replicas() -> None:
    way = fleet(2)
    job = asked(way, 2, 2)
    way.match()
    one, two = (each.id for each in replicas(way, job))
    vote(way, one, b"a")
    vote(way, two, b"b")
    rows = [msgspec.structs.replace(each) for each in (way.state.queue.jobs[job], *replicas(way, job))]
    way.seal(13)
    assert way.state.queue.jobs == {}
    no = way.ask(Requeue(job, rows[0]))
    assert isinstance(no, Refused)
    assert no.name == "NotFound"
    way.do(Requeue(job, rows[0], tuple(rows[1:])))
    assert [each.attempts for each in replicas(way, job)] == [1, 1]
    assert is_whole(way)


# ------------------------------------------------------------------------------------------------ ending


@pytest.mark.rule("JOB-008")
def test_cancelling_the_job_cancels_its_replicas_and_their_leases() -> None:
    way = fleet(3)
    before, _, _ = balance(way, ALICE)
    job = asked(way)
    way.match()
    way.do(Cancel(job, ALICE))
    assert {each.state for each in replicas(way, job)} == {JobState.CANCELLED}
    assert way.state.leases.by_id == {}
    assert balance(way, ALICE) == (before - 100, 0, 100)
    assert is_whole(way)


@pytest.mark.rule("JOB-008")
def test_nobody_cancels_raises_or_puts_back_a_replica_alone() -> None:
    way = fleet(3)
    replica = replicas(way, asked(way))[0].id
    for command in (Cancel(replica), RaiseFee(replica, Amount(900)), Requeue(replica)):
        no = way.ask(command)
        assert isinstance(no, Refused)
        assert no.rule == "LEA-009"


@pytest.mark.rule("JOB-008", "RCV-001")
def test_a_job_is_not_cancelled_while_one_of_its_replicas_waits_for_the_verdict() -> None:
    way = fleet(3)
    job = asked(way)
    way.match()
    hand_in(way, replicas(way, job)[1].id)
    no = way.ask(Cancel(job))
    assert isinstance(no, Refused)
    assert no.rule == "RCV-001"


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("late_ms", "state"), [(-1, JobState.QUEUED), (0, JobState.EXPIRED)])
def test_the_job_expires_with_all_its_replicas_to_the_millisecond(late_ms: int, state: JobState) -> None:
    way = fleet(3)
    job = asked(way, ttl_ms=4_000)
    way.match()
    for each in replicas(way, job):
        way.ack(each.id)
    way.now_ms += 4_000 + late_ms
    way.do(Reap())
    assert way.state.queue.jobs[job].state is state
    is_over = state is JobState.EXPIRED
    assert {each.state for each in replicas(way, job)} == {JobState.CANCELLED if is_over else JobState.ASSIGNED}
    assert is_whole(way)


@pytest.mark.rule("TTL-001")
def test_the_first_lease_of_any_replica_begins_the_time_of_all() -> None:
    way = fleet(1, policy=patient(ttl=TtlPolicy(relative_ms=60_000)))
    job = asked(way, 2, 3)
    way.match()
    way.now_ms += 60_000
    way.do(Reap())
    assert (way.state.queue.jobs[job].state, way.state.queue.jobs[job].reason) == (JobState.EXPIRED, "RELATIVE_TTL")
    assert is_whole(way)


@pytest.mark.rule("TTL-001", "RCV-001")
def test_what_one_replica_handed_in_freezes_the_time_of_all_until_its_verdict() -> None:
    way = fleet(3)
    job = asked(way, ttl_ms=4_000)
    way.match()
    one = replicas(way, job)[0].id
    hand_in(way, one)
    way.now_ms += 4_000
    way.do(Reap())
    assert way.state.queue.jobs[job].state is JobState.QUEUED
    way.do(Judge(way.lease_of(one).id, is_good=True))
    way.do(Reap())
    assert way.state.queue.jobs[job].state is JobState.EXPIRED


@pytest.mark.rule("TTL-001", "RTY-002")
def test_a_replica_whose_retry_would_start_too_late_ends_and_the_others_go_on() -> None:
    way = fleet(3)
    job = asked(way, ttl_ms=3_000)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    given_back(way, one)
    assert way.state.queue.jobs[one].state is JobState.EXPIRED
    vote(way, two)
    vote(way, three)
    assert way.state.queue.jobs[job].state is JobState.COMPLETED


def test_a_quorum_of_one_is_a_job_like_any_other() -> None:
    way = fleet(1)
    job = asked(way, 1, 1)
    way.match()
    vote(way, replicas(way, job)[0].id)
    assert way.state.queue.jobs[job].state is JobState.COMPLETED
    assert is_whole(way)


def test_a_provider_says_no_more_of_a_replica_that_was_taken_from_it() -> None:
    way = fleet(3)
    job: TaskId = asked(way)
    way.match()
    one, two, three = (each.id for each in replicas(way, job))
    lease = way.lease_of(one)
    late = sent(way, one)
    vote(way, two)
    vote(way, three)
    for command in (FailLease(lease.id, lease.provider_id), Submit(lease.id, lease.provider_id, late)):
        no = way.ask(command)
        assert isinstance(no, Refused)
        assert no.name == "LeaseLost"
