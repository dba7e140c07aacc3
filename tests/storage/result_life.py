"""A node for tests of results: an owner on some store, a warm store, and a collector that can be disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tests.api.rpc.rpc_callers import ALICE as ALICE_HERE
from tests.api.rpc.rpc_callers import RpcNode
from tests.core.blocks import SEAL, verify
from tests.core.core_driver import ALICE, CoreDriver
from tests.core.fleet import LENIENT, completion_envelope, enqueue_job, join_provider
from tests.core.result.result_model import ModelResult, ResultModel
from tests.simulation.world import DEVELOPMENT, SimulatedClock, SimulatedFiles, stop_engine
from tests.storage.stores import OpenJournal, OpenTables
from tests.workers.retention.retention_node import Fuse, SimulatedArchive, SimulatedBlobs

from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.api.http.v1.open_output import open_output
from holdfast.api.node_access import LOCAL, NodeAccess
from holdfast.api.rpc.methods.results import readable_output
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Digest, Height, LeaseId, TaskId, Tier
from holdfast.core.chain.messages import EvictFinalTxs, FinalizeSettlements, RollBackBlocks
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.policy import ChainPolicy, ResultPolicy, RetryPolicy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.result import result_digest
from holdfast.core.retention.model import Pass, pass_position
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.core.workflows.finalize import has_evictable_txs, has_pending_settlements
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.check import check
from holdfast.history.full_journal import FullJournal
from holdfast.history.replay import ReplayReport, replay
from holdfast.lightclient.da import commitment_of
from holdfast.ports import Blobs
from holdfast.workers.retention.collector import Collector

T = TypeVar("T")
DEPTH, HOT_BLOCKS, INLINE_BYTES, WARM_DAYS = 4, 5, 16, 1
SHORT = msgspec.structs.replace(
    DEVELOPMENT,
    chain=ChainPolicy(finality_depth=DEPTH),
    retry=RetryPolicy(failures_max=2),
    provider=msgspec.structs.replace(
        LENIENT, slash_severe_ppm=10_000, jail_minor_blocks=0, jail_major_blocks=0, jail_severe_blocks=0
    ),
    result=ResultPolicy(
        max_inline_bytes=INLINE_BYTES,
        retain_hot_blocks=HOT_BLOCKS,
        retain_warm_days=WARM_DAYS,
        retain_cold_days=2,
        result_ttl_blocks=100,
        gc_rows_max=3,
    ),
)
"""Everything is final, old and cold soon; who offends is fined, but stays."""


class Killed(Exception):
    """The process is gone at this very place."""


class DisturbedEngine:
    """The engine as the collector sees it, where something else happens before or after one of its commands."""

    def __init__(self, engine: Engine, at: int, before: Callable[[], Awaitable[None]] | None, *, dies: bool) -> None:
        self._engine, self._left, self._before, self._dies = engine, at, before, dies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def submit(self, command: Command) -> Any:
        self._left -= 1
        if self._left == 0 and self._before is not None:
            await self._before()
        outcome = await self._engine.submit(command)
        if self._left == 0 and self._dies:
            raise Killed
        return outcome


class ResultLife(CoreDriver):
    """Between two steps nothing is in flight; a model beside it records every request and its answer."""

    def __init__(self, journal: OpenJournal, tables: OpenTables, folder: Path) -> None:
        self._open, self._clock, self._files = (journal, tables), SimulatedClock(), SimulatedFiles()
        self._folder, self.cold = folder / "warm", SimulatedArchive()
        self._loop = asyncio.new_event_loop()
        self.model = ResultModel(DEPTH, HOT_BLOCKS, INLINE_BYTES, WARM_DAYS)
        self._heights: dict[TaskId, int] = {}
        self._said: dict[LeaseId, SubmitCompletion] = {}
        """The first submission of each lease."""
        self.proofs: dict[TaskId, SubmitCompletion] = {}
        """Those that were accepted."""
        self._start()
        super().__init__(self.engine.undurable_state)
        self.ask(AdoptPolicy(SHORT))
        self.funded(amount=3_000)
        for number in (1, 2):
            join_provider(self, number, slots=5)

    # ------------------------------------------------------------------------------------ the node

    @property
    def state(self) -> State:
        return self.engine.undurable_state

    @state.setter
    def state(self, _: State) -> None:
        """It is the engine's."""

    @property
    def now_ms(self) -> int:
        return self.engine.now_ms()

    @now_ms.setter
    def now_ms(self, at_ms: int) -> None:
        self._clock.monotonic += max(0, at_ms - self.engine.now_ms())

    def _start(self) -> None:
        journal, tables = self._open
        self.engine = Engine(journal(), tables(), self._files, self._clock, SHORT)
        self.run(self.engine.start())
        self.blobs = self.new_blobs()
        self.desk = NodeAccess(self.engine, self.engine.submit)
        self.desk.blobs = self.blobs

    def new_blobs(self) -> Blobs:
        """The warm tier as a new owner finds it."""
        return WarmStore(self._folder)

    def holds(self, digest_: Digest) -> bool:
        """Whether the disk has these bytes, whatever the node says."""
        return path_of(self._folder, digest_).exists()

    def forget(self, digest_: Digest) -> None:
        path_of(self._folder, digest_).unlink(missing_ok=True)

    def ask(self, command: Command) -> tuple[Event, ...] | Refused:
        return self.run(self._ask(command))

    async def _ask(self, command: Command) -> tuple[Event, ...] | Refused:
        outcome = await self.engine.submit(command)
        if isinstance(outcome, Refused):
            return outcome
        return () if outcome.is_repeat or outcome.fact is None else (outcome.fact,)

    def store(self) -> None:
        self.run(snapshot_files.make(self._files, self.engine.journal, SHORT))

    def crash(self, outage_ms: int, *, from_snapshot: bool) -> None:
        """ENG-003: the fold of the journal equals the live state, whatever was evicted meanwhile."""
        before = digest(self.state)
        self.run(self._die())
        if not from_snapshot:
            self._files.files.clear()
        self._clock.wall, self._clock.monotonic = self._clock.wall + outage_ms, 0
        assert digest(self.run(self._found())) == before
        self._start()

    async def _die(self) -> None:
        engine = self.engine
        assert engine._task is not None
        engine._task.cancel()
        await asyncio.gather(engine._task, return_exceptions=True)
        await engine.projector.stop()
        await engine.tables.close()
        await engine.journal.close()

    async def _found(self) -> State:
        journal, tables = self._open[0](), self._open[1]()
        try:
            await journal.acquire()
            return (await recover(journal, tables, self._files, SHORT)).state
        finally:
            await tables.close()
            await journal.close()

    def close(self) -> None:
        """The end: everything that is stored agrees, and the blocks computed anew are those that were lived."""
        self.crash(0, from_snapshot=True)
        head = self.state.chain.head
        self.run(stop_engine(self.engine))
        bad, again = self.run(self._checked())
        self._loop.close()
        assert bad == []
        assert isinstance(again, ReplayReport)
        assert (again.height, again.hash) == (head.height, head.hash)

    async def _checked(self) -> tuple[list[str], ReplayReport | Refused]:
        journal, tables = self._open[0](), self._open[1]()
        try:
            whole = FullJournal(journal, SimulatedFiles())
            found = await check(whole, tables, self._files, SHORT)
            return [each.message for each in found if not each.is_good], await replay(whole, SHORT, verify)
        finally:
            await tables.close()
            await journal.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    # ------------------------------------------------------------------------------------ steps

    def enqueued(self, nonce: int, fee: int) -> TaskId:
        height = self.state.open_height
        task = enqueue_job(self, nonce, max_fee=fee)
        self._heights[task] = height
        return task

    async def submit_output(self, lease: Lease, output: bytes, *, asks: bool = False) -> bool:
        """RCV-001: the bytes are uploaded before the completion is submitted; whether it was accepted."""
        incoming = await self.blobs.receive()
        await incoming.write(output)
        await incoming.keep()
        if asks:
            await self.blobs.size(result_digest(output))
        submission = SubmitCompletion(lease.id, lease.provider_id, completion_envelope(self, lease.job_id, output))
        if isinstance(await self._ask(submission), Refused):
            return False
        self._said.setdefault(lease.id, submission)
        return True

    async def give_verdict(self, lease: Lease, *, is_good: bool = True) -> None:
        """The verdict as a verifier gives it, with the bytes where they are kept hot, pinned where they are large."""
        if lease.submitted is None or lease.id not in self.state.submissions:
            return
        output = await self.blobs.read(lease.submitted) if is_good else None
        if is_good and output is None:
            return  # a disk has lost them: nobody can judge
        hot = output if output is not None and len(output) <= INLINE_BYTES else None
        pinned = commitment_of(ALICE.encode(), output) if output is not None and hot is None else None
        job, (digest_, price) = self.state.queue.jobs[lease.job_id], (lease.submitted, lease.price)
        outcome = await self.engine.submit(RecordVerdict(lease.id, is_good, "", hot, da_commitment=pinned))
        assert not isinstance(outcome, Refused), outcome
        if is_good:
            result = self.state.results[job.id]
            assert output is not None
            assert (result.result_digest, result_digest(output)) == (digest_, digest_)
            charged = min(job.max_fee, job.units * price)
            told = (output, digest_, result.proof_nullifier, charged, self._heights[job.id] + 1)
            self.proofs[job.id] = self._said[lease.id]
            self.model.accept(job.id, ModelResult(result.event, *told))

    async def finish(self, nonce: int, output: bytes) -> None:
        """A job from enqueue to verdict, if a provider is free."""
        height = self.state.open_height
        await self.engine.submit(self._request(nonce))
        task = list(self.state.queue.jobs)[-1]
        self._heights[task] = height
        await self.engine.submit(Match())
        lease = self.state.leases.by_job.get(task)
        if lease is not None and await self.submit_output(lease, output):
            await self.give_verdict(lease)

    def _request(self, nonce: int) -> Any:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
        return build_enqueue(self.state.policy, ALICE, Tier.FREE, payload, 10, nonce)

    async def seal_one(self) -> None:
        await self.engine.submit(SEAL)
        self.model.seal(self.state.chain.head.time_ms)
        while has_pending_settlements(self.state):
            await self.engine.submit(FinalizeSettlements())
        while has_evictable_txs(self.state, as_of := self.engine.tables_progress.checkpoint.last):
            await self.engine.submit(EvictFinalTxs(as_of))

    async def roll_back(self, to: int) -> None:
        head = self.model.open_height - 1
        outcome = await self.engine.submit(RollBackBlocks(Height(to)))
        assert isinstance(outcome, Refused) == (to < self.model.final), (outcome, to)
        if not isinstance(outcome, Refused) and to < head:
            self.model.roll_back(to)

    def late(self, submission: SubmitCompletion) -> str:
        """The node's answer to a proof for a lease that has ended."""
        outcome = self.run(self.engine.submit(submission))
        return outcome.name if isinstance(outcome, Refused) else "repeat" if outcome.is_repeat else "taken"

    def collect(self, passes: tuple[Pass, ...], at: int = 0, before: Any = None, *, dies: bool = False) -> bool:
        """Whether it lived; what happens beside it happens before its command `at`, death after it."""
        engine: Any = DisturbedEngine(self.engine, at, before, dies=dies)
        collector = Collector(engine, self.blobs, self._clock, self.cold)
        try:
            self.run(collector.run_passes(passes))
        except Killed:
            return False
        return True

    def archive(self) -> None:
        """An archive gets all bytes that the disk holds."""
        held = {done.digest for done in self.model.results.values() if self.holds(done.digest)}
        self.cold.held |= held
        self.model.archived |= held

    def lose(self, task: TaskId) -> None:
        """The disk loses the bytes of a result."""
        done = self.model.results[task]
        dropped = pass_position(self.state, Pass.HOT)
        hot = {
            id_
            for id_, each in self.model.results.items()
            if len(each.output) <= INLINE_BYTES and (each.event > dropped or each.event in self.state.skipped_hot)
        }
        self.forget(done.digest)
        self.model.lose(done.digest, hot)

    # ------------------------------------------------------------------------------------ what one is told

    def knows(self, key: bytes) -> bool:
        """ENG-005: in memory, or in the tables."""
        return self.state.claims.is_known(key) or key in self.run(self.engine.tables.find_claims([key])).claims

    def rpc_outcome(self, method: str, task: TaskId, **more: object) -> tuple[str, Any]:
        """The name of what stands against it, or nothing and the answer."""
        node = RpcNode(None, self.desk)  # type: ignore[arg-type]
        said = self.run(node.raw(ALICE_HERE, method, task_id=task.hex(), **more))
        return (said["error"]["data"]["name"], None) if "error" in said else ("", said["result"])

    def output_of(self, task: TaskId) -> tuple[str, bytes]:
        """The name of what stands against reading its bytes, or nothing and the bytes."""

        async def read() -> tuple[str, bytes]:
            result = await readable_output(self.desk, LOCAL, task)
            output = result if isinstance(result, Refused) else await open_output(self.desk, LOCAL, result)
            if isinstance(output, Refused):
                return output.name, b""
            try:
                return "", await output.read(0, output.size)
            finally:
                await output.close()

        return self.run(read())


class InMemoryResultLife(ResultLife):
    """The same with a disk in memory: hundreds of lives in the time of a few."""

    def __init__(self, journal: OpenJournal, tables: OpenTables, folder: Path) -> None:
        self._disk = dict[Digest, bytes]()
        super().__init__(journal, tables, folder)

    def new_blobs(self) -> Blobs:
        made = SimulatedBlobs(Fuse())
        made.held = self._disk
        return made

    def holds(self, digest_: Digest) -> bool:
        return digest_ in self._disk

    def forget(self, digest_: Digest) -> None:
        self._disk.pop(digest_, None)
