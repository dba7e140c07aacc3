"""The whole way in core: enqueued, leased, done, proved, in block B, readable from B + 1; and back by a reorg."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.ways import ALICE, Way

from holdfast.core.canon import canonical
from holdfast.core.chain.acts import RollBack
from holdfast.core.escrow.books import Account
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.event import Tip
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import DeclineLease, JobFailed, LeaseClosed, Reap
from holdfast.core.queue.books import broken_laws as broken_queue
from holdfast.core.result.read import why_not_readable
from holdfast.core.result.record import leaf_of
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import AccountId, Digest, Height, TaskId


def walked() -> tuple[Way, bytes]:
    way = Way()
    way.funded()
    way.provider(price=3)
    job = way.enqueue(max_fee=100)
    way.seal()
    way.match()
    way.ack(job)
    way.complete(job)
    return way, job


def sound(way: Way) -> None:
    assert broken_money(way.state.ledger) == []
    assert broken_queue(way.state.queue, way.state.ledger) == []


@pytest.mark.rule("PRF-003", "RES-002", "RES-007")
def test_a_result_is_readable_from_the_block_after_its_own() -> None:
    way, job = walked()
    state = way.state
    found, result = state.queue.jobs[job], state.results[job]  # type: ignore[index]
    assert (found.state, result.height_resolved) == (JobState.COMPLETED, 2)
    assert why_not_readable(found, result, state.open_height).name == "NoResultYet"  # type: ignore[union-attr]
    way.seal()
    assert why_not_readable(found, result, state.open_height) is None
    assert state.chain.head.result_count == 1
    sound(way)


@pytest.mark.rule("RES-008", "CAN-002")
@pytest.mark.parametrize("size", [0, 23, 24, 255, 65_536, 2**40])
@pytest.mark.parametrize("commitment", [None, Digest(b"c" * 32)])
def test_a_leaf_is_the_canonical_array_of_what_a_light_client_needs(size: int, commitment: Digest | None) -> None:
    way, job = walked()
    result = msgspec.structs.replace(way.state.results[TaskId(job)], result_size=size, da_commitment=commitment)
    told = [result.task_id, result.proof_nullifier, result.result_digest, size, commitment, result.height_resolved]
    assert leaf_of(result) == canonical(told)


@pytest.mark.rule("ESC-001")
def test_the_provider_is_paid_its_price_and_the_rest_goes_back() -> None:
    way, _ = walked()
    way.seal(13)
    assert way.state.ledger.accounts[AccountId("provider-1")] == Account(AccountId("provider-1"), 10_006, 10_000, 0)
    assert way.state.ledger.accounts[ALICE] == Account(ALICE, 999_994, 0, 0)
    assert not way.state.results
    sound(way)


@pytest.mark.rule("RES-006")
def test_a_reorg_unlinks_the_result_and_the_same_proof_resolves_it_at_a_new_height() -> None:
    way, job = walked()
    way.seal()
    result = way.state.results[job]  # type: ignore[index]
    first = (result.result_digest, result.proof_nullifier)
    way.do(RollBack(Height(0)))
    assert why_not_readable(way.state.queue.jobs[job], result, way.state.open_height) is not None  # type: ignore[index]
    assert way.state.queue.jobs[job].state is JobState.COMPLETED  # type: ignore[index]
    sound(way)
    way.seal()
    assert (result.result_digest, result.proof_nullifier, result.height_resolved) == (*first, 1)
    assert way.state.chain.head.log_size == 1
    assert way.state.ledger.accounts[AccountId("provider-1")].pending == 6
    sound(way)


@pytest.mark.rule("LEA-003")
def test_without_an_ack_the_job_waits_and_tries_again() -> None:
    way = Way()
    way.funded()
    way.provider()
    job = way.enqueue()
    way.match()
    lease = way.lease_of(job)
    way.now_ms = lease.ack_by_ms - 1
    assert way.ask(Reap()) == ()
    way.now_ms += 1
    closed, *_ = way.do(Reap())
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, way.state.queue.jobs[job].failures) == ("ACK_TIMEOUT", 1)
    assert way.match() == ()
    way.now_ms = closed.not_before_ms
    assert len(way.match()) == 1
    assert way.lease_of(job).attempt == 1
    sound(way)


@pytest.mark.rule("RTY-001")
def test_the_sixth_failure_is_the_last() -> None:
    way = Way()
    way.funded()
    job = way.enqueue()
    for failure in range(6):
        way.provider(failure + 1)  # who handed in what is no proof gets no more work
        way.match()
        way.submit(job)
        events = way.judge(job, is_good=False)
        assert isinstance(events[-1], JobFailed) == (failure == 5)
        way.now_ms = events[0].not_before_ms  # type: ignore[attr-defined]
        sound(way)
    assert way.state.queue.jobs[job].state is JobState.FAILED
    assert way.state.ledger.accounts[ALICE].pending == 100


@pytest.mark.rule("ENG-003")
def test_a_snapshot_on_the_way_goes_on_like_the_state_it_was_taken_of() -> None:
    way = Way()
    way.funded()
    way.provider()
    for nonce in range(6):
        way.enqueue(nonce)
    way.match()
    job, declined, *_ = way.state.leases.by_job
    way.submit(job)
    way.do(DeclineLease(way.lease_of(declined).id, way.lease_of(declined).provider_id))
    again, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    assert digest(again) == digest(way.state)
    other = Way(again)
    other.now_ms = way.now_ms
    for each in (way, other):
        each.judge(job)
        each.seal()
        each.match()
    assert digest(other.state) == digest(way.state)
    assert isinstance(again, State)
