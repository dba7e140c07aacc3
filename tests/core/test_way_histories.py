"""Random lives of many jobs: whatever happens in whichever order, the laws hold after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.ways import Way
from tests.counts import counts

from holdfast.core import law
from holdfast.core.chain import decide as chain_decide
from holdfast.core.chain.acts import Release, RollBack
from holdfast.core.chain.blocks import TxKind, finalized
from holdfast.core.escrow.books import HoldStatus
from holdfast.core.escrow.books import broken_laws as broken_money
from holdfast.core.event import OwnershipTaken, Tip
from holdfast.core.job.record import LIVE, JobState
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, Reap, RenewLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.provider.acts import Beat, Drain, MoveProvider, Tend, Unstake
from holdfast.core.provider.record import SLASHED, Provider, ProviderAct, stake_id
from holdfast.core.provider.sla import sentence
from holdfast.core.queue.acts import Cancel, RaiseFee
from holdfast.core.queue.books import broken_laws as broken_queue
from holdfast.core.result.record import Consumption, ResultStatus
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


def _use(way: Way, pick: int) -> None:
    """A whole life and its use, so that a reorg finds both in blocks."""
    _finish(way, pick)
    way.seal(1 + pick % 2)
    _consume(way, -1 - pick % 2)


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


def _roll_far_back(way: Way, pick: int) -> None:
    """Down to what is final, or nearly."""
    way.ask(RollBack(Height(finalized(way.state) + pick % 3)))


def _release(way: Way, pick: int) -> None:
    way.ask(Release(1 + pick))


def _consume(way: Way, pick: int) -> None:
    known = list(way.rows)
    if known:
        way.consume(known[pick % len(known)], tx=pick % 2)


def _match(way: Way, _: int) -> None:
    way.ask(Match())


def _provider(way: Way, pick: int) -> Provider:
    return list(way.state.providers.values())[pick % len(way.state.providers)]


def _on_provider(make: Callable[[Provider, int], law.Command]) -> Step:
    def step(way: Way, pick: int) -> None:
        way.ask(make(_provider(way, pick), pick))

    return step


def _offend(way: Way, pick: int) -> None:
    reason = "EQUIVOCATION" if pick % 3 == 0 else "PROOF_INVALID"
    for event in sentence(way.state, _provider(way, pick), reason, way.now_ms):
        law.apply(way.state, event)
        way.events.append(event)


def _beat(way: Way, _: int) -> None:
    for provider in way.state.providers.values():
        way.ask(Beat(provider.id, provider.slots))


def _tend(way: Way, pick: int) -> None:
    way.ask(Tend(limit=1 + pick % 5))


def _retire(way: Way, pick: int) -> None:
    if pick == 11:  # seldom: it is for good
        way.ask(MoveProvider(_provider(way, pick).id, ProviderAct.RETIRE, "ops"))


def _unstake(way: Way, pick: int) -> None:
    way.ask(Unstake(_provider(way, pick).id, Amount(1 + pick), way.new_id(), "ops"))


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
    lambda way, pick: way.seal(1 + pick),
    _consume,
    _use,
    _use,
    _roll_back,
    _roll_back,
    _roll_far_back,
    _release,
    _beat,
    _beat,
    _tend,
    _tend,
    _offend,
    _on_provider(lambda one, pick: MoveProvider(one.id, ProviderAct.JAIL, "ops", blocks=1 + pick % 3)),
    _on_provider(lambda one, _: MoveProvider(one.id, ProviderAct.UNJAIL, "ops")),
    _on_provider(lambda one, _: MoveProvider(one.id, ProviderAct.SUSPEND, "ops")),
    _on_provider(lambda one, _: MoveProvider(one.id, ProviderAct.RECOVER, "ops")),
    _on_provider(lambda one, pick: Drain(one.id, pick % 2 == 0, "ops")),
    _retire,
    _unstake,
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
            if job.state not in LIVE and not job.parent
        ),
        "every result is in a block": len(resolved) == len(state.results),
        "transactions are in the order of their events": _numbers(way) == sorted(_numbers(way)),
        "the log has a leaf for every result": state.chain.log.size >= len(resolved),
        "every result is resolved at its place in the log": sorted(each.leaf_index for each in resolved)
        == sorted({each.leaf_index for each in resolved}),
        "a stake is what is reserved for it": all(
            each.at_stake == (hold.amount if (hold := state.ledger.holds.get(stake_id(id_))) is not None else 0)
            for id_, each in state.providers.items()
        ),
        "what was lost is where it belongs": _lost(state) == sum(each.slashed for each in state.providers.values()),
        "only what could be read was used": all(_is_used_rightly(way, mark) for mark in state.consumptions.values()),
        "no job failed more often than it may": all(job.failures <= 6 for job in state.queue.jobs.values()),
    }
    return [
        *broken_money(state.ledger),
        *broken_queue(state.queue, state.ledger),
        *(k for k, v in checks.items() if not v),
    ]


def _is_used_rightly(way: Way, mark: Consumption) -> bool:
    """RES-002, RES-005: in a block after the result's, and its transaction is in that very block."""
    state, result = way.state, way.state.results.get(mark.task_id)
    blocks = {height: recent.txs for height, recent in state.chain.recent.items()} | {
        state.open_height: state.chain.open.txs,
        **state.settling,  # final, and let go of by and by
    }
    txs = blocks.get(mark.height, [])
    is_there = any((tx.kind, tx.number) == (TxKind.CONSUMPTION, mark.event) for tx in txs)
    is_after = result is None or result.height_resolved < mark.height
    return is_there and is_after and mark.earliest <= mark.height <= way.state.open_height


