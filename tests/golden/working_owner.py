"""The working owner of the pinned run: keys, providers, jobs with every end, blocks sealed and rolled back."""

from __future__ import annotations

from typing import Final

from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import YEAR_MS, public
from tests.simulation.world import World

from holdfast.core.base.canonical import canonical
from holdfast.core.base.clock_record import RecordTime
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, Height, KeyId, ProviderId, TaskId, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.messages import Mint
from holdfast.core.evidence.messages import StoreEvidence
from holdfast.core.job.model import JobState
from holdfast.core.key.messages import CreateKey, RevokeKey, RotateKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.lease.messages import AckLease, DeclineLease, ExpireDue, FailLease, RenewLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import ProviderStatus, provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue, RaiseFee
from holdfast.core.result import result_digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

DORA: Final = AccountId("dora")
KEYS: Final = (7, 8, 9)
"""Three providers: one equivocates, one submits a bad proof, one stays good."""


class OwnerRun:
    """What every owner needs to run its commands step by step."""

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine

    async def live(self) -> None:
        raise NotImplementedError

    async def do(self, command: Command) -> Accepted:
        outcome = await self._engine.submit(command)
        assert not isinstance(outcome, Refused), (command, outcome)
        return outcome

    def pass_ms(self, ms: int) -> None:
        self._world.clock.monotonic += ms

    def leases(self) -> list[Lease]:
        """Live leases without a submission."""
        return [each for each in self._engine.undurable_state.leases.by_id.values() if each.submitted is None]

    def submission(self, lease: Lease, output: bytes) -> SubmitCompletion:
        body = body_of(lease.job_id, lease.id, lease.provider_id, result_digest(output), len(output), {"ms": 5})
        return SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64))

    async def register_provider(self, key: int, name: str, region: str) -> ProviderId:
        """A provider with money of its own, active from the start."""
        account = AccountId(name)
        await self.do(PrivilegedCommand("local", "account.mint", Mint(some_id(90 + key), account, Amount(50_000))))
        told = (name, account, canonical({"AI": {"models": ["echo"]}}), region, 2, 4)
        await self.do(Register(public(key), *told, self._engine.now_ms() + YEAR_MS))
        id_ = provider_id(public(key))
        await self.do(Stake(id_, Amount(10_000), some_id(190 + key)))
        await self.do(Heartbeat(id_, 4))
        return id_


class WorkingOwner(OwnerRun):
    """The owner during whose term jobs are worked on."""

    async def live(self) -> None:
        await self._set_up()
        jobs = [await self._enqueue(nonce, "echo " * (1_500 if nonce == 5 else 1)) for nonce in range(9)]
        await self.do(RaiseFee(jobs[1], Amount(150)))
        await self.do(SEAL)
        await self.do(Match())
        await self._finish_one()
        await self._lose_some()
        await self.do(CancelJob(jobs[8], DORA))
        await self.do(SEAL)
        await self.do(SEAL)
        await self.do(PrivilegedCommand("local", "chain.rollBack", RollBackBlocks(Height(1))))
        await self.do(SEAL)
        await self._fail_for_good()
        self.pass_ms(2 * 24 * 3_600_000)
        await self.do(ExpireDue())
        await self.do(SEAL)

    async def _set_up(self) -> None:
        await self.do(PrivilegedCommand("local", "account.mint", Mint(some_id(90), DORA, Amount(50_000))))
        key = KeyId("00" * 8)
        made = CreateKey(key, secret_hash(b"first"), Role.REQUESTER, DORA, Tier.PRO, ("cap.*",), "dora's")
        await self.do(PrivilegedCommand("local", "key.make", made))
        await self.do(PrivilegedCommand("local", "key.rotate", RotateKey(key, secret_hash(b"second"), 1_000)))
        await self.do(PrivilegedCommand("local", "key.revoke", RevokeKey(key)))
        for number, name in zip(KEYS, ("oak", "ash", "lime"), strict=True):
            await self.register_provider(number, name, "eu")

    async def _enqueue(self, nonce: int, prompt: str) -> TaskId:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}, "units": 2}
        command = build_enqueue(self._engine.policy, DORA, Tier.PRO, payload, 100 + nonce, nonce, b"key %d" % nonce)
        assert isinstance(command, Enqueue)
        await self.do(command)
        return list(self._engine.undurable_state.queue.jobs)[-1]

    async def _finish_one(self) -> None:
        lease = self.leases()[0]
        holder = lease.provider_id
        await self.do(AckLease(lease.id, holder))
        await self.do(RenewLease(lease.id, holder, 1))
        await self.do(RecordTime())
        await self.do(StoreEvidence(holder, holder.hex(), "one", 1, 3, b"three lines"))
        await self.do(self.submission(lease, b"out"))
        await self.do(self.submission(lease, b"something else"))  # equivocation is recorded and slashed
        await self.do(RecordVerdict(lease.id, True, "as the rules say"))

    async def _lose_some(self) -> None:
        declined, refused, *_ = self.leases()
        await self.do(DeclineLease(declined.id, declined.provider_id))
        await self.do(self.submission(refused, b"bad"))
        await self.do(RecordVerdict(refused.id, False))
        await self.do(Match())

    async def _fail_for_good(self) -> None:
        """Fail a job of an active provider until it is FAILED; providers cool down in between."""
        state = self._engine.undurable_state
        job = next(each.job_id for each in self.leases() if self._is_active(each.provider_id))
        while True:
            lease = state.leases.by_job[job]
            await self.do(FailLease(lease.id, lease.provider_id, "broken"))
            found = state.queue.jobs[job]
            if found.state is JobState.FAILED:
                return
            rested_ms = max(each.cooling_until_ms for each in state.providers.values())
            self.pass_ms(max(0, found.not_before_ms - self._engine.now_ms(), rested_ms - self._engine.now_ms()))
            for key in KEYS:
                await self.do(Heartbeat(provider_id(public(key)), 100))
            await self.do(Match())

    def _is_active(self, id_: ProviderId) -> bool:
        return self._engine.undurable_state.providers[id_].status is ProviderStatus.ACTIVE
