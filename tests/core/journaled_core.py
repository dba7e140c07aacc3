"""A queue that is lived in: every step journaled as a batch, so that it can be folded again at any moment."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from tests.core.commands import DEVELOPMENT
from tests.core.core_driver import CoreDriver
from tests.core.fleet import completion_envelope, join_provider

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Batch, Command, Event, JournalHead, OwnershipTaken, head_of
from holdfast.core.base.values import Height, Network, Term
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import LIVE_STATES, JobState, reservation_id
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.lease.model import Lease, is_live
from holdfast.core.match.decide import replay_tick
from holdfast.core.policy import (
    ChainPolicy,
    LeasePolicy,
    Policy,
    ProviderPolicy,
    QuotaPolicy,
    ResultPolicy,
    RetryPolicy,
)
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.envelope import Envelope
from holdfast.core.proof.messages import ProofAccepted, VoteCast
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

NARROW = msgspec.structs.replace(
    DEVELOPMENT,
    chain=ChainPolicy(finality_depth=4, epoch_blocks=3),
    quota=QuotaPolicy(leases_per_provider_max=3, ai_units_per_epoch=12, quantum_units_per_epoch=9),
    retry=RetryPolicy(failures_max=2),
    provider=ProviderPolicy(
        ack_timeout_decay_ppm=1_000,
        lease_expired_decay_ppm=1_000,
        missed_heartbeat_decay_ppm=1_000,
        heartbeat_stale_ms=3_600_000,
        cooldown_ms=1_000,
        stake_ai_min=100,
        stake_quantum_min=100,
    ),
    result=ResultPolicy(result_ttl_blocks=6),
    lease=LeasePolicy(renewals_max=2),
)
"""Everything is scarce, so that every limit is met soon."""


class EndedLease(NamedTuple):
    """A lease that is over, and what its holder would still hand in."""

    lease: Lease
    envelope: Envelope


class JournaledCore(CoreDriver):
    """The owner of a journal in memory."""

    def __init__(self, policy: Policy = NARROW) -> None:
        super().__init__(State(policy))
        self.head, self.batches, self.term = JournalHead(), list[Batch](), Term(1)
        self.stored: tuple[bytes, int] | None = None
        """A snapshot, and how many batches it is the fold of."""
        self.ended_leases: list[EndedLease] = []
        self.begin(policy)

    def begin(self, policy: Policy) -> None:
        self.ask(AdoptPolicy(policy))
        self.funded(amount=3_000)
        for number in (1, 2, 3):
            join_provider(self, number, slots=5)

    def ask(self, command: Command) -> tuple[Event, ...] | Refused:
        decided = state_machine.decide(self.state, command, self.now_ms)
        if isinstance(decided, Refused):
            return decided
        if decided.events:
            self.write(decided.events)
        return decided.events

    def write(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._check_completion(event)
            state_machine.apply(self.state, event)
        batch = journal_codec.pack(self.head, self.term, list(events), self.now_ms)
        self.batches.append(batch)
        self.head = head_of(batch)

    def _check_completion(self, event: Event) -> None:
        """RCV-001: nothing is completed but by a lease that lives and was submitted, or was when it was."""
        if isinstance(event, VoteCast) or (isinstance(event, ProofAccepted) and not event.paid):
            lease = self.state.leases.by_id[event.lease_id]
            assert lease.submitted == event.digest
            assert lease.submitted_ms is not None
            assert is_live(lease, lease.submitted_ms)

    def store(self) -> None:
        self.stored = snapshot(self.state, self.head), len(self.batches)

    def fold(self, *, from_snapshot: bool) -> State:
        """ENG-003: whoever folds needs no settings of his own but the network."""
        given = Policy(network=Network.DEVELOPMENT)
        if from_snapshot and self.stored is not None:
            raw, done = self.stored
            state, tip = restore(raw, given)
        else:
            state, tip, done = State(given), JournalHead(), 0
        journal_codec.fold(state, tip, self.batches[done:])
        return state

    def crash(self, outage_ms: int, *, from_snapshot: bool) -> None:
        """The owner is gone for a while; the next one has what was journaled."""
        before = digest(self.state)
        self.state = self.fold(from_snapshot=from_snapshot)
        assert digest(self.state) == before
        self.now_ms += outage_ms
        self.term = Term(self.term + 1)
        self.write((OwnershipTaken(self.term, "node", "", outage_ms, self.now_ms),))

    def event_count(self) -> int:
        """How many events the journal has."""
        return sum(each.last - each.first + 1 for each in self.batches)

    def close(self) -> None:
        """The end: whoever folds all of it has the same."""
        for from_snapshot in (False, True):
            assert digest(self.fold(from_snapshot=from_snapshot)) == digest(self.state)
        self.audit()

    def audit(self) -> None:
        """MAT-006: every tick is decided again, from what was journaled before it."""
        state = State(Policy(network=Network.DEVELOPMENT))
        tip = JournalHead()
        for batch in self.batches:
            events = journal_codec.unpack(batch)
            if isinstance(events[0], JobAssigned):
                assert list(replay_tick(state, batch.time_ms)) == events
            tip = journal_codec.fold(state, tip, [batch])

    def keep_ended_lease(self, lease: Lease, output: bytes) -> None:
        """What its holder could hand in later, when nobody waits for it any more."""
        self.ended_leases = [
            *self.ended_leases[-9:],
            EndedLease(msgspec.structs.replace(lease), completion_envelope(self, lease.job_id, output)),
        ]


def violated_invariants(core: JournaledCore) -> list[str]:
    """All laws at once."""
    state = core.state
    holds, jobs, failures_max = state.ledger.reservations, state.queue.jobs.values(), state.policy.retry.failures_max
    txs = [tx.number for each in state.chain.unfinalized.values() for tx in each.txs]
    txs += [tx.number for tx in state.chain.open.txs]
    checks = {
        "event numbers have no gaps": core.event_count() == state.last_event,
        "attempts are bounded": all(job.failures <= failures_max for job in jobs),
        "what ended is settled": all(
            holds[reservation_id(job)].status != "HELD"
            for job in jobs
            if job.state not in LIVE_STATES and not job.parent
        ),
        "what failed has used its attempts": all(
            job.failures > 0 for job in jobs if job.state is JobState.FAILED and not job.quorum_m
        ),
        "every transaction is in one block, in order": txs == sorted(set(txs)),
        "earlier refunds are remembered while they can move": _earlier_reservations(state) == _requeued_counts(state),
    }
    return [
        *broken_invariants(state),
        *(law_ for law_, holds_ in checks.items() if not holds_),
    ]


def _earlier_reservations(state: State) -> dict[bytes, int]:
    """How many reservations of earlier lives a job still has in the books."""
    found = {}
    for job in state.queue.jobs.values():
        if count := sum(reservation_id(job, n) in state.ledger.reservations for n in range(job.requeues)):
            found[bytes(job.id)] = count
    return found


def _requeued_counts(state: State) -> dict[bytes, int]:
    return {bytes(id_): len(events) for id_, events in state.requeued.items()}


def height_below(state: State, by: int) -> Height:
    return Height(max(0, state.chain.head.height - by))
