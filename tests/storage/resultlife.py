"""A node that is lived in for its results: an owner on some store, a warm folder, a collector that can be disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tests.core.blocks import SEAL, verify
from tests.core.fleet import PATIENT, asked_for, joined, sent
from tests.core.resultmodel import Done, Model
from tests.core.ways import ALICE, Way
from tests.doors.visitors import ALICE as ALICE_HERE
from tests.doors.visitors import Node
from tests.duties.retained import Fuse, SimulatedBlobs, SimulatedCold
from tests.simulated.world import DEVELOPMENT, SimulatedClock, SimulatedFiles, ended
from tests.storage.stores import OpenJournal, OpenTables

from holdfast.adapters.warm import WarmFolder, place_of
from holdfast.core import law
from holdfast.core.adopt import AdoptPolicy
from holdfast.core.chain.acts import Release, RollBack
from holdfast.core.chain.decide import is_releasing
from holdfast.core.da import commitment_of
from holdfast.core.event import Event
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.policy import ChainPolicy, ResultPolicy, RetryPolicy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.retention.books import Pass, until
from holdfast.core.state import State, digest
from holdfast.core.values import Digest, Height, LeaseId, TaskId, Tier
from holdfast.doors.desk import Desk
from holdfast.duties.collector import Collector
from holdfast.engine import snapshot
from holdfast.engine.check import check
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.engine.replay import Replayed, replay
from holdfast.ports import Blobs

T = TypeVar("T")
DEPTH, HOT_BLOCKS, INLINE_BYTES, WARM_DAYS = 4, 5, 16, 1
SHORT = msgspec.structs.replace(
    DEVELOPMENT,
    chain=ChainPolicy(finality_depth=DEPTH),
    retry=RetryPolicy(failures_max=2),
    provider=msgspec.structs.replace(
        PATIENT, slash_severe_ppm=10_000, jail_minor_blocks=0, jail_major_blocks=0, jail_severe_blocks=0
    ),
    result=ResultPolicy(
        max_inline_bytes=INLINE_BYTES,
        retain_hot_blocks=HOT_BLOCKS,
        retain_warm_days=WARM_DAYS,
        retain_cold_days=2,
        serve_bytes=True,
        collect_rows_max=3,
    ),
)
"""Everything is final, old and cold soon; who offends is fined, but stays."""


class Killed(Exception):
    """The process is gone at this very place."""


class Disturbed:
    """The engine as the collector sees it, where something else happens before or after one of its commands."""

    def __init__(self, engine: Engine, at: int, before: Callable[[], Awaitable[None]] | None, *, dies: bool) -> None:
        self._engine, self._left, self._before, self._dies = engine, at, before, dies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def submit(self, command: law.Command) -> Any:
        self._left -= 1
        if self._left == 0 and self._before is not None:
            await self._before()
        outcome = await self._engine.submit(command)
        if self._left == 0 and self._dies:
            raise Killed
        return outcome


class ResultLife(Way):
    """Between two steps nothing is in flight; the model beside it is told what was asked for and what was answered."""

    def __init__(self, journal: OpenJournal, tables: OpenTables, folder: Path) -> None:
        self._open, self._clock, self._files = (journal, tables), SimulatedClock(), SimulatedFiles()
        self._folder, self.cold = folder / "warm", SimulatedCold()
        self._loop = asyncio.new_event_loop()
        self.model = Model(DEPTH, HOT_BLOCKS, INLINE_BYTES, WARM_DAYS)
        self._heights: dict[TaskId, int] = {}
        self._said: dict[LeaseId, Submit] = {}
        """What was handed in for each lease the first time."""
        self.proofs: dict[TaskId, Submit] = {}
        """Those that were accepted."""
        self._start()
        super().__init__(self.engine.state)
        self.ask(AdoptPolicy(SHORT))
        self.funded(amount=3_000)
        for number in (1, 2):
            joined(self, number, slots=5)

    # ------------------------------------------------------------------------------------ the node

    @property
    def state(self) -> State:
        return self.engine.state

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
        self.desk = Desk(self.engine, self.engine.submit)
        self.desk.blobs = self.blobs

    def new_blobs(self) -> Blobs:
        """The warm tier as a new owner finds it."""
        return WarmFolder(self._folder)

    def holds(self, digest_: Digest) -> bool:
        """Whether the disk has these bytes, whatever the node says."""
        return place_of(self._folder, digest_).exists()

    def forget(self, digest_: Digest) -> None:
        place_of(self._folder, digest_).unlink(missing_ok=True)

    def ask(self, command: law.Command) -> tuple[Event, ...] | Refused:
        return self.run(self._ask(command))

    async def _ask(self, command: law.Command) -> tuple[Event, ...] | Refused:
        outcome = await self.engine.submit(command)
        if isinstance(outcome, Refused):
            return outcome
        return () if outcome.is_repeat or outcome.fact is None else (outcome.fact,)

    def store(self) -> None:
        self.run(snapshot.make(self._files, self.engine.journal, SHORT))

    def crash(self, outage_ms: int, *, from_snapshot: bool) -> None:
        """ENG-003: the fold of the journal is the state that was lived, whatever was let go meanwhile."""
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
            await journal.own()
            return (await recover(journal, tables, self._files, SHORT)).state
        finally:
            await tables.close()
            await journal.close()

    def close(self) -> None:
        """The end: everything that is stored agrees, and the blocks computed anew are those that were lived."""
        self.crash(0, from_snapshot=True)
        head = self.state.chain.head
        self.run(ended(self.engine))
        bad, again = self.run(self._checked())
        self._loop.close()
        assert bad == []
        assert isinstance(again, Replayed)
        assert (again.height, again.hash) == (head.height, head.hash)

    async def _checked(self) -> tuple[list[str], Replayed | Refused]:
        journal, tables = self._open[0](), self._open[1]()
        try:
            whole = LongJournal(journal, SimulatedFiles())
            found = await check(whole, tables, self._files, SHORT)
            return [each.says for each in found if not each.is_good], await replay(whole, SHORT, verify)
        finally:
            await tables.close()
            await journal.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    # ------------------------------------------------------------------------------------ steps

    def enqueued(self, nonce: int, fee: int) -> TaskId:
        height = self.state.open_height
        task = asked_for(self, nonce, max_fee=fee)
        self._heights[task] = height
        return task

    async def hand_in(self, lease: Lease, output: bytes, *, asks: bool = False) -> bool:
        """RCV-001: the node holds the bytes, then it is told; whether it took them."""
        incoming = await self.blobs.receive()
        await incoming.write(output)
        await incoming.keep()
        if asks:
            await self.blobs.size(result_digest(output))
        submission = Submit(lease.id, lease.provider_id, sent(self, lease.job_id, output))
        if isinstance(await self._ask(submission), Refused):
            return False
        self._said.setdefault(lease.id, submission)
        return True

    async def judged(self, lease: Lease, *, is_good: bool = True) -> None:
        """The verdict as a verifier gives it, with the bytes where they are kept hot, pinned where they are large."""
        if lease.submitted is None or lease.id not in self.state.submissions:
            return
        output = await self.blobs.read(lease.submitted) if is_good else None
        if is_good and output is None:
            return  # a disk has lost them: nobody can judge
        hot = output if output is not None and len(output) <= INLINE_BYTES else None
        pinned = commitment_of(ALICE.encode(), output) if output is not None and hot is None else None
        job, (digest_, price) = self.state.queue.jobs[lease.job_id], (lease.submitted, lease.price)
        outcome = await self.engine.submit(Judge(lease.id, is_good, "", hot, da_commitment=pinned))
        assert not isinstance(outcome, Refused), outcome
        if is_good:
            result = self.state.results[job.id]
            assert output is not None
            assert (result.result_digest, result_digest(output)) == (digest_, digest_)
            charged = min(job.max_fee, job.units * price)
            told = (output, digest_, result.proof_nullifier, charged, self._heights[job.id] + 1)
            self.proofs[job.id] = self._said[lease.id]
            self.model.accept(job.id, Done(result.event, *told))

    async def finish(self, nonce: int, output: bytes) -> None:
        """A whole life at once, where somebody is free."""
        height = self.state.open_height
        await self.engine.submit(self._request(nonce))
        task = next(reversed(self.state.queue.jobs))
        self._heights[task] = height
        await self.engine.submit(Match())
        lease = self.state.leases.by_job.get(task)
        if lease is not None and await self.hand_in(lease, output):
            await self.judged(lease)

    def _request(self, nonce: int) -> Any:
        payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
        return prepare(self.state.policy, ALICE, Tier.FREE, payload, 10, nonce)

    async def seal_one(self) -> None:
        await self.engine.submit(SEAL)
        self.model.seal(self.state.chain.head.time_ms)
        while is_releasing(self.state):
            await self.engine.submit(Release())

    async def go_back(self, to: int) -> None:
        head = self.model.open_height - 1
        outcome = await self.engine.submit(RollBack(Height(to)))
        assert isinstance(outcome, Refused) == (to < self.model.final), (outcome, to)
        if not isinstance(outcome, Refused) and to < head:
            self.model.roll_back(to)

    def late(self, submission: Submit) -> str:
        """What the node says to a proof for a lease that is over."""
        outcome = self.run(self.engine.submit(submission))
        return outcome.name if isinstance(outcome, Refused) else "repeat" if outcome.is_repeat else "taken"

    def collect(self, passes: tuple[Pass, ...], at: int = 0, before: Any = None, *, dies: bool = False) -> bool:
        """Whether it lived; what happens beside it happens before its command `at`, death after it."""
        engine: Any = Disturbed(self.engine, at, before, dies=dies)
        collector = Collector(engine, self.blobs, self._clock, self.cold)
        try:
            self.run(collector.look(passes))
        except Killed:
            return False
        return True

    def archive(self) -> None:
        """An archive gets all bytes that the disk holds."""
        held = {done.digest for done in self.model.done.values() if self.holds(done.digest)}
        self.cold.held |= held
        self.model.archived |= held

    def lose(self, task: TaskId) -> None:
        """The disk loses the bytes of a result."""
        done = self.model.done[task]
        dropped = until(self.state, Pass.HOT)
        hot = {
            id_
            for id_, each in self.model.done.items()
            if len(each.output) <= INLINE_BYTES and (each.event > dropped or each.event in self.state.kept_hot)
        }
        self.forget(done.digest)
        self.model.lose(done.digest, hot)

    # ------------------------------------------------------------------------------------ what one is told

    def knows(self, key: bytes) -> bool:
        """ENG-005: in memory, or in the tables."""
        return self.state.claims.knows(key) or self.run(self.engine.tables.find_claim(key)) is not None

    def told(self, method: str, task: TaskId, **more: object) -> tuple[str, Any]:
        """The name of what stands against it, or nothing and the answer."""
        node = Node(None, self.desk)  # type: ignore[arg-type]
        said = self.run(node.raw(ALICE_HERE, method, task_id=task.hex(), **more))
        return (said["error"]["data"]["name"], None) if "error" in said else ("", said["result"])


class QuickLife(ResultLife):
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
