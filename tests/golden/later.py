"""A later owner's life in a golden journal: another policy, providers that come to grief, results let go of."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from tests.core.blocks import SEAL
from tests.core.books import some_id
from tests.core.ways import public
from tests.golden.work import Lived
from tests.simulated.world import DEVELOPMENT

import holdfast.core.chain.decide as chain_module
from holdfast.core.act import Act
from holdfast.core.adopt import AdoptPolicy
from holdfast.core.chain.acts import Release, RollBack
from holdfast.core.escrow.acts import Mint
from holdfast.core.evidence.letters import Dead, ReleaseLetter
from holdfast.core.evidence.marks import NOBODY, TakeEvidence
from holdfast.core.evidence.sessions import AssignChannel, PruneEvidence, SealSession
from holdfast.core.job.record import Job
from holdfast.core.lease.acts import FailLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.policy import (
    ChainPolicy,
    EvidencePolicy,
    MatchPolicy,
    ProviderPolicy,
    ResultPolicy,
    RetryPolicy,
    TtlPolicy,
    faults,
)
from holdfast.core.proof.acts import Judge
from holdfast.core.provider.acts import Beat, Drain, List, RotateSigner, Tend, Unstake
from holdfast.core.queue.acts import Cancel, Enqueue
from holdfast.core.queue.bury import Bury, Grave
from holdfast.core.queue.decide import prepare
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.core.queue.requeue import Requeue
from holdfast.core.result.acts import Consume
from holdfast.core.result.record import Result
from holdfast.core.retention.acts import DropHot, DropWarm, EndAudit, Held, Lot, Sweep, Vacuum
from holdfast.core.retention.books import Pass, Tombstone
from holdfast.core.retention.decide import watermark
from holdfast.core.values import AccountId, Amount, Digest, EventNo, Height, Kind, TaskId, Tier

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
    evidence=EvidencePolicy(retain_days=0),
    result=ResultPolicy(
        max_inline_bytes=64, retain_hot_blocks=2, retain_warm_days=1, retain_cold_days=1, may_lose_unarchived=True
    ),
)
"""Everything is final, free and forgotten soon."""


class Later(Lived):
    """The later life."""

    async def live(self) -> None:
        assert faults(SOON) == []
        await self.do(AdoptPolicy(SOON))
        await self.do(Tend())  # what nobody could hear while nobody was there is forgiven
        await self.do(Act("local", "account.mint", Mint(some_id(80), EVE, Amount(50_000))))
        self._ids = {name: await self.let_in(key, name, "eu") for name, key in KEYS.items()}
        await self._pause()
        await self._finish_and_use()
        await self._fail_and_put_back()
        await self._agree()
        await self._keep_evidence()
        await self._release_in_lots()
        await self._govern()
        await self._let_go()

    # ------------------------------------------------------------------------------------ jobs

    async def _pause(self) -> None:
        await self.do(PauseKind(Kind.QUANTUM, "the cooler is serviced"))
        await self.do(ResumeKind(Kind.QUANTUM))

    async def _finish_and_use(self) -> None:
        """A result is used, a reorg brings it into the block of its own use, and it is used again."""
        job = await self._enqueue(1)
        await self._hand_in(await self._matched(job), b"what was found")
        height = self._engine.state.open_height
        await self.do(SEAL)
        await self.do(Consume(job, EVE, Digest(some_id(81))))
        await self.do(Act("local", "chain.rollBack", RollBack(Height(height - 1))))
        await self.do(SEAL)
        await self.do(Consume(job, EVE, Digest(some_id(82))))

    async def _fail_and_put_back(self) -> None:
        """A bad proof costs a part of the stake; a job that fails too often is put back, and then not wanted."""
        job = await self._enqueue(2)
        await self._hand_in(await self._matched(job), b"made up", is_good=False)
        await self._fail(job)
        await self.do(Requeue(job))
        await self.do(Cancel(job, EVE))

    async def _agree(self) -> None:
        """Two of three come to the same; of another job one replica fails for good, and then it is not wanted."""
        job = await self._enqueue(3, {"n": 2, "m": 3})
        await self._meet()
        for lease, output in zip(self._replicas(job), (b"one", b"two", b"two"), strict=True):
            await self._hand_in(lease, output)
        job = await self._enqueue(4, {"n": 2, "m": 3})
        await self._meet()
        lost = self._replicas(job)[0].job_id
        await self._fail(lost)
        await self._fail(lost)
        await self.do(Cancel(job, EVE))

    async def _enqueue(self, nonce: int, quorum: dict[str, int] | None = None) -> TaskId:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        asked = payload if quorum is None else payload | {"quorum": quorum}
        command = prepare(self._engine.policy, EVE, Tier.PRO, asked, 1_000 + nonce, nonce)
        assert isinstance(command, Enqueue), command
        admitted = (await self.do(command)).fact
        return TaskId(admitted.id)  # type: ignore[union-attr]

    async def _matched(self, job: TaskId) -> Lease:
        await self._meet()
        return self._engine.state.leases.by_job[job]

    async def _meet(self) -> None:
        """When every job may be tried again and every provider is rested, let out and heard."""
        state, now_ms = self._engine.state, self._engine.now_ms()
        jobs = [each.not_before_ms for each in state.queue.jobs.values()]
        providers = [each.cooling_until_ms for each in state.providers.values()]
        self.pass_ms(max(0, *(each - now_ms for each in (*jobs, *providers))))
        for id_ in self._ids.values():
            await self.do(Beat(id_, 4))
        await self.do(Match())

    def _replicas(self, job: TaskId) -> list[Lease]:
        jobs = self._engine.state.queue.jobs
        return [lease for lease in self.leases() if jobs[lease.job_id].parent == job]

    async def _hand_in(self, lease: Lease, output: bytes, *, is_good: bool = True) -> None:
        await self.do(self.submission(lease, output))
        await self.do(Judge(lease.id, is_good, "as it seems", output if is_good else None))

    async def _fail(self, job: TaskId) -> None:
        lease = self._engine.state.leases.by_job.get(job) or await self._matched(job)
        await self.do(FailLease(lease.id, lease.provider_id, "broken"))

    # ------------------------------------------------------------------------------------ evidence

    async def _keep_evidence(self) -> None:
        """A record that is refused for good is dealt with; the session is sealed and let go of."""
        dead = Dead(2, "command.v1", "no such job", b"{}", 2, Digest(some_id(83)), is_stored=True)
        taken = await self.do(TakeEvidence(NOBODY, LEGACY, "s1", 1, 2, b"two lines", (dead,)))
        await self.do(ReleaseLetter(EventNo(taken.event + 1), "seen"))
        await self.do(AssignChannel(LEGACY, "its certificate"))
        await self.do(SealSession(LEGACY, "s1"))
        await self.do(PruneEvidence(LEGACY, "s1", 2, (taken.event,)))

    # ------------------------------------------------------------------------------------ providers

    async def _govern(self) -> None:
        """Two of them change, by the operator and by themselves; one is not heard any more."""
        holly = self._ids[HOLLY]
        await self.do(List("region:us", "deny", OPERATOR, "a test of lists"))
        await self.do(Drain(holly, True, OPERATOR, "new disks"))
        await self.do(RotateSigner(holly, public(25), HOLLY))
        await self.do(Unstake(holly, Amount(4_000), some_id(84), HOLLY))
        await self.do(SEAL)
        await self.do(SEAL)
        self.pass_ms(SOON.provider.heartbeat_ms + SOON.provider.heartbeat_grace_ms)
        await self.do(Tend())

    # ------------------------------------------------------------------------------------ letting go

    async def _release_in_lots(self) -> None:
        """Blocks with more in them than is let go of at once; here that is anything."""
        at_once, chain_module.AT_ONCE_MAX = chain_module.AT_ONCE_MAX, 0  # type: ignore[misc]
        try:
            for _ in range(4):
                await self.do(SEAL)
        finally:
            chain_module.AT_ONCE_MAX = at_once  # type: ignore[misc]
        while chain_module.is_releasing(self._engine.state):
            await self.do(Release(2))

    async def _let_go(self) -> None:
        """Bytes leave the store and the disk, records become tombstones, and these end; so do jobs."""
        results = await self._rows(Result)
        state, last = self._engine.state, results[-1].event
        lot = Lot(state.last_event, watermark(state), last)
        await self.do(DropHot(lot, len(results), sum(each.result_size for each in results)))
        await self.do(Sweep(Pass.HOT))
        held = tuple(Held(each.event, each.result_digest, each.result_size, is_archived=False) for each in results)
        await self.do(DropWarm(lot, held))
        await self.do(Sweep(Pass.WARM))
        stones = (Tombstone(each.event, each.task_id, each.height_resolved, each.leaf_index) for each in results)
        await self.do(Vacuum(lot, tuple(stones)))
        await self.do(EndAudit(last, (last,)))
        ended = [each for each in await self._rows(Job) if each.id not in state.queue.jobs and each.caller == EVE]
        await self.do(Bury([Grave(each.event, each.id) for each in ended[:2]]))

    async def _rows(self, kind: type[Row]) -> list[Row]:
        await self._engine.projector.drain()
        rows, _ = await self._engine.tables.page(kind.__name__.lower(), {}, 0, 100)
        return [msgspec.convert(row, kind, builtin_types=(bytes,)) for row in rows]
