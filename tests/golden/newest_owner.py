"""The newest owner of the repeatable run: kinds of events that version 0.3, with which the run is compared, has not."""

from __future__ import annotations

from typing import Final

from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.golden.working_owner import OwnerRun

from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, Height, Tier
from holdfast.core.chain.messages import ContinueRollback, RollBackBlocks
from holdfast.core.escrow.messages import Mint
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue, JobAdmitted

FAY: Final = AccountId("fay")


class NewestOwner(OwnerRun):
    """The last owner of the run."""

    async def live(self) -> None:
        await self.do(PrivilegedCommand("local", "account.mint", Mint(some_id(70), FAY, Amount(1_000))))
        await self._roll_back_in_steps()

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
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        command = build_enqueue(self._engine.policy, FAY, Tier.FREE, payload, 10, nonce)
        assert isinstance(command, Enqueue)
        admitted = (await self.do(command)).fact
        assert isinstance(admitted, JobAdmitted)
        await self.do(CancelJob(admitted.id, FAY))
