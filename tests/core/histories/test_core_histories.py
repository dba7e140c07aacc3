"""Random lives of many jobs: whatever happens in whichever order, the laws hold after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.core_driver import CoreDriver
from tests.counts import counts

from holdfast.core import state_machine
from holdfast.core.base.event import Command, JournalHead, OwnershipTaken
from holdfast.core.base.values import Amount, EventNo, Height, ReservationId, TaskId, Term
from holdfast.core.chain.messages import EvictFinalTxs, FinalizeSettlements, RollBackBlocks
from holdfast.core.chain.model import TxKind, final_height
from holdfast.core.escrow.model import ReservationStatus
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import LIVE_STATES, JobState
from holdfast.core.lease.messages import AckLease, DeclineLease, ExpireDue, FailLease, RenewLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import ChangeStatus, Drain, Heartbeat, MaintainProviders, Unstake
from holdfast.core.provider.model import SLASHED, Provider, ProviderTransition, stake_reservation_id
from holdfast.core.provider.sla import on_offence
from holdfast.core.queue.messages import CancelJob, RaiseFee
from holdfast.core.result.model import Consumption, ResultStatus
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.core.workflows import seal
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

Step = Callable[[CoreDriver, int], None]


def _lease(core: CoreDriver, pick: int) -> Lease | None:
    live = list(core.state.leases.by_id.values())
    return live[pick % len(live)] if live else None


def _job(core: CoreDriver, pick: int) -> TaskId | None:
    jobs = list(core.state.queue.jobs)
    return jobs[pick % len(jobs)] if jobs else None


def _enqueue(core: CoreDriver, pick: int) -> None:
    if core.state.ledger.accounts["alice"].available >= 100:  # type: ignore[index]
        core.enqueue(nonce=len(core.events) * 100 + pick, max_fee=1 + pick % 100)


def _submit(core: CoreDriver, pick: int) -> None:
    if (lease := _lease(core, pick)) is not None:
        core.ask(SubmitCompletion(lease.id, lease.provider_id, core.envelope(lease.job_id, bytes([pick % 3]))))


def _record_verdict(core: CoreDriver, pick: int) -> None:
    if core.state.submissions:
        core.ask(RecordVerdict(list(core.state.submissions)[pick % len(core.state.submissions)], pick % 4 != 0))


def _finish(core: CoreDriver, pick: int) -> None:
    """A whole life at once, so that many are in blocks when a reorg comes."""
    _enqueue(core, pick)
    core.ask(Match())
    if (lease := _lease(core, pick)) is not None and lease.submitted is None:
        core.ask(SubmitCompletion(lease.id, lease.provider_id, core.envelope(lease.job_id, b"done")))
        core.ask(RecordVerdict(lease.id, is_good=True))


def _use(core: CoreDriver, pick: int) -> None:
    """A whole life and its use, so that a reorg finds both in blocks."""
    _finish(core, pick)
    core.seal(1 + pick % 2)
    _consume(core, -1 - pick % 2)


def _on_lease(make: Callable[[Lease], Command]) -> Step:
    def step(core: CoreDriver, pick: int) -> None:
        if (lease := _lease(core, pick)) is not None:
            core.ask(make(lease))

    return step


def _wait(core: CoreDriver, pick: int) -> None:
    core.now_ms += (500, 6_000, 700_000, 25_000_000)[pick % 4]
    core.ask(ExpireDue(limit=1 + pick % 3))


def _cancel(core: CoreDriver, pick: int) -> None:
    if (job := _job(core, pick)) is not None:
        core.ask(CancelJob(job))


def _raise(core: CoreDriver, pick: int) -> None:
    if (job := _job(core, pick)) is not None:
        core.ask(RaiseFee(job, Amount(core.state.queue.jobs[job].max_fee + pick % 5)))


def _outage(core: CoreDriver, pick: int) -> None:
    outage_ms = (0, 1_000, 60_000)[pick % 3]
    core.now_ms += outage_ms
    event = OwnershipTaken(Term(2), "node", "", outage_ms, core.now_ms)
    state_machine.apply(core.state, event)
    core.events.append(event)


def _roll_back(core: CoreDriver, pick: int) -> None:
    core.ask(RollBackBlocks(Height(max(0, core.state.chain.head.height - pick % 4))))


def _roll_far_back(core: CoreDriver, pick: int) -> None:
    """Down to what is final, or nearly."""
    core.ask(RollBackBlocks(Height(final_height(core.state) + pick % 3)))


def _evict_final_txs(core: CoreDriver, pick: int) -> None:
    core.ask(FinalizeSettlements(1 + pick))
    core.ask(EvictFinalTxs(EventNo(core.state.last_event - pick), 1 + pick))


def _consume(core: CoreDriver, pick: int) -> None:
    known = list(core.rows)
    if known:
        core.consume(known[pick % len(known)], tx=pick % 2)


def _match(core: CoreDriver, _: int) -> None:
    core.ask(Match())


def _provider(core: CoreDriver, pick: int) -> Provider:
    return list(core.state.providers.values())[pick % len(core.state.providers)]


def _on_provider(make: Callable[[Provider, int], Command]) -> Step:
    def step(core: CoreDriver, pick: int) -> None:
        core.ask(make(_provider(core, pick), pick))

    return step


def _offend(core: CoreDriver, pick: int) -> None:
    reason = "EQUIVOCATION" if pick % 3 == 0 else "PROOF_INVALID"
    for event in on_offence(core.state, _provider(core, pick), reason, core.now_ms):
        state_machine.apply(core.state, event)
        core.events.append(event)


def _heartbeat(core: CoreDriver, _: int) -> None:
    for provider in core.state.providers.values():
        core.ask(Heartbeat(provider.id, provider.slots))


def _maintain_providers(core: CoreDriver, pick: int) -> None:
    core.ask(MaintainProviders(limit=1 + pick % 5))


def _retire(core: CoreDriver, pick: int) -> None:
    if pick == 11:  # seldom: it is for good
        core.ask(ChangeStatus(_provider(core, pick).id, ProviderTransition.RETIRE, "ops"))


def _unstake(core: CoreDriver, pick: int) -> None:
    core.ask(Unstake(_provider(core, pick).id, Amount(1 + pick), core.new_id(), "ops"))


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
    _record_verdict,
    _record_verdict,
    _finish,
    _finish,
    _wait,
    _cancel,
    _raise,
    _outage,
    lambda core, _: core.seal(),
    lambda core, pick: core.seal(1 + pick),
    _consume,
    _use,
    _use,
    _roll_back,
    _roll_back,
    _roll_far_back,
    _evict_final_txs,
    _heartbeat,
    _heartbeat,
    _maintain_providers,
    _maintain_providers,
    _offend,
    _on_provider(lambda one, pick: ChangeStatus(one.id, ProviderTransition.JAIL, "ops", blocks=1 + pick % 3)),
    _on_provider(lambda one, _: ChangeStatus(one.id, ProviderTransition.UNJAIL, "ops")),
    _on_provider(lambda one, _: ChangeStatus(one.id, ProviderTransition.SUSPEND, "ops")),
    _on_provider(lambda one, _: ChangeStatus(one.id, ProviderTransition.RECOVER, "ops")),
    _on_provider(lambda one, pick: Drain(one.id, pick % 2 == 0, "ops")),
    _retire,
    _unstake,
]
step_sequences = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 11)), max_size=70)


def violated_invariants(core: CoreDriver) -> list[str]:
    """LEA-002, RES-001 and the laws of money and queue, over the whole state."""
    state = core.state
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
            state.ledger.reservations[ReservationId(job.id)].status is not ReservationStatus.HELD
            for job in state.queue.jobs.values()
            if job.state not in LIVE_STATES and not job.parent
        ),
        "every result is in a block": len(resolved) == len(state.results),
        "transactions are in the order of their events": _numbers(core) == sorted(_numbers(core)),
        "the log has a leaf for every result": state.chain.log.size >= len(resolved),
        "every result is resolved at its place in the log": sorted(each.leaf_index for each in resolved)
        == sorted({each.leaf_index for each in resolved}),
        "a stake is what is reserved for it": all(
            each.at_stake
            == (hold.amount if (hold := state.ledger.reservations.get(stake_reservation_id(id_))) is not None else 0)
            for id_, each in state.providers.items()
        ),
        "what was lost is where it belongs": _slashed_total(state)
        == sum(each.slashed for each in state.providers.values()),
        "only what could be read was used": all(_is_used_rightly(core, mark) for mark in state.consumptions.values()),
        "no job failed more often than it may": all(job.failures <= 6 for job in state.queue.jobs.values()),
    }
    return [
        *broken_invariants(state),
        *(k for k, v in checks.items() if not v),
    ]


def _is_used_rightly(core: CoreDriver, consumption: Consumption) -> bool:
    """RES-002, RES-005: in a block after the result's, and its transaction is in that very block."""
    state, result = core.state, core.state.results.get(consumption.task_id)
    blocks = {height: recent.txs for height, recent in state.chain.unfinalized.items()} | {
        state.open_height: state.chain.open.txs,
        **{height: final.txs for height, final in state.final_blocks.items()},  # final, and evicted step by step
    }
    txs = blocks.get(consumption.height, [])
    is_there = any((tx.kind, tx.number) == (TxKind.CONSUMPTION, consumption.event) for tx in txs)
    is_after = result is None or result.height_resolved < consumption.height
    return is_there and is_after and consumption.earliest <= consumption.height <= core.state.open_height


