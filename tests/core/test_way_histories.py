"""Random lives of many jobs: whatever happens in whichever order, the laws hold after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.ways import Way
from tests.counts import counts

from holdfast.core import law
from holdfast.core.chain.acts import RollBack
from holdfast.core.chain.blocks import TxKind
from holdfast.core.escrow.books import HoldStatus
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.event import OwnershipTaken, Tip
from holdfast.core.job.record import LIVE, JobState
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, Reap, RenewLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.decide import Judge, Submit
from holdfast.core.queue.acts import Cancel, RaiseFee
from holdfast.core.queue.books import broken_laws as broken_queue
from holdfast.core.result.record import ResultStatus
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import Amount, Epoch, EventNo, Height, HoldId, TaskId

Step = Callable[[Way, int], None]


def _lease(way: Way, pick: int) -> Lease | None:
    live = list(way.state.leases.by_id.values())
    return live[pick % len(live)] if live else None


def _job(way: Way, pick: int) -> TaskId | None:
    jobs = list(way.state.queue.jobs)
    return jobs[pick % len(jobs)] if jobs else None


def _enqueue(way: Way, pick: int) -> None:
    if way.state.ledger.accounts["alice"].available >= 100:  # type: ignore[index]
        way.enqueue(nonce=len(way.events) * 100 + pick, max_fee=1 + pick % 100)


def _submit(way: Way, pick: int) -> None:
    if (lease := _lease(way, pick)) is not None:
        way.ask(Submit(lease.id, lease.provider_id, way.envelope(lease.job_id, bytes([pick % 3]))))


def _judge(way: Way, pick: int) -> None:
    if way.state.submissions:
        way.ask(Judge(list(way.state.submissions)[pick % len(way.state.submissions)], pick % 4 != 0))


def _finish(way: Way, pick: int) -> None:
    """A whole life at once, so that many are in blocks when a reorg comes."""
    _enqueue(way, pick)
    way.ask(Match())
    if (lease := _lease(way, pick)) is not None and lease.submitted is None:
        way.ask(Submit(lease.id, lease.provider_id, way.envelope(lease.job_id, b"done")))
        way.ask(Judge(lease.id, is_good=True))


def _on_lease(make: Callable[[Lease], law.Command]) -> Step:
    def step(way: Way, pick: int) -> None:
        if (lease := _lease(way, pick)) is not None:
            way.ask(make(lease))

    return step


def _wait(way: Way, pick: int) -> None:
    way.now_ms += (500, 6_000, 700_000, 25_000_000)[pick % 4]
    way.ask(Reap(limit=1 + pick % 3))


def _cancel(way: Way, pick: int) -> None:
    if (job := _job(way, pick)) is not None:
        way.ask(Cancel(job))


def _raise(way: Way, pick: int) -> None:
    if (job := _job(way, pick)) is not None:
        way.ask(RaiseFee(job, Amount(way.state.queue.jobs[job].max_fee + pick % 5)))


def _outage(way: Way, pick: int) -> None:
    outage_ms = (0, 1_000, 60_000)[pick % 3]
    way.now_ms += outage_ms
    event = OwnershipTaken(Epoch(2), "node", "", outage_ms, way.now_ms)
    law.apply(way.state, event)
    way.events.append(event)


def _roll_back(way: Way, pick: int) -> None:
    way.ask(RollBack(Height(max(0, way.state.chain.head.height - pick % 4))))


def _match(way: Way, _: int) -> None:
    way.ask(Match())


STEPS: list[Step] = [
    _enqueue,
    _enqueue,
    _match,
    _match,
    _on_lease(lambda lease: AckLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: RenewLease(lease.id, lease.provider_id, lease.renewals + 1)),
    _on_lease(lambda lease: DeclineLease(lease.id, lease.provider_id)),
    _on_lease(lambda lease: FailLease(lease.id, lease.provider_id)),
    _submit,
    _submit,
    _judge,
    _judge,
    _finish,
    _finish,
    _wait,
    _cancel,
    _raise,
    _outage,
    lambda way, _: way.seal(),
    _roll_back,
    _roll_back,
]
lives = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 11)), max_size=70)


def broken(way: Way) -> list[str]:
    """LEA-002, RES-001 and the laws of money and queue, over the whole state."""
    state = way.state
    loads = Counter(lease.provider_id for lease in state.leases.by_id.values())
    resolved = [each for each in state.results.values() if each.status is ResultStatus.RESOLVED]
    checks = {
        "one live lease for every assigned job": {
            job.id for job in state.queue.jobs.values() if job.state is JobState.ASSIGNED
        }
        == set(state.leases.by_job),
        "both indexes of leases agree": sorted(each.id for each in state.leases.by_job.values())
        == sorted(state.leases.by_id),
        "providers know their load": all(
            each.leases == loads[id_] <= each.slots for id_, each in state.providers.items()
        ),
        "only live leases wait for a verdict": set(state.submissions) <= set(state.leases.by_id),
        "what ended is settled": all(
            state.ledger.holds[HoldId(job.id)].status is not HoldStatus.HELD
            for job in state.queue.jobs.values()
            if job.state not in LIVE
        ),
        "every result is in a block": len(resolved) == len(state.results),
        "transactions are in the order of their events": _numbers(way) == sorted(_numbers(way)),
        "the log has a leaf for every result": state.chain.log.size >= len(resolved),
        "every result is resolved at its place in the log": sorted(each.leaf_index for each in resolved)
        == sorted({each.leaf_index for each in resolved}),
        "no job failed more often than it may": all(job.failures <= 6 for job in state.queue.jobs.values()),
    }
    return [
        *broken_money(state.ledger),
        *broken_queue(state.queue, state.ledger),
        *(k for k, v in checks.items() if not v),
    ]


def _numbers(way: Way) -> list[EventNo]:
    chain = way.state.chain
    return [tx.number for recent in chain.recent.values() for tx in recent.txs] + [tx.number for tx in chain.open.txs]


def transactions(way: Way) -> Counter[tuple[TxKind, bytes]]:
    chain = way.state.chain
    txs = [tx for recent in chain.recent.values() for tx in recent.txs] + chain.open.txs
    return Counter((tx.kind, tx.subject) for tx in txs)


def begun() -> Way:
    way = Way()
    way.funded(amount=5_000)
    way.provider(1, slots=2)
    way.provider(2, slots=3)
    way.seal()
    return way


@pytest.mark.rule("LEA-002", "RES-001", "RES-003", "RES-006", "CHN-004", "ESC-001")
@settings(max_examples=counts(60, 5_000), deadline=None)
@given(lives)
def test_the_laws_hold_after_every_step_and_the_fold_gives_the_same_state(life: list[tuple[int, int]]) -> None:
    way = begun()
    for step, pick in life:
        STEPS[step](way, pick)
        assert broken(way) == []
        assert all(count == 1 for count in transactions(way).values())
    again = State(way.state.policy)
    for event in way.events:
        law.apply(again, event)
    assert digest(again) == digest(way.state)
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    assert digest(copy) == digest(way.state)
    assert broken(Way(copy)) == []
