"""Whatever happens to a queue, in whichever order: its laws hold after every step, and its journal tells all of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.core_driver import ALICE
from tests.core.fleet import completion_envelope, enqueue_job
from tests.core.journaled_core import JournaledCore, height_below, violated_invariants
from tests.counts import counts

from holdfast.core.base.event import Command
from holdfast.core.base.values import Amount, Kind, TaskId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import AckLease, DeclineLease, ExpireDue, FailLease, RenewLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.policy import PriorityPolicy, QuotaPolicy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import ChangeStatus, Heartbeat, MaintainProviders
from holdfast.core.provider.model import ProviderTransition
from holdfast.core.queue.messages import CancelJob, RaiseFee
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.queue.requeue import Requeue

picks = st.integers(0, 30)
JUMPS_MS = (1, 499, 5_000, 60_000, 600_000, 7 * 3_600_000)


class QueueMachine(RuleBasedStateMachine):
    """One owner, three providers, one requester with little money, and all that can go wrong between them."""

    @initialize()
    def begin(self) -> None:
        self.core, self.nonce = self.new_core(), 0

    def new_core(self) -> JournaledCore:
        return JournaledCore()

    # ------------------------------------------------------------------------------------ work

    @rule(kind=st.sampled_from(["AI", "QUANTUM"]), units=st.integers(1, 6), fee=st.integers(1, 300))
    def enqueue(self, kind: str, units: int, fee: int) -> None:
        account = self.core.state.ledger.accounts[ALICE]
        if account.available >= fee:
            self.nonce += 1
            enqueue_job(self.core, self.nonce, kind, units, fee)

    @rule()
    def tick(self) -> None:
        self.core.ask(Match())

    @rule(kinds=st.lists(st.sampled_from(["AI", "QUANTUM"]), min_size=1, max_size=4), units=st.integers(1, 5))
    def be_busy(self, kinds: list[str], units: int) -> None:
        """Everybody is there, and there is work for all."""
        self.heartbeat()
        for kind in Kind:
            self.core.ask(ResumeKind(kind))
        for kind_ in kinds:
            self.enqueue(kind_, units, 10)
        self.tick()

    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        self.complete(pick, b"a")
        self.record_verdict(pick, True)

    @rule(pick=picks)
    def exhaust(self, pick: int) -> None:
        """Fail one job for good, if there is somebody to fail it."""
        if (job := self._job(pick)) is None:
            return
        for _ in range(self.core.state.policy.retry.failures_max):
            found = self.core.state.queue.jobs[job]
            self.core.now_ms = max(self.core.now_ms, found.not_before_ms)
            self.be_busy([], 1)
            if (lease := self.core.state.leases.by_job.get(job)) is not None:
                self.core.ask(FailLease(lease.id, lease.provider_id))

    @rule(times=st.integers(1, 2))
    def seal(self, times: int) -> None:
        self.core.seal(times)

    @rule()
    def let_blocks_pass(self) -> None:
        """More than a result may take (TTL-001)."""
        self.core.seal(self.core.state.policy.result.result_ttl_blocks + 1)
        self.reap_all()

    @rule(pick=picks)
    def ack(self, pick: int) -> None:
        self._on_lease(pick, lambda lease: AckLease(lease.id, lease.provider_id))

    @rule(pick=picks, ahead=st.integers(0, 2))
    def renew(self, pick: int, ahead: int) -> None:
        self._on_lease(pick, lambda lease: RenewLease(lease.id, lease.provider_id, lease.renewals + ahead))

    @rule(pick=picks)
    def decline(self, pick: int) -> None:
        self._on_lease(pick, lambda lease: DeclineLease(lease.id, lease.provider_id))

    @rule(pick=picks)
    def fail(self, pick: int) -> None:
        self._on_lease(pick, lambda lease: FailLease(lease.id, lease.provider_id))

    @rule(pick=picks, output=st.sampled_from([b"a", b"b"]))
    def complete(self, pick: int, output: bytes) -> None:
        """Of a lease that was submitted already, with another output, this is equivocation (RCV-002)."""
        if (lease := self._lease(pick)) is not None:
            self.core.ask(
                SubmitCompletion(lease.id, lease.provider_id, completion_envelope(self.core, lease.job_id, output))
            )

    @rule(pick=picks, output=st.sampled_from([b"a", b"late"]))
    def keep_late_completion(self, pick: int, output: bytes) -> None:
        if (lease := self._lease(pick)) is not None:
            self.core.keep_ended_lease(lease, output)

    @rule(pick=picks)
    @precondition(lambda self: self.core.ended_leases)
    def complete_late(self, pick: int) -> None:
        lost = self.core.ended_leases[pick % len(self.core.ended_leases)]
        self.core.ask(SubmitCompletion(lost.lease.id, lost.lease.provider_id, lost.envelope))

    @rule(pick=picks, is_good=st.sampled_from([True, True, True, False]))
    def record_verdict(self, pick: int, is_good: bool) -> None:
        waiting = list(self.core.state.submissions)
        if waiting:
            self.core.ask(RecordVerdict(waiting[pick % len(waiting)], is_good))

    # ------------------------------------------------------------------------------------ people

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        if (job := self._job(pick)) is not None:
            self.core.ask(CancelJob(job))

    @rule(pick=picks, more=st.integers(0, 50))
    def raise_fee(self, pick: int, more: int) -> None:
        if (job := self._job(pick)) is not None:
            self.core.ask(RaiseFee(job, Amount(self.core.state.queue.jobs[job].max_fee + more)))

    @rule(pick=picks)
    def requeue(self, pick: int) -> None:
        failed = [job.id for job in self.core.state.queue.jobs.values() if job.state is JobState.FAILED]
        if failed:
            self.core.ask(Requeue(failed[pick % len(failed)]))

    @rule(
        pick=picks,
        act=st.sampled_from(
            [ProviderTransition.JAIL, ProviderTransition.UNJAIL, ProviderTransition.SUSPEND, ProviderTransition.RECOVER]
        ),
    )
    def change_provider_status(self, pick: int, act: ProviderTransition) -> None:
        """Two of the three: somebody is always there."""
        providers = list(self.core.state.providers)
        self.core.ask(ChangeStatus(providers[pick % 2], act, "operator"))

    @rule()
    def heartbeat(self) -> None:
        for id_ in self.core.state.providers:
            self.core.ask(Heartbeat(id_, 5))
        self.core.ask(MaintainProviders())

    @rule(kind=st.sampled_from(list(Kind)))
    def pause(self, kind: Kind) -> None:
        self.core.ask(PauseKind(kind, "to see"))

    @rule(leases=st.integers(1, 4), ai=st.integers(2, 20), quantum=st.integers(2, 20))
    def change_quota(self, leases: int, ai: int, quantum: int) -> None:
        told = QuotaPolicy(leases_per_provider_max=leases, ai_units_per_epoch=ai, quantum_units_per_epoch=quantum)
        self.core.do(AdoptPolicy(msgspec.structs.replace(self.core.state.policy, quota=told)))

    @rule(w_fee=st.integers(0, 900), w_age=st.integers(1, 300), blocks=st.integers(2, 5))
    def change_policy(self, w_fee: int, w_age: int, blocks: int) -> None:
        policy = self.core.state.policy
        chain = msgspec.structs.replace(policy.chain, epoch_blocks=blocks)
        told = msgspec.structs.replace(policy, priority=PriorityPolicy(w_fee=w_fee, w_age=w_age), chain=chain)
        self.core.do(AdoptPolicy(told))

    # ------------------------------------------------------------------------------------ the world

    @rule(jump=st.sampled_from(JUMPS_MS), limit=st.integers(1, 4))
    def wait(self, jump: int, limit: int) -> None:
        self.core.now_ms += jump
        self.core.ask(ExpireDue(limit))

    @rule()
    def reap_all(self) -> None:
        while self.core.do(ExpireDue()):
            pass

    @rule(by=st.integers(1, 4))
    def roll_back(self, by: int) -> None:
        self.core.ask(RollBackBlocks(height_below(self.core.state, by)))

    @rule()
    def store(self) -> None:
        self.core.store()

    @rule(outage_ms=st.sampled_from([0, 1_000, 90_000]), from_snapshot=st.booleans())
    def crash(self, outage_ms: int, from_snapshot: bool) -> None:
        self.core.crash(outage_ms, from_snapshot=from_snapshot)

    # ------------------------------------------------------------------------------------ what always holds

    @invariant()
    def invariants_hold(self) -> None:
        if hasattr(self, "core"):
            assert violated_invariants(self.core) == []

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.core.close()

    def _lease(self, pick: int) -> Lease | None:
        live = list(self.core.state.leases.by_id.values())
        return live[pick % len(live)] if live else None

    def _on_lease(self, pick: int, make: Callable[[Lease], Command]) -> None:
        if (lease := self._lease(pick)) is not None:
            self.core.ask(make(lease))

    def _job(self, pick: int) -> TaskId | None:
        jobs = list(self.core.state.queue.jobs)
        return jobs[pick % len(jobs)] if jobs else None


QueueMachine.TestCase.settings = settings(
    max_examples=counts(120, 1_000), stateful_step_count=counts(60, 100), deadline=None
)


@pytest.mark.rule(
    "LEA-002", "QUO-001", "RTY-001", "RCV-001", "RCV-002", "ESC-001", "ENG-003", "PRI-003", "LEA-007", "MAT-006"
)
class TestQueue(QueueMachine.TestCase):  # type: ignore[misc, valid-type]
    """The machine, as pytest finds it."""