def _numbers(core: CoreDriver) -> list[EventNo]:
    chain = core.state.chain
    return [tx.number for recent in chain.unfinalized.values() for tx in recent.txs] + [
        tx.number for tx in chain.open.txs
    ]


def _slashed_total(state: State) -> int:
    account = state.ledger.accounts.get(SLASHED)
    return account.pending + account.available if account is not None else 0


def transactions(core: CoreDriver) -> Counter[tuple[TxKind, bytes, int]]:
    """A slash is told from another of the same provider by its event, a consumption from one that a reorg dropped."""
    chain = core.state.chain
    txs = [tx for recent in chain.unfinalized.values() for tx in recent.txs] + chain.open.txs
    return Counter((tx.kind, tx.subject, tx.number if tx.kind in _SEVERAL else 0) for tx in txs)


_SEVERAL = (TxKind.SLASH, TxKind.CONSUMPTION)


def new_core() -> CoreDriver:
    core = CoreDriver()
    core.funded(amount=5_000)
    core.provider(1, slots=2)
    core.provider(2, slots=3)
    core.seal()
    return core


@pytest.mark.rule("LEA-002", "RES-001", "RES-003", "RES-005", "RES-006", "CHN-004", "ESC-001")
@settings(max_examples=counts(60, 5_000), deadline=None)
@given(step_sequences)
def test_the_invariants_hold_after_every_step_and_the_fold_gives_the_same_state(life: list[tuple[int, int]]) -> None:
    with patch.object(seal, "AT_ONCE_MAX", 1):  # most blocks are let go in steps
        _run_steps(life)


def _run_steps(life: list[tuple[int, int]]) -> None:
    core = new_core()
    for step, pick in life:
        STEPS[step](core, pick)
        assert violated_invariants(core) == []
        assert all(count == 1 for count in transactions(core).values())
    again = State(core.state.policy)
    for event in core.events:
        state_machine.apply(again, event)
    assert digest(again) == digest(core.state)
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert digest(copy) == digest(core.state)
    assert indexes(copy, core.now_ms) == indexes(core.state, core.now_ms)
    assert violated_invariants(CoreDriver(copy)) == []


def indexes(state: State, now_ms: int) -> tuple[object, ...]:
    """What is kept beside the records, and made anew from them by a start.

    A job whose pause is over stands in line from the next tick on: here at once, so that all have had the same ticks.
    """
    queue, leases = state.queue, state.leases
    queue.ready_queue.promote(queue.jobs, now_ms)
    due = (queue.expiry_times.buckets, queue.expiry_heights.buckets, leases.due_index.buckets)
    return queue.depth, queue.in_flight, list(queue.ready_queue.in_order()), due, leases.by_job, leases.by_provider
