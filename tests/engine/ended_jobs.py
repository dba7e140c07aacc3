"""An owner with a job that has ended and left memory, for tests of what the tables still know."""

from __future__ import annotations

from tests.core.blocks import SEAL
from tests.core.commands import enqueue_command, some_id
from tests.simulation.world import World, evict_final

from holdfast.core.base.values import AccountId, Amount, EventNo
from holdfast.core.escrow.messages import Mint
from holdfast.core.queue.messages import CancelJob, JobAdmitted
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted


async def cancelled_job(world: World, caller: AccountId) -> tuple[Engine, EventNo, JobAdmitted]:
    """The owner, and the job's admission with the number of its event."""
    engine = await world.started()
    await engine.submit(Mint(some_id(1), caller, Amount(100)))
    admitted = await engine.submit(enqueue_command(1, policy=world.policy))
    assert isinstance(admitted, Accepted)
    assert isinstance(admitted.fact, JobAdmitted)
    await engine.submit(CancelJob(admitted.fact.id))
    await engine.submit(SEAL)
    await evict_final(engine)
    return engine, admitted.event, admitted.fact
