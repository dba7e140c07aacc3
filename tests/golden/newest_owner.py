"""The newest owner of the repeatable run: kinds of events that version 0.3, with which the run is compared, has not."""

from __future__ import annotations

from typing import Final

import msgspec
from tests.core.archive.notices import address_of, notice_of
from tests.core.blob.blobs import next_blob
from tests.core.blocks import PROPOSER, SEAL, verify
from tests.core.commands import some_id
from tests.core.core_driver import public
from tests.golden.working_owner import OwnerRun

from holdfast.core.archive.messages import (
    VERIFIED,
    AcceptNotice,
    ConfirmNotice,
    IntendUpload,
    PruneBlobs,
    RecallBlobs,
    RecordUploadFailure,
    ReportLost,
    RetryUploads,
)
from holdfast.core.archive.notice import notice_root
from holdfast.core.base.canonical import canonical
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, Height, KeyId, TaskId, Tier
from holdfast.core.chain.messages import ContinueRollback, FinalizeSettlements, RollBackBlocks
from holdfast.core.chain.model import final_height
from holdfast.core.escrow.messages import Deposit, Mint, ReturnWithdrawal, Withdraw
from holdfast.core.escrow.model import TransferKind
from holdfast.core.key.messages import CreateKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.lease.messages import FailLease
from holdfast.core.match.input_claims import JudgeInputClaims
from holdfast.core.match.messages import Match
from holdfast.core.provider.invitations import INVITATION_MS, invitation_digest
from holdfast.core.provider.messages import Heartbeat, InviteProvider, Register
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue, JobAdmitted
from holdfast.core.schedule.cron import MINUTE_MS
from holdfast.core.schedule.messages import (
    CreateSchedule,
    FireSchedule,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
)
from holdfast.core.validator.messages import AddValidator, RemoveValidator, SucceedProposer
from holdfast.engine import queries

FAY: Final = AccountId("fay")


