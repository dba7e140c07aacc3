"""Handing in and being judged: one result per task, by its holder alone, in time; and evidence that only grows."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import CoreDriver, public

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import LeaseId, ProviderId, TaskId
from holdfast.core.evidence.messages import StoreEvidence
from holdfast.core.evidence.model import acked_sequence
from holdfast.core.lease.messages import CompletionSubmitted, ExpireDue, LeaseClosed
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import CompletionIgnored, ProofAccepted, ProofRefused, RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import ProviderSlashed
from holdfast.core.provider.model import provider_id
from holdfast.core.result import result_digest


def leased() -> tuple[CoreDriver, TaskId]:
    core = CoreDriver()
    core.funded()
    core.provider()
    job = core.enqueue()
    core.match()
    return core, job


def submission(core: CoreDriver, job: TaskId, output: bytes = b"out") -> SubmitCompletion:
    lease = core.lease_of(job)
    return SubmitCompletion(lease.id, lease.provider_id, core.envelope(job, output))


@pytest.mark.rule("RCV-001")
def test_a_submission_freezes_the_lease_and_counts_as_its_ack() -> None:
    core, job = leased()
    lease = core.lease_of(job)
    (event,) = core.do(submission(core, job))
    assert isinstance(event, CompletionSubmitted)
    assert lease.acked_ms == core.now_ms
    core.now_ms = lease.t_deadline_ms + 1
    assert core.do(ExpireDue()) == ()
    assert isinstance(core.record_verdict(job)[0], ProofAccepted)


@pytest.mark.rule("RCV-001")
@pytest.mark.parametrize(("early_ms", "is_taken"), [(1, True), (0, False), (-1, False)])
def test_a_submission_counts_before_the_deadline(early_ms: int, is_taken: bool) -> None:
    core, job = leased()
    core.ack(job)
    asked = submission(core, job)
    core.now_ms = core.lease_of(job).t_deadline_ms - early_ms
    outcome = core.ask(asked)
    assert isinstance(outcome, Refused) is not is_taken
    if isinstance(outcome, Refused):
        assert (outcome.rule, outcome.name) == ("RCV-002", "LeaseLost")


@pytest.mark.rule("RCV-001")
def test_a_live_lease_accepts_no_completion_whose_output_was_not_stored() -> None:
    core, job = leased()
    without_output = msgspec.structs.replace(submission(core, job), is_output_held=False)
    outcome = core.ask(without_output)
    assert isinstance(outcome, Refused)
    assert outcome.rule == "RCV-001"
    assert core.lease_of(job).submitted is None
    (first,) = core.do(submission(core, job))
    assert isinstance(first, CompletionSubmitted)
    assert core.ask(without_output) == ()  # a repeat


@pytest.mark.rule("RCV-001", "PRV-003")
def test_a_submission_is_its_holders_alone() -> None:
    core, job = leased()
    stranger = ProviderId(provider_id(public(9)))
    lease, asked = core.lease_of(job), submission(core, job)
    body = body_of(job, lease.id, stranger, result_digest(b"out"), 3, {})
    for wrong in (
        msgspec.structs.replace(asked, provider_id=stranger),
        msgspec.structs.replace(asked, lease_id=LeaseId(bytes(32))),
        SubmitCompletion(lease.id, stranger, Envelope(1, "attested", body, b"")),
        SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", b"\xff", b"")),
    ):
        assert isinstance(core.ask(wrong), Refused)
    assert lease.submitted is None


@pytest.mark.rule("PRF-002")
def test_a_proof_by_another_method_than_the_job_asks_for_is_refused() -> None:
    core, job = leased()
    lease, envelope = core.lease_of(job), core.envelope(job, b"out")
    for change in ({"method": "guessed"}, {"type": 2}):
        outcome = core.ask(SubmitCompletion(lease.id, lease.provider_id, msgspec.structs.replace(envelope, **change)))
        assert isinstance(outcome, Refused)
        assert outcome.rule == "PRF-002"


@pytest.mark.rule("RCV-002")
def test_the_same_again_is_the_first_and_another_digest_is_noted_as_equivocation() -> None:
    core, job = leased()
    core.do(submission(core, job))
    assert core.ask(submission(core, job)) == ()
    noted, slashed, *_ = core.do(submission(core, job, b"something else"))
    assert isinstance(noted, CompletionIgnored)
    assert noted.reason == "EQUIVOCATION"
    assert isinstance(slashed, ProviderSlashed)
    assert slashed.reason == "EQUIVOCATION"
    assert core.ask(submission(core, job, b"something else")) == ()  # said again, it does not cost again
    assert core.ask(submission(core, job, b"a third thing")) == ()
    assert core.lease_of(job).submitted == result_digest(b"out")


@pytest.mark.rule("PRF-003", "RES-001")
def test_an_accepted_proof_completes_the_job_once() -> None:
    core, job = leased()
    core.submit(job)
    lease = core.lease_of(job)
    core.record_verdict(job)
    assert core.ask(RecordVerdict(lease.id, True)) == ()
    assert core.ask(RecordVerdict(lease.id, False)) == ()
    assert core.state.queue.jobs[job].state == "COMPLETED"
    late = core.ask(SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", b"\xa0", b"")))
    assert isinstance(late, Refused)


@pytest.mark.rule("PRF-003", "RCV-002")
def test_a_verdict_on_one_result_does_not_accept_another() -> None:
    core, job = leased()
    core.do(submission(core, job))
    lease = core.lease_of(job)
    assert core.ask(RecordVerdict(lease.id, True, digest=result_digest(b"something else"))) == ()
    assert core.state.queue.jobs[job].state == "ASSIGNED"
    accepted, *_ = core.do(RecordVerdict(lease.id, True, digest=result_digest(b"out")))
    assert isinstance(accepted, ProofAccepted)


@pytest.mark.rule("PRF-003", "RTY-001")
def test_a_refused_proof_counts_as_a_failure() -> None:
    core, job = leased()
    core.submit(job)
    closed, refused, *_ = core.record_verdict(job, is_good=False)
    assert isinstance(refused, ProofRefused)
    assert (refused.verdict, refused.reasons) == ("PROOF_INVALID", "as the test says")
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.is_failure) == ("PROOF_INVALID", True)


# ------------------------------------------------------------------------------------------------ evidence


@pytest.mark.rule("EVD-002")
def test_evidence_moves_its_watermark_without_gaps_and_never_back() -> None:
    core, _ = leased()
    id_ = next(iter(core.state.providers))
    channel = id_.hex()

    def take(first: int, last: int) -> object:
        return core.ask(StoreEvidence(id_, channel, "s1", first, last, b"lines"))

    assert isinstance(take(2, 3), Refused)
    assert take(1, 3) != ()
    assert take(1, 3) == ()  # known
    assert take(2, 2) == ()
    overlap = take(3, 5)
    assert isinstance(overlap, Refused)
    assert overlap.name == "EvidenceGap"
    assert acked_sequence(core.state, channel, "s1") == 3
    assert take(4, 4) != ()
    assert (acked_sequence(core.state, channel, "s1"), acked_sequence(core.state, channel, "s2")) == (4, 0)


@pytest.mark.rule("EVD-001")
@pytest.mark.parametrize(
    "change",
    [{"channel": "ff" * 32}, {"provider_id": ProviderId(bytes(32))}, {"session": ""}, {"first": 0}, {"lines": b""}],
)
def test_evidence_of_another_channel_or_out_of_bounds_is_refused(change: dict[str, object]) -> None:
    core, _ = leased()
    id_ = next(iter(core.state.providers))
    good = StoreEvidence(id_, id_.hex(), "s1", 1, 1, b"line")
    assert isinstance(core.ask(msgspec.structs.replace(good, **change)), Refused)
    assert not core.state.watermarks