def _numbers(way: Way) -> list[EventNo]:
    chain = way.state.chain
    return [tx.number for recent in chain.recent.values() for tx in recent.txs] + [tx.number for tx in chain.open.txs]


def _lost(state: State) -> int:
    account = state.ledger.accounts.get(SLASHED)
    return account.pending + account.available if account is not None else 0


def transactions(way: Way) -> Counter[tuple[TxKind, bytes, int]]:
    """A slash is told from another of the same provider by its event, a consumption from one that a reorg dropped."""
    chain = way.state.chain
    txs = [tx for recent in chain.recent.values() for tx in recent.txs] + chain.open.txs
    return Counter((tx.kind, tx.subject, tx.number if tx.kind in _SEVERAL else 0) for tx in txs)


_SEVERAL = (TxKind.SLASH, TxKind.CONSUMPTION)


def begun() -> Way:
    way = Way()
    way.funded(amount=5_000)
    way.provider(1, slots=2)
    way.provider(2, slots=3)
    way.seal()
    return way


@pytest.mark.rule("LEA-002", "RES-001", "RES-003", "RES-005", "RES-006", "CHN-004", "ESC-001")
@settings(max_examples=counts(60, 5_000), deadline=None)
@given(lives)
def test_the_laws_hold_after_every_step_and_the_fold_gives_the_same_state(life: list[tuple[int, int]]) -> None:
    with patch.object(chain_decide, "AT_ONCE_MAX", 1):  # most blocks are let go in lots
        _live(life)


def _live(life: list[tuple[int, int]]) -> None:
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
    assert indexes(copy, way.now_ms) == indexes(way.state, way.now_ms)
    assert broken(Way(copy)) == []


def indexes(state: State, now_ms: int) -> tuple[object, ...]:
    """What is kept beside the records, and made anew from them by a start.

    A job whose pause is over stands in line from the next tick on: here at once, so that all have had the same ticks.
    """
    queue, leases = state.queue, state.leases
    queue.line.promote(queue.jobs, now_ms)
    due = (queue.agenda.buckets, queue.heights.buckets, leases.agenda.buckets)
    return queue.depth, queue.in_flight, list(queue.line.in_order()), due, leases.by_job, leases.by_provider
