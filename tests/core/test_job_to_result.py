"""The whole way in core: enqueued, leased, done, proved, in block B, readable from B + 1; and back by a reorg."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Digest, Height, TaskId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.invariants import broken_invariants as broken_money
from holdfast.core.escrow.model import Account
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import DeclineLease, ExpireDue, LeaseClosed
from holdfast.core.queue.invariants import broken_invariants as broken_queue
from holdfast.core.queue.messages import JobFailed
from holdfast.core.result.model import leaf_of
from holdfast.core.result.readability import why_not_readable
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot


def completed_job() -> tuple[CoreDriver, bytes]:
    core = CoreDriver()
    core.funded()
    core.provider(price=3)
    job = core.enqueue(max_fee=100)
    core.seal()
    core.match()
    core.ack(job)
    core.complete(job)
    return core, job


def check_invariants(core: CoreDriver) -> None:
    assert broken_money(core.state.ledger) == []
    assert broken_queue(core.state.queue, core.state.ledger) == []


@pytest.mark.rule("PRF-003", "RES-002", "RES-007")
def test_a_result_is_readable_from_the_block_after_its_own() -> None:
    core, job = completed_job()
    state = core.state
    found, result = state.queue.jobs[job], state.results[job]  # type: ignore[index]
    assert (found.state, result.height_resolved) == (JobState.COMPLETED, 2)
    assert why_not_readable(found, result, state.open_height).name == "NoResultYet"  # type: ignore[union-attr]
    core.seal()
    assert why_not_readable(found, result, state.open_height) is None
    assert state.chain.head.result_count == 1
    check_invariants(core)


@pytest.mark.rule("RES-008", "CAN-002")
@pytest.mark.parametrize("size", [0, 23, 24, 255, 65_536, 2**40])
@pytest.mark.parametrize("commitment", [None, Digest(b"c" * 32)])
def test_a_leaf_is_the_canonical_array_of_what_a_light_client_needs(size: int, commitment: Digest | None) -> None:
    core, job = completed_job()
    result = msgspec.structs.replace(core.state.results[TaskId(job)], result_size=size, da_commitment=commitment)
    told = [result.task_id, result.proof_nullifier, result.result_digest, size, commitment, result.height_resolved]
    assert leaf_of(result) == canonical(told)


@pytest.mark.rule("ESC-001")
def test_the_provider_is_paid_its_price_and_the_rest_goes_back() -> None:
    core, _ = completed_job()
    core.seal(13)
    assert core.state.ledger.accounts[AccountId("provider-1")] == Account(AccountId("provider-1"), 10_006, 10_000, 0)
    assert core.state.ledger.accounts[ALICE] == Account(ALICE, 999_994, 0, 0)
    assert not core.state.results
    check_invariants(core)


@pytest.mark.rule("RES-006")
def test_a_reorg_unlinks_the_result_and_the_same_proof_resolves_it_at_a_new_height() -> None:
    core, job = completed_job()
    core.seal()
    result = core.state.results[job]  # type: ignore[index]
    first = (result.result_digest, result.proof_nullifier)
    core.do(RollBackBlocks(Height(0)))
    assert why_not_readable(core.state.queue.jobs[job], result, core.state.open_height) is not None  # type: ignore[index]
    assert core.state.queue.jobs[job].state is JobState.COMPLETED  # type: ignore[index]
    check_invariants(core)
    core.seal()
    assert (result.result_digest, result.proof_nullifier, result.height_resolved) == (*first, 1)
    assert core.state.chain.head.log_size == 1
    assert core.state.ledger.accounts[AccountId("provider-1")].pending == 6
    check_invariants(core)


@pytest.mark.rule("LEA-003")
def test_without_an_ack_the_job_waits_and_tries_again() -> None:
    core = CoreDriver()
    core.funded()
    core.provider()
    job = core.enqueue()
    core.match()
    lease = core.lease_of(job)
    core.now_ms = lease.ack_by_ms - 1
    assert core.ask(ExpireDue()) == ()
    core.now_ms += 1
    closed, *_ = core.do(ExpireDue())
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, core.state.queue.jobs[job].failures) == ("ACK_TIMEOUT", 1)
    assert core.match() == ()
    core.now_ms = closed.not_before_ms
    assert len(core.match()) == 1
    assert core.lease_of(job).attempt == 1
    check_invariants(core)


@pytest.mark.rule("RTY-001")
def test_the_sixth_failure_is_the_last() -> None:
    core = CoreDriver()
    core.funded()
    job = core.enqueue()
    for failure in range(6):
        core.provider(failure + 1)  # who submitted what is no proof gets no more work
        core.match()
        core.submit(job)
        events = core.record_verdict(job, is_good=False)
        assert isinstance(events[-1], JobFailed) == (failure == 5)
        core.now_ms = events[0].not_before_ms  # type: ignore[attr-defined]
        check_invariants(core)
    assert core.state.queue.jobs[job].state is JobState.FAILED
    assert core.state.ledger.accounts[ALICE].pending == 100


@pytest.mark.rule("ENG-003")
def test_a_snapshot_halfway_goes_on_like_the_state_it_was_taken_of() -> None:
    core = CoreDriver()
    core.funded()
    core.provider()
    for nonce in range(6):
        core.enqueue(nonce)
    core.match()
    job, declined, *_ = core.state.leases.by_job
    core.submit(job)
    core.do(DeclineLease(core.lease_of(declined).id, core.lease_of(declined).provider_id))
    again, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert digest(again) == digest(core.state)
    other = CoreDriver(again)
    other.now_ms = core.now_ms
    for each in (core, other):
        each.record_verdict(job)
        each.seal()
        each.match()
    assert digest(other.state) == digest(core.state)
    assert isinstance(again, State)
