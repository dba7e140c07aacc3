"""The working life in a golden journal: keys, providers, jobs with every end, blocks sealed and taken back."""

from __future__ import annotations

from typing import Final

from tests.core.blocks import SEAL
from tests.core.books import some_id
from tests.core.ways import YEAR_MS, public
from tests.simulated.world import World

from holdfast.core.act import Act
from holdfast.core.canon import canonical
from holdfast.core.chain.acts import RollBack
from holdfast.core.clock import NoteTime
from holdfast.core.escrow.acts import Mint
from holdfast.core.evidence.marks import TakeEvidence
from holdfast.core.job.record import JobState
from holdfast.core.key import MakeKey, RevokeKey, Role, RotateKey, secret_hash
from holdfast.core.law import Command
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, Reap, RenewLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import ProviderStatus, provider_id
from holdfast.core.queue.acts import Cancel, Enqueue, RaiseFee
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.values import AccountId, Amount, Height, KeyId, ProviderId, TaskId, Tier
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

DORA: Final = AccountId("dora")
KEYS: Final = (7, 8, 9)
"""Three providers: one says two things about one lease, one hands in a bad proof, one is left."""


class Lived:
    """One owner's life, step by step: what is needed for every step."""

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine

    async def do(self, command: Command) -> Accepted:
        outcome = await self._engine.submit(command)
        assert not isinstance(outcome, Refused), (command, outcome)
        return outcome

    def pass_ms(self, ms: int) -> None:
        self._world.clock.monotonic += ms

    def leases(self) -> list[Lease]:
        """Those that live and were not handed in."""
        return [each for each in self._engine.state.leases.by_id.values() if each.submitted is None]

    def submission(self, lease: Lease, output: bytes) -> Submit:
        body = body_of(lease.job_id, lease.id, lease.provider_id, result_digest(output), len(output), {"ms": 5})
        return Submit(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64))

    async def let_in(self, key: int, name: str, region: str) -> ProviderId:
        """A provider with money of its own, that is active from the start."""
        account = AccountId(name)
        await self.do(Act("local", "account.mint", Mint(some_id(90 + key), account, Amount(50_000))))
        told = (name, account, canonical({"AI": {"models": ["echo"]}}), region, 2, 4)
        await self.do(Register(public(key), *told, self._engine.now_ms() + YEAR_MS))
        id_ = provider_id(public(key))
        await self.do(Stake(id_, Amount(10_000), some_id(190 + key)))
        await self.do(Beat(id_, 4))
        return id_


class Worked(Lived):
    """The working life."""

    async def live(self) -> None:
        await self._let_in()
        jobs = [await self._enqueue(nonce, "echo " * (1_500 if nonce == 5 else 1)) for nonce in range(9)]
        await self.do(RaiseFee(jobs[1], Amount(150)))
        await self.do(SEAL)
        await self.do(Match())
        await self._finish_one()
        await self._lose_some()
        await self.do(Cancel(jobs[8], DORA))
        await self.do(SEAL)
        await self.do(SEAL)
        await self.do(Act("local", "chain.rollBack", RollBack(Height(1))))
        await self.do(SEAL)
        await self._fail_for_good()
        self.pass_ms(2 * 24 * 3_600_000)
        await self.do(Reap())
        await self.do(SEAL)

    async def _let_in(self) -> None:
        await self.do(Act("local", "account.mint", Mint(some_id(90), DORA, Amount(50_000))))
        key = KeyId("00" * 8)
        made = MakeKey(key, secret_hash(b"first"), Role.REQUESTER, DORA, Tier.PRO, ("cap.*",), "dora's")
        await self.do(Act("local", "key.make", made))
        await self.do(Act("local", "key.rotate", RotateKey(key, secret_hash(b"second"), 1_000)))
        await self.do(Act("local", "key.revoke", RevokeKey(key)))
        for number, name in zip(KEYS, ("oak", "ash", "lime"), strict=True):
            await self.let_in(number, name, "eu")

    async def _enqueue(self, nonce: int, prompt: str) -> TaskId:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}, "units": 2}
        command = prepare(self._engine.policy, DORA, Tier.PRO, payload, 100 + nonce, nonce, b"key %d" % nonce)
        assert isinstance(command, Enqueue)
        await self.do(command)
        return next(reversed(self._engine.state.queue.jobs))

    async def _finish_one(self) -> None:
        lease = self.leases()[0]
        holder = lease.provider_id
        await self.do(AckLease(lease.id, holder))
        await self.do(RenewLease(lease.id, holder, 1))
        await self.do(NoteTime())
        await self.do(TakeEvidence(holder, holder.hex(), "one", 1, 3, b"three lines"))
        await self.do(self.submission(lease, b"out"))
        await self.do(self.submission(lease, b"something else"))  # equivocation is noted, and paid for
        await self.do(Judge(lease.id, True, "as the rules say"))

    async def _lose_some(self) -> None:
        declined, refused, *_ = self.leases()
        await self.do(DeclineLease(declined.id, declined.provider_id))
        await self.do(self.submission(refused, b"bad"))
        await self.do(Judge(refused.id, False))
        await self.do(Match())

    async def _fail_for_good(self) -> None:
        """By whoever is still trusted with work; those that fail too often in a row must rest."""
        state = self._engine.state
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
                await self.do(Beat(provider_id(public(key)), 100))
            await self.do(Match())

    def _is_active(self, id_: ProviderId) -> bool:
        return self._engine.state.providers[id_].status is ProviderStatus.ACTIVE
