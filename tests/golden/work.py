"""The working life in a golden journal: keys, providers, jobs with every end, blocks sealed and taken back."""

from __future__ import annotations

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
from holdfast.core.key import MakeKey, RevokeKey, Role, RotateKey, secret_hash
from holdfast.core.law import Command
from holdfast.core.lease.acts import AckLease, DeclineLease, FailLease, Reap, RenewLease
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Cancel, Enqueue, RaiseFee
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.values import AccountId, Amount, Height, KeyId, TaskId, Tier
from holdfast.engine.loop import Engine

DORA, OAK = AccountId("dora"), AccountId("oak")
ID = provider_id(public(7))


class Worked:
    """One owner's life, step by step."""

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine

    async def do(self, command: Command) -> None:
        outcome = await self._engine.submit(command)
        assert not isinstance(outcome, Refused), (command, outcome)

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
        self._world.clock.monotonic += 2 * 24 * 3_600_000
        await self.do(Reap())
        await self.do(SEAL)

    async def _let_in(self) -> None:
        for number, owner in ((90, DORA), (91, OAK)):
            await self.do(Act("local", "account.mint", Mint(some_id(number), owner, Amount(50_000))))
        key = KeyId("00" * 8)
        made = MakeKey(key, secret_hash(b"first"), Role.REQUESTER, DORA, Tier.PRO, ("cap.*",), "dora's")
        await self.do(Act("local", "key.make", made))
        await self.do(Act("local", "key.rotate", RotateKey(key, secret_hash(b"second"), 1_000)))
        await self.do(Act("local", "key.revoke", RevokeKey(key)))
        told = ("oak", OAK, canonical({"AI": {"models": ["echo"]}}), "eu", 2, 4)
        await self.do(Register(public(7), *told, self._engine.now_ms() + YEAR_MS))
        await self.do(Stake(ID, Amount(10_000), some_id(92)))
        await self.do(Beat(ID, 4))

    async def _enqueue(self, nonce: int, prompt: str) -> TaskId:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}, "units": 2}
        command = prepare(self._engine.policy, DORA, Tier.PRO, payload, 100 + nonce, nonce, b"key %d" % nonce)
        assert isinstance(command, Enqueue)
        await self.do(command)
        return next(reversed(self._engine.state.queue.jobs))

    async def _finish_one(self) -> None:
        lease = self._leases()[0]
        await self.do(AckLease(lease.id, ID))
        await self.do(RenewLease(lease.id, ID, 1))
        await self.do(NoteTime())
        await self.do(TakeEvidence(ID, ID.hex(), "one", 1, 3, b"three lines"))
        await self.do(self._submission(lease, b"out"))
        await self.do(self._submission(lease, b"something else"))  # equivocation is noted
        await self.do(Judge(lease.id, True, "as the rules say"))

    async def _lose_some(self) -> None:
        declined, refused, *_ = self._leases()
        await self.do(DeclineLease(declined.id, ID))
        await self.do(self._submission(refused, b"bad"))
        await self.do(Judge(refused.id, False))
        await self.do(Match())

    async def _fail_for_good(self) -> None:
        job = self._leases()[0].job_id
        for _ in range(6):
            lease = self._engine.state.leases.by_job[job]
            await self.do(FailLease(lease.id, ID, "broken"))
            found = self._engine.state.queue.jobs[job]
            self._world.clock.monotonic += max(0, found.not_before_ms - self._engine.now_ms())
            await self.do(Beat(ID, 100))
            if job not in self._engine.state.leases.by_job and found.failures < 6:
                await self.do(Match())

    def _leases(self) -> list[Lease]:
        return [each for each in self._engine.state.leases.by_id.values() if each.submitted is None]

    def _submission(self, lease: Lease, output: bytes) -> Submit:
        body = body_of(lease.job_id, lease.id, ID, result_digest(output), len(output), {"ms": 5})
        return Submit(lease.id, ID, Envelope(1, "attested", body, b"s" * 64))
