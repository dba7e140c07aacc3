"""Handing in and being judged: one result per task, by its holder alone, in time; and evidence that only grows."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.ways import Way, public

from holdfast.core.evidence.marks import TakeEvidence, acked
from holdfast.core.lease.acts import CompletionSubmitted, LeaseClosed, Reap
from holdfast.core.proof.acts import CompletionIgnored, Judge, ProofAccepted, ProofRefused, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import ProviderSlashed
from holdfast.core.provider.record import provider_id
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.values import LeaseId, ProviderId, TaskId


def leased() -> tuple[Way, TaskId]:
    way = Way()
    way.funded()
    way.provider()
    job = way.enqueue()
    way.match()
    return way, job


def submission(way: Way, job: TaskId, output: bytes = b"out") -> Submit:
    lease = way.lease_of(job)
    return Submit(lease.id, lease.provider_id, way.envelope(job, output))


@pytest.mark.rule("RCV-001")
def test_a_submission_freezes_the_lease_and_counts_as_its_ack() -> None:
    way, job = leased()
    lease = way.lease_of(job)
    (event,) = way.do(submission(way, job))
    assert isinstance(event, CompletionSubmitted)
    assert lease.acked_ms == way.now_ms
    way.now_ms = lease.t_deadline_ms + 1
    assert way.do(Reap()) == ()
    assert isinstance(way.judge(job)[0], ProofAccepted)


@pytest.mark.rule("RCV-001")
@pytest.mark.parametrize(("early_ms", "is_taken"), [(1, True), (0, False), (-1, False)])
def test_a_submission_counts_before_the_deadline(early_ms: int, is_taken: bool) -> None:
    way, job = leased()
    way.ack(job)
    asked = submission(way, job)
    way.now_ms = way.lease_of(job).t_deadline_ms - early_ms
    outcome = way.ask(asked)
    assert isinstance(outcome, Refused) is not is_taken
    if isinstance(outcome, Refused):
        assert (outcome.rule, outcome.name) == ("RCV-002", "LeaseLost")


@pytest.mark.rule("RCV-001", "PRV-003")
def test_a_submission_is_its_holders_alone() -> None:
    way, job = leased()
    stranger = ProviderId(provider_id(public(9)))
    lease, asked = way.lease_of(job), submission(way, job)
    body = body_of(job, lease.id, stranger, result_digest(b"out"), 3, {})
    for wrong in (
        msgspec.structs.replace(asked, provider_id=stranger),
        msgspec.structs.replace(asked, lease_id=LeaseId(bytes(32))),
        Submit(lease.id, stranger, Envelope(1, "attested", body, b"")),
        Submit(lease.id, lease.provider_id, Envelope(1, "attested", b"\xff", b"")),
    ):
        assert isinstance(way.ask(wrong), Refused)
    assert lease.submitted is None


@pytest.mark.rule("PRF-002")
def test_a_proof_by_another_method_than_the_job_asks_for_is_refused() -> None:
    way, job = leased()
    lease, envelope = way.lease_of(job), way.envelope(job, b"out")
    for change in ({"method": "guessed"}, {"type": 2}):
        outcome = way.ask(Submit(lease.id, lease.provider_id, msgspec.structs.replace(envelope, **change)))
        assert isinstance(outcome, Refused)
        assert outcome.rule == "PRF-002"


@pytest.mark.rule("RCV-002")
def test_the_same_again_is_the_first_and_another_digest_is_noted_as_equivocation() -> None:
    way, job = leased()
    way.do(submission(way, job))
    assert way.ask(submission(way, job)) == ()
    noted, slashed, *_ = way.do(submission(way, job, b"something else"))
    assert isinstance(noted, CompletionIgnored)
    assert noted.reason == "EQUIVOCATION"
    assert isinstance(slashed, ProviderSlashed)
    assert slashed.reason == "EQUIVOCATION"
    assert way.ask(submission(way, job, b"something else")) == ()  # said again, it does not cost again
    assert way.ask(submission(way, job, b"a third thing")) == ()
    assert way.lease_of(job).submitted == result_digest(b"out")


@pytest.mark.rule("PRF-003", "RES-001")
def test_an_accepted_proof_completes_the_job_once() -> None:
    way, job = leased()
    way.submit(job)
    lease = way.lease_of(job)
    way.judge(job)
    assert way.ask(Judge(lease.id, True)) == ()
    assert way.ask(Judge(lease.id, False)) == ()
    assert way.state.queue.jobs[job].state == "COMPLETED"
    late = way.ask(Submit(lease.id, lease.provider_id, Envelope(1, "attested", b"\xa0", b"")))
    assert isinstance(late, Refused)


@pytest.mark.rule("PRF-003", "RTY-001")
def test_a_refused_proof_counts_as_a_failure() -> None:
    way, job = leased()
    way.submit(job)
    closed, refused, *_ = way.judge(job, is_good=False)
    assert isinstance(refused, ProofRefused)
    assert (refused.verdict, refused.reasons) == ("PROOF_INVALID", "as the test says")
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.is_failure) == ("PROOF_INVALID", True)


# ------------------------------------------------------------------------------------------------ evidence


@pytest.mark.rule("EVD-002")
def test_evidence_moves_its_mark_without_gaps_and_never_back() -> None:
    way, _ = leased()
    id_ = next(iter(way.state.providers))
    channel = id_.hex()

    def take(first: int, last: int) -> object:
        return way.ask(TakeEvidence(id_, channel, "s1", first, last, b"lines"))

    assert isinstance(take(2, 3), Refused)
    assert take(1, 3) != ()
    assert take(1, 3) == ()  # known
    assert take(2, 2) == ()
    overlap = take(3, 5)
    assert isinstance(overlap, Refused)
    assert overlap.name == "EvidenceGap"
    assert acked(way.state, channel, "s1") == 3
    assert take(4, 4) != ()
    assert (acked(way.state, channel, "s1"), acked(way.state, channel, "s2")) == (4, 0)


@pytest.mark.rule("EVD-001")
@pytest.mark.parametrize(
    "change",
    [{"channel": "ff" * 32}, {"provider_id": ProviderId(bytes(32))}, {"session": ""}, {"first": 0}, {"lines": b""}],
)
def test_evidence_of_another_channel_or_out_of_bounds_is_refused(change: dict[str, object]) -> None:
    way, _ = leased()
    id_ = next(iter(way.state.providers))
    good = TakeEvidence(id_, id_.hex(), "s1", 1, 1, b"line")
    assert isinstance(way.ask(msgspec.structs.replace(good, **change)), Refused)
    assert not way.state.marks
