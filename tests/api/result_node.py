"""A simulated node with results in every state, for whoever asks after them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import ALICE, YEAR_MS, public
from tests.simulation.world import DEVELOPMENT, World

from holdfast.api.node_access import NodeAccess
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, Height, TaskId, Tier
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.model import JobState
from holdfast.core.match.messages import Match
from holdfast.core.policy import Policy, ResultPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import CancelJob, Enqueue
from holdfast.core.result import result_digest
from holdfast.engine.loop import Engine

ID = provider_id(public(1))
SERVING = msgspec.structs.replace(DEVELOPMENT, result=ResultPolicy(max_inline_bytes=0))


class EmptyBlobs:
    """A warm tier that has let everything go."""

    async def read(self, _: bytes) -> bytes | None:
        return None

    async def open_output(self, _: bytes) -> None:
        return None


class ResultNode:
    """An owner, and jobs brought where a test wants them."""

    def __init__(self, world: World, engine: Engine) -> None:
        self.world, self.engine = world, engine
        self.access = NodeAccess(engine, engine.submit)
        self.access.blobs = EmptyBlobs()  # type: ignore[assignment]
        self._nonces = 0

    async def do(self, command: object) -> None:
        outcome = await self.engine.submit(command)  # type: ignore[arg-type]
        assert not isinstance(outcome, Refused), outcome

    async def prepare(self) -> None:
        await self.do(Mint(some_id(1), ALICE, Amount(1_000_000)))
        await self.do(Mint(some_id(2), AccountId("oak"), Amount(10_000)))
        told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 16)
        await self.do(Register(public(1), *told, self.world.clock.wall + YEAR_MS))
        await self.do(Stake(ID, Amount(10_000), some_id(3)))
        await self.do(Heartbeat(ID, 16))
        await self.seal()

    async def seal(self, times: int = 1) -> None:
        for _ in range(times):
            await self.do(SEAL)

    async def roll_back(self, height: int) -> None:
        await self.do(RollBackBlocks(Height(height)))

    async def pending(self) -> TaskId:
        """Taken in, and nobody has done it."""
        self._nonces += 1
        await self.do(self.request(self._nonces))
        return list(self.engine.undurable_state.queue.jobs)[-1]

    def request(self, nonce: int) -> Enqueue:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
        command = build_enqueue(self.engine.policy, ALICE, Tier.FREE, payload, 100, nonce)
        assert isinstance(command, Enqueue)
        return command

    async def cancelled(self) -> TaskId:
        job = await self.pending()
        await self.do(CancelJob(job))
        return job

    async def ended(self, state: JobState) -> TaskId:
        """A job that ended this way without a result."""
        job = await self.cancelled()
        self.engine.undurable_state.queue.jobs[job].state = state
        return job

    async def submission(self, output: bytes = b"out") -> tuple[TaskId, SubmitCompletion]:
        """A job that is leased, and what its provider would hand in."""
        job = await self.pending()
        await self.do(Match())
        return job, self.proof(job, output)

    def proof(self, job: TaskId, output: bytes = b"out", media_type: str = "") -> SubmitCompletion:
        """What the provider that holds the job hands in."""
        lease = self.engine.undurable_state.leases.by_job[job]
        body = body_of(job, lease.id, ID, result_digest(output), len(output), {}, media_type)
        return SubmitCompletion(lease.id, ID, Envelope(1, "attested", body, b"s" * 64))

    async def resolved(self, output: bytes = b"out") -> TaskId:
        """In the open block."""
        job, submission = await self.submission(output)
        await self.finish(submission)
        return job

    async def finish(self, submission: SubmitCompletion) -> None:
        await self.do(submission)
        await self.do(RecordVerdict(submission.lease_id, True, "as the test says"))

    async def verdict_with_output(self, submission: SubmitCompletion, output: bytes) -> None:
        """Accepted, with the bytes for the hot store."""
        await self.do(RecordVerdict(submission.lease_id, True, "as the test says", output))

    async def readable(self, output: bytes = b"out") -> TaskId:
        job = await self.resolved(output)
        await self.seal()
        return job

    async def refused(self) -> TaskId:
        job, submission = await self.submission()
        await self.do(submission)
        await self.do(RecordVerdict(submission.lease_id, False, "it is wrong"))
        return job


@asynccontextmanager
async def result_node(policy: Policy = SERVING) -> AsyncIterator[ResultNode]:
    """Stopped when the test is done."""
    world = World(policy)
    engine = await world.started()
    made = ResultNode(world, engine)
    try:
        await made.prepare()
        yield made
    finally:
        await engine.stop()