class NewestOwner(OwnerRun):
    """The last owner of the run."""

    async def live(self) -> None:
        await self.do(PrivilegedCommand("local", "account.mint", Mint(some_id(70), FAY, Amount(1_000))))
        await self._roll_back_in_steps()
        await self._move_money()
        await self._archive()
        await self._call_an_input_invalid()
        await self._invite()
        await self._change_validators()
        await self._spend_with_a_key()
        await self._fire_schedules()

    async def _fire_schedules(self) -> None:
        """One schedule has its only run and is removed; the job of another is refused; it stays, with a timed job."""
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        for name, fee, runs in (("once", 10, 1), ("dear", 1_000_000, None)):
            await self.do(CreateSchedule(FAY, name, Tier.FREE, canonical(payload), fee, "* * * * *", runs=runs))
        self.pass_ms(MINUTE_MS)
        schedules = self._engine.undurable_state.schedules
        for schedule in list(schedules.due_until(self._engine.now_ms())):
            await self.do(FireSchedule(schedule.id, schedule.next_ms))
        once, dear = schedules.by_id
        await self.do(PauseSchedule(dear, FAY))
        await self.do(ResumeSchedule(dear, FAY))
        await self.do(RemoveSchedule(once, FAY))
        at_ms = self._engine.now_ms() + MINUTE_MS
        timed = build_enqueue(self._engine.policy, FAY, Tier.FREE, payload, 10, 100, not_before_ms=at_ms)
        assert isinstance(timed, Enqueue)
        await self.do(timed)

    async def _spend_with_a_key(self) -> None:
        """A job of a key that may spend so much in a day."""
        key = CreateKey(KeyId("07" * 8), secret_hash(b"s" * 32), Role.REQUESTER, FAY, daily_cap=15)
        await self.do(PrivilegedCommand("local", "key.createKey", key))
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        command = build_enqueue(self._engine.policy, FAY, Tier.FREE, payload, 10, 99)
        assert isinstance(command, Enqueue)
        await self.do(msgspec.structs.replace(command, key=key.id))

    async def _invite(self) -> None:
        """A provider without a stake uses an operator's invitation."""
        expires_ms = self._engine.now_ms() + INVITATION_MS
        digest = invitation_digest(some_id(71), expires_ms)
        await self.do(PrivilegedCommand("local", "provider.invite", InviteProvider(digest, expires_ms, "local")))
        told = ("ash", FAY, canonical({"AI": {"models": ["echo"]}}), "eu", 3, 4, expires_ms)
        command = Register(public(19), *told, invitation=digest, invitation_expires_ms=expires_ms)
        await self.do(command)

    async def _call_an_input_invalid(self) -> None:
        """One of two providers calls an input invalid; the other one could still try it, so the job waits."""
        providers = [await self.register_provider(key, name, "eu") for key, name in ((17, "elm"), (18, "fir"))]
        await self._enqueue(9)
        await self.do(Match())
        lease = next(lease for lease in self.leases() if lease.provider_id in providers)
        await self.do(FailLease(lease.id, lease.provider_id, "INVALID_INPUT: line 3"))
        self.pass_ms(self._engine.policy.admission.input_claim_ms)
        for provider in providers:
            await self.do(Heartbeat(provider, 4))
        await self.do(JudgeInputClaims())

    async def _archive(self) -> None:
        """A blob is added, sealed and final; its upload fails, is retried, succeeds, is lost, and succeeds again."""
        await self.do(next_blob(self._engine.undurable_state, 1))
        await self.do(SEAL)
        height = self._engine.undurable_state.chain.head.height
        while final_height(self._engine.undurable_state) < height:
            await self.do(SEAL)
        await self.do(IntendUpload(height, 0, PROPOSER, "file", "item"))
        await self.do(RecordUploadFailure(height, 0, "away"))
        await self.do(RetryUploads())
        notice = AcceptNotice(notice_of(self._engine.undurable_state, height), verify, address_of, VERIFIED)
        await self.do(notice)
        await self.do(ReportLost(height, 0, "gone"))
        await self.do(notice)
        await self.do(PruneBlobs(height))

    async def _change_validators(self) -> None:
        """A second validator joins, confirms a notice, takes over and leaves; what was pruned is recalled as lost."""
        other = public(20)
        await self.do(AddValidator(other))
        await self.do(next_blob(self._engine.undurable_state, 2))
        await self.do(SEAL)
        height = self._engine.undurable_state.chain.head.height
        while final_height(self._engine.undurable_state) < height:
            await self.do(SEAL)
        notice = notice_of(self._engine.undurable_state, height)
        await self.do(AcceptNotice(notice, verify, address_of, VERIFIED))
        await self.do(ConfirmNotice(height, 0, notice_root(notice), other, bytes(64), lambda *_: True))
        await self.do(SucceedProposer(other))
        await self.do(RemoveValidator(other))
        await self.do(PruneBlobs(height))
        lives = tuple(self._engine.undurable_state.blob_heights[height])
        await self.do(RecallBlobs(lives, (0,), "gone", are_here=False))
        await self.do(SEAL)

    async def _move_money(self) -> None:
        """A deposit, a withdrawal that becomes payable and is returned, and one that waits at the end of the run."""
        await self.do(Deposit("wire-1", FAY, Amount(50), "an invoice"))
        await self.do(Withdraw("out-1", FAY, Amount(20), "a payout"))
        while "out-1" in self._engine.undurable_state.ledger.withdrawals:
            await self.do(SEAL)
            await self.do(FinalizeSettlements())
        transfer = await queries.transfer(self._engine, "out-1", TransferKind.WITHDRAWAL)
        await self.do(ReturnWithdrawal("out-1", "the bank refused it", transfer))
        await self.do(Withdraw("out-2", FAY, Amount(5), "a payout"))

    async def _roll_back_in_steps(self) -> None:
        """Two blocks are rolled back; between two steps a job is admitted."""
        height = self._engine.undurable_state.chain.head.height
        for nonce in range(2):
            await self._enqueue_and_cancel(nonce)
            await self.do(SEAL)
        command = RollBackBlocks(Height(height), at_once_max=0)
        await self.do(PrivilegedCommand("local", "chain.rollBack", command))
        await self.do(ContinueRollback(2))
        await self._enqueue_and_cancel(2)
        while self._engine.undurable_state.chain.rollback is not None:
            await self.do(ContinueRollback(2))
        await self.do(SEAL)

    async def _enqueue_and_cancel(self, nonce: int) -> None:
        await self.do(CancelJob(await self._enqueue(nonce), FAY))

    async def _enqueue(self, nonce: int) -> TaskId:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        command = build_enqueue(self._engine.policy, FAY, Tier.FREE, payload, 10, nonce)
        assert isinstance(command, Enqueue)
        admitted = (await self.do(command)).fact
        assert isinstance(admitted, JobAdmitted)
        return admitted.id
