"""A simulated node with results of every age, for the tests of retention: hot, warm, cold, and a way to die."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import ALICE, YEAR_MS, public
from tests.simulation.world import DEVELOPMENT, SimulatedClock, World, evict_final

from holdfast.adapters.warm_reader import OpenOutput
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import AccountId, Amount, Digest, LeaseId, TaskId, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.policy import Policy, ResultPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.core.result.model import Result
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.lightclient.da import commitment_of
from holdfast.ports import SCAN_END, AgedBlob, scan_position
from holdfast.workers.retention.collector import Collector

ID = provider_id(public(1))
RETAINED = ResultPolicy(
    max_inline_bytes=64, retain_hot_blocks=12, retain_warm_days=1, retain_cold_days=2, result_ttl_blocks=20
)


def policy(**settings: object) -> Policy:
    """A development network with results that are kept for a short time."""
    return msgspec.structs.replace(DEVELOPMENT, result=msgspec.structs.replace(RETAINED, **settings))


class Fuse:
    """Dies at the n-th thing that touches the world."""

    def __init__(self) -> None:
        self.burnt = 0
        self.at: int | None = None

    def __call__(self, *_: object) -> None:
        self.burnt += 1
        if self.at is not None and self.burnt >= self.at:
            raise Unavailable("RET-003", "simulated: killed")


class SimulatedBlobs:
    """The warm tier with a dictionary."""

    def __init__(self, fuse: Fuse) -> None:
        self.held: dict[Digest, bytes] = {}
        self.asked: set[Digest] = set()
        self.since: dict[Digest, int] = {}
        """When bytes were received, in milliseconds, if a test sets it; else long ago."""
        self.fuse = fuse
        self.reads = 0

    async def put_many(self, blobs: Mapping[Digest, bytes]) -> None:
        self.fuse()
        self.held.update(blobs)

    async def mark_sent(self, lease_id: LeaseId, digest: Digest) -> None:
        raise AssertionError("nothing is sent here")

    async def was_sent(self, lease_id: LeaseId, digest: Digest) -> bool:
        return True

    async def size(self, digest: Digest) -> int | None:
        raw = self.held.get(digest)
        return len(raw) if raw is not None else None

    async def is_held(self, digest: Digest) -> bool:
        return digest in self.held

    async def read(self, digest: Digest) -> bytes | None:
        return self.held.get(digest)

    async def open_output(self, digest: Digest) -> OpenOutput | None:
        raw = self.held.get(digest)
        return OpenOutput(len(raw), raw) if raw is not None else None

    async def delete(self, digest: Digest) -> None:
        self.held.pop(digest, None)

    async def receive(self, announced: tuple[Digest, int] | None = None) -> SimulatedUpload:
        self.fuse()
        return SimulatedUpload(self)

    async def verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        self.fuse()
        self.reads += len(digests)
        held = {digest: self.held[digest] for digest in digests if digest in self.held}
        return {digest: len(raw) for digest, raw in held.items() if result_digest(raw) == digest}

    async def find_damaged(self, digests: Sequence[Digest]) -> list[Digest]:
        self.reads += len(digests)
        return [digest for digest in digests if digest in self.held and result_digest(self.held[digest]) != digest]

    async def requested_lately(self, digests: Sequence[Digest]) -> set[Digest]:
        return self.asked.intersection(digests)

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        spared = [digest for digest in digests if digest in self.asked]
        for digest in digests:
            if digest not in spared:
                self.fuse()
                self.held.pop(digest, None)
        return spared

    async def list_aged(self, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
        there = sorted(each for each in self.held if scan_position(each) >= position)
        old = [(each, len(self.held[each])) for each in there[:scan_max] if self.since.get(each, 0) <= before_ms]
        return old, scan_position(there[scan_max]) if len(there) > scan_max else SCAN_END

    async def usage(self) -> int:
        return sum(map(len, self.held.values()))


class SimulatedUpload:
    """Bytes on their way."""

    def __init__(self, blobs: SimulatedBlobs) -> None:
        self._blobs, self._raw = blobs, b""

    async def write(self, part: bytes) -> None:
        self._raw += part

    async def keep(self) -> tuple[Digest, int]:
        self._blobs.held[result_digest(self._raw)] = self._raw
        return result_digest(self._raw), len(self._raw)

    async def drop(self) -> None:
        pass


class SimulatedArchive:
    """An archive that holds the digests it is given."""

    def __init__(self) -> None:
        self.held: set[Digest] = set()

    async def holds(self, digests: Sequence[tuple[Digest, int]]) -> dict[Digest, str]:
        return {digest: f"ar://{digest.hex()[:8]}" for digest, _ in digests if digest in self.held}


class RetentionNode:
    """What outlives the node, the node itself, and its collector."""

    def __init__(self, told: Policy, *, has_archive: bool = True) -> None:
        self.world = World(told)
        self.clock: SimulatedClock = self.world.clock
        self.fuse = Fuse()
        self.blobs = SimulatedBlobs(self.fuse)
        self.archive = SimulatedArchive() if has_archive else None
        self.outputs: dict[TaskId, bytes] = {}
        self._nonce = 0
        self.payload_extra: dict[str, str] = {}
        self.engine: Engine
        self.collector: Collector

    async def open(self) -> None:
        """A new owner, whatever became of the one before it."""
        self.engine = await self.world.started()
        self.collector = Collector(self.engine, self.blobs, self.clock, self.archive)

    async def open_with_provider(self) -> None:
        await self.open()
        await self.prepare_accounts()

    async def prepare_accounts(self) -> None:
        """Alice has money, oak is a provider with a stake."""
        engine = self.engine
        await engine.submit(Mint(some_id(1), ALICE, Amount(1_000_000)))
        await engine.submit(Mint(some_id(2), AccountId("oak"), Amount(20_000)))
        told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 16)
        await engine.submit(Register(public(1), *told, self.clock.wall + YEAR_MS))
        await engine.submit(Stake(ID, Amount(20_000), some_id(3)))
        await self.seal_first()
        await self.heartbeat()

    async def seal_first(self) -> None:
        await self.engine.submit(SEAL)

    async def heartbeat(self) -> None:
        await self.engine.submit(Heartbeat(ID, 16))

    async def kill(self) -> None:
        """The process is killed: nothing is finished or reported."""
        engine = self.engine
        if engine._task is not None:
            engine._task.cancel()
            await asyncio.gather(engine._task, return_exceptions=True)
        await engine.projector.stop()

    async def leased_job(self, output: bytes, caller: AccountId = ALICE) -> tuple[TaskId, Lease]:
        """A job that is leased and whose output the node holds."""
        self._nonce += 1
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, **self.payload_extra}
        command = build_enqueue(self.engine.policy, caller, Tier.FREE, payload, 100, self._nonce)
        assert isinstance(command, Enqueue)
        await self.engine.submit(command)
        task_id = list(self.engine.undurable_state.queue.jobs)[-1]
        await self.engine.submit(Match())
        self.blobs.held[result_digest(output)] = output
        return task_id, self.engine.undurable_state.leases.by_job[task_id]

    def completion(self, task_id: TaskId, lease: Lease, output: bytes) -> SubmitCompletion:
        body = body_of(task_id, lease.id, ID, result_digest(output), len(output), {})
        return SubmitCompletion(lease.id, ID, Envelope(1, "attested", body, b"good"))

    async def resolve(self, output: bytes, *, seals: int = 0, caller: AccountId = ALICE) -> TaskId:
        """A job from its admission to its result; the node holds the bytes."""
        task_id, lease = await self.leased_job(output, caller)
        assert not isinstance(await self.engine.submit(self.completion(task_id, lease, output)), Refused)
        most = self.engine.policy.result.max_inline_bytes
        hot = output if len(output) <= most else None
        pinned = commitment_of(caller.encode(), output) if hot is None else None
        outcome = await self.engine.submit(RecordVerdict(lease.id, True, "", hot, da_commitment=pinned))
        assert isinstance(outcome, Accepted)
        self.outputs[task_id] = output
        await self.seal(seals)
        return task_id

    async def seal(self, times: int = 1) -> None:
        for _ in range(times):
            await self.engine.submit(SEAL)
        await evict_final(self.engine)

    async def archive_all(self) -> None:
        assert self.archive is not None
        self.archive.held |= {result_digest(output) for output in self.outputs.values()}

    async def pass_days(self, days: int) -> None:
        """Time goes by, and blocks are sealed at its end."""
        self.clock.monotonic += days * 24 * 3_600_000
        await self.heartbeat()
        await self.seal(30)

    async def record(self, task_id: TaskId) -> Result:
        found = await queries.result(self.engine, task_id)
        assert found is not None
        return found

    async def bytes_of(self, task_id: TaskId) -> bytes | None:
        """What a reader gets: hot, else warm, else nothing."""
        found = await self.record(task_id)
        return await queries.hot_output(self.engine, found) or await self.blobs.read(found.result_digest)

    @property
    def hot(self) -> set[bytes]:
        """All hot bytes that are really in the store."""
        return set(self.world.disk.attachments.values())
