"""The last owner of the pinned run: another policy, providers that misbehave, results that are deleted."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import public
from tests.golden.working_owner import OwnerRun
from tests.simulation.world import DEVELOPMENT

from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, Digest, EventNo, Height, Kind, TaskId, Tier
from holdfast.core.chain.messages import EvictFinalTxs, FinalizeSettlements, RollBackBlocks
from holdfast.core.escrow.messages import Mint
from holdfast.core.evidence.messages import (
    AssignChannel,
    PruneEvidence,
    RejectedRecord,
    ResolveDeadLetter,
    SealSession,
    StoreEvidence,
)
from holdfast.core.evidence.model import NO_PROVIDER
from holdfast.core.job.model import Job
from holdfast.core.lease.messages import FailLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.policy import (
    ChainPolicy,
    EvidencePolicy,
    MatchPolicy,
    ProviderPolicy,
    ResultPolicy,
    RetryPolicy,
    TtlPolicy,
    UnstakedEvidence,
)
from holdfast.core.policy.limits import check_policy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.messages import RecordVerdict
from holdfast.core.provider.messages import Drain, Heartbeat, MaintainProviders, RotateSigner, SetListing, Unstake
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.queue.purge import PurgedJob, PurgeJobs
from holdfast.core.queue.requeue import Requeue
from holdfast.core.result.messages import Consume
from holdfast.core.result.model import Result
from holdfast.core.retention.decide import retention_watermark
from holdfast.core.retention.messages import (
    ConfirmDeleted,
    DropHot,
    DropWarm,
    EndAudit,
    PageRange,
    Vacuum,
    WarmCandidate,
)
from holdfast.core.retention.model import Pass, Tombstone
from holdfast.core.workflows import seal
from holdfast.core.workflows.finalize import has_evictable_txs, has_pending_settlements

Row = TypeVar("Row", Result, Job)
EVE: Final = AccountId("eve")
ELM, FIR, YEW, HOLLY, OPERATOR = "elm", "fir", "yew", "holly", "operator"
KEYS: Final = {ELM: 21, FIR: 22, YEW: 23, HOLLY: 24}
LEGACY: Final = "an older sender"
SOON: Final = msgspec.structs.replace(
    DEVELOPMENT,
    chain=ChainPolicy(finality_depth=2),
    match=MatchPolicy(requester_window_ms=60_000, requester_window_jobs_max=20),
    retry=RetryPolicy(failures_max=2),
    ttl=TtlPolicy(tombstone_ms=120_000),
    provider=ProviderPolicy(unstake_lock_blocks=1, unstake_cooldown_ms=1_000, jail_minor_blocks=2),
    evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, retain_days=0),
    result=ResultPolicy(
        max_inline_bytes=64, retain_hot_blocks=2, retain_warm_days=1, retain_cold_days=1, may_lose_unarchived=True
    ),
)
"""Blocks are final soon, and everything is deleted soon."""


class LaterOwner(OwnerRun):
    """The owner under the later policy."""

    async def live(self) -> None:
        assert check_policy(SOON) == []
        await self.do(AdoptPolicy(SOON))
        await self.do(MaintainProviders())  # heartbeats that were missed during the outage are credited
        await self.do(PrivilegedCommand("local", "account.mint", Mint(some_id(80), EVE, Amount(50_000))))
        self._ids = {name: await self.register_provider(key, name, "eu") for name, key in KEYS.items()}
        await self._pause()
        await self._finish_and_use()
        await self._fail_and_requeue()
        await self._agree()
        await self._store_and_prune_evidence()
        await self._evict_in_runs()
        await self._change_providers()
        await self._delete_and_purge()

    # ------------------------------------------------------------------------------------ jobs

    async def _pause(self) -> None:
        await self.do(PauseKind(Kind.QUANTUM, "the cooler is serviced"))
        await self.do(ResumeKind(Kind.QUANTUM))

    async def _finish_and_use(self) -> None:
        """A result is consumed, a reorg moves it into the block of its consumption, and it is consumed again."""
        job = await self._enqueue(1)
        await self._submit_and_judge(await self._matched(job), b"what was found")
        height = self._engine.undurable_state.open_height
        await self.do(SEAL)
        await self.do(Consume(job, EVE, Digest(some_id(81))))
        await self.do(PrivilegedCommand("local", "chain.rollBack", RollBackBlocks(Height(height - 1))))
        await self.do(SEAL)
        await self.do(Consume(job, EVE, Digest(some_id(82))))

    async def _fail_and_requeue(self) -> None:
        """A bad proof costs a part of the stake; a job that fails too often is requeued, and then cancelled."""
        job = await self._enqueue(2)
        await self._submit_and_judge(await self._matched(job), b"made up", is_good=False)
        await self._fail(job)
        await self.do(Requeue(job))
        await self.do(CancelJob(job, EVE))

    async def _agree(self) -> None:
        """Two of three replicas agree; of another job one replica fails for good, and then the job is cancelled."""
        job = await self._enqueue(3, {"n": 2, "m": 3})
        await self._heartbeat_and_match()
        for lease, output in zip(self._replicas(job), (b"one", b"two", b"two"), strict=True):
            await self._submit_and_judge(lease, output)
        job = await self._enqueue(4, {"n": 2, "m": 3})
        await self._heartbeat_and_match()
        lost = self._replicas(job)[0].job_id
        await self._fail(lost)
        await self._fail(lost)
        await self.do(CancelJob(job, EVE))

    async def _enqueue(self, nonce: int, quorum: dict[str, int] | None = None) -> TaskId:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        asked = payload if quorum is None else payload | {"quorum": quorum}
        command = build_enqueue(self._engine.policy, EVE, Tier.PRO, asked, 1_000 + nonce, nonce)
        assert isinstance(command, Enqueue), command
        admitted = (await self.do(command)).fact
        return TaskId(admitted.id)  # type: ignore[union-attr]

    async def _matched(self, job: TaskId) -> Lease:
        await self._heartbeat_and_match()
        return self._engine.undurable_state.leases.by_job[job]

    async def _heartbeat_and_match(self) -> None:
        """Wait until every job may be retried and every provider has cooled down, send heartbeats, and match."""
        state, now_ms = self._engine.undurable_state, self._engine.now_ms()
        jobs = [each.not_before_ms for each in state.queue.jobs.values()]
        providers = [each.cooling_until_ms for each in state.providers.values()]
        self.pass_ms(max(0, *(each - now_ms for each in (*jobs, *providers))))
        for id_ in self._ids.values():
            await self.do(Heartbeat(id_, 4))
        await self.do(Match())

    def _replicas(self, job: TaskId) -> list[Lease]:
        jobs = self._engine.undurable_state.queue.jobs
        return [lease for lease in self.leases() if jobs[lease.job_id].parent == job]

    async def _submit_and_judge(self, lease: Lease, output: bytes, *, is_good: bool = True) -> None:
        await self.do(self.submission(lease, output))
        await self.do(RecordVerdict(lease.id, is_good, "as it seems", output if is_good else None))

    async def _fail(self, job: TaskId) -> None:
        lease = self._engine.undurable_state.leases.by_job.get(job) or await self._matched(job)
        await self.do(FailLease(lease.id, lease.provider_id, "broken"))

    # ------------------------------------------------------------------------------------ evidence

    async def _store_and_prune_evidence(self) -> None:
        """A record that is rejected for good is resolved; the session is sealed and pruned."""
        dead = RejectedRecord(2, "command.v1", "no such job", b"{}", 2, Digest(some_id(83)), is_stored=True)
        taken = await self.do(StoreEvidence(NO_PROVIDER, LEGACY, "s1", 1, 2, b"two lines", (dead,)))
        await self.do(ResolveDeadLetter(EventNo(taken.event + 1), "seen"))
        await self.do(AssignChannel(LEGACY, "its certificate"))
        await self.do(SealSession(LEGACY, "s1"))
        await self.do(PruneEvidence(LEGACY, "s1", 2, (taken.event,)))

    # ------------------------------------------------------------------------------------ providers

    async def _change_providers(self) -> None:
        """A provider is drained, rotates its key and unstakes; afterwards heartbeats are missed."""
        holly = self._ids[HOLLY]
        await self.do(SetListing("region:us", "deny", OPERATOR, "a test of lists"))
        await self.do(Drain(holly, True, OPERATOR, "new disks"))
        await self.do(RotateSigner(holly, public(25), HOLLY))
        await self.do(Unstake(holly, Amount(4_000), some_id(84), HOLLY))
        await self.do(SEAL)
        await self.do(SEAL)
        self.pass_ms(SOON.provider.heartbeat_ms + SOON.provider.heartbeat_grace_ms)
        await self.do(MaintainProviders())

    # ------------------------------------------------------------------------------------ retention

    async def _evict_in_runs(self) -> None:
        """Final blocks with more transactions than are evicted at once; the limit is 0 here."""
        at_once, seal.AT_ONCE_MAX = seal.AT_ONCE_MAX, 0  # type: ignore[misc]
        try:
            for _ in range(4):
                await self.do(SEAL)
        finally:
            seal.AT_ONCE_MAX = at_once  # type: ignore[misc]
        state = self._engine.undurable_state
        while has_pending_settlements(state):
            await self.do(FinalizeSettlements(2))
        await self._engine.wait_tables()
        as_of = self._engine.tables_progress.checkpoint.last
        for limit in (1, 1, 1_000):  # as many events as version 0.3 had, which made both steps at once
            await self.do(EvictFinalTxs(as_of, limit))
        assert not has_evictable_txs(state, as_of)

    async def _delete_and_purge(self) -> None:
        """Bytes are deleted from store and disk, records become tombstones, the audit window ends; jobs are purged."""
        results = await self._rows(Result)
        state, last = self._engine.undurable_state, results[-1].event
        pages = PageRange(state.last_event, retention_watermark(state), last)
        await self.do(DropHot(pages, len(results), sum(each.result_size for each in results)))
        await self.do(ConfirmDeleted(Pass.HOT))
        held = tuple(
            WarmCandidate(each.event, each.result_digest, each.result_size, is_archived=False) for each in results
        )
        await self.do(DropWarm(pages, held))
        await self.do(ConfirmDeleted(Pass.WARM))
        stones = (Tombstone(each.event, each.task_id, each.height_resolved, each.leaf_index) for each in results)
        await self.do(Vacuum(pages, tuple(stones)))
        await self.do(EndAudit(last, (last,)))
        ended = [each for each in await self._rows(Job) if each.id not in state.queue.jobs and each.caller == EVE]
        await self.do(PurgeJobs([PurgedJob(each.event, each.id) for each in ended[:2]]))

    async def _rows(self, kind: type[Row]) -> list[Row]:
        await self._engine.wait_tables()
        rows, _ = await self._engine.tables.page(kind.__name__.lower(), {}, 0, 100)
        return [msgspec.convert(row, kind, builtin_types=(bytes,)) for row in rows]
