"""Two dispatchers race for one queue on PostgreSQL: no job is assigned twice, whichever is paused, cut or replaced."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest
from tests.counts import counts
from tests.postgres.server import Address, Server
from tests.simulation.world import SimulatedFiles, stop_engine
from tests.storage.competing_owners import ALICE, BRISK, CompetingOwner, set_up

from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.core import journal_codec
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import Batch, JournalHead, OwnershipTaken, check_follows, head_of
from holdfast.core.base.values import BatchNo, LeaseId, TaskId, Tier
from holdfast.core.lease.messages import JobAssigned, LeaseClosed
from holdfast.core.proof.messages import ProofAccepted
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, JobAdmitted
from holdfast.engine.outcome import Accepted
from holdfast.history.audit import AuditReport, audit
from holdfast.history.full_journal import FullJournal

REQUESTERS: Final = 48
AHEAD_MAX: Final = 400
"""Jobs that wait at a time: the race needs a queue that is never empty and longer than one tick."""
STILL_S: Final = 60.0
"""When nothing has happened for so long, nothing will."""


class Race:
    """The two, the jobs that are asked for, and what is done to both meanwhile."""

    def __init__(self, address: Address, admin: Any, jobs: int) -> None:
        self.owners = [CompetingOwner("one", address), CompetingOwner("two", address)]
        self._admin, self._random = admin, Random(11)
        self._waiting = iter(range(jobs))
        self.jobs = jobs
        self.confirmed: set[int] = set()
        self.held: list[Batch] = []
        """What a paused owner was about to write when another took its place."""
        self.done = 0

    async def run(self, disturbances: int) -> None:
        lives = [asyncio.create_task(rival.live()) for rival in self.owners]
        try:
            await self._until(lambda: any(rival.is_owner for rival in self.owners))
            await set_up((await self._owner()).engine, self.jobs)
            requesters = [asyncio.create_task(self._request()) for _ in range(REQUESTERS)]
            for turn in range(1, disturbances + 1):
                await self._until(lambda at=self.jobs * turn // (disturbances + 1): self._progress() >= at)  # type: ignore[misc]
                await self._disturb(turn)
                assert not any(task.done() for task in lives)
            await asyncio.gather(*requesters)
            await self._until(lambda: self._progress() == self.jobs)
        finally:
            for rival, life in zip(self.owners, lives, strict=True):
                rival.gate.open()  # who stands there cannot end
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
            for rival in self.owners:
                with suppress(Unavailable):
                    await stop_engine(rival.engine)

    # ------------------------------------------------------------------------------------ asking for work

    async def _request(self) -> None:
        """Submit each job until an owner confirms it; the owner is chosen at random."""
        for nonce in self._waiting:
            payload = {"kind": "AI", "spec": {"model": "echo", "prompt": f"job {nonce}"}, "units": 2}
            command = build_enqueue(BRISK, ALICE, Tier.FREE, payload, 100, nonce)
            assert isinstance(command, Enqueue)
            await self._until(lambda: len(self.confirmed) < self._progress() + AHEAD_MAX)
            while not await self._is_taken(command):
                await asyncio.sleep(0.005)
            self.confirmed.add(nonce)

    async def _is_taken(self, command: Enqueue) -> bool:
        rival = self._random.choice(self.owners)
        if not rival.is_owner:
            return False
        try:
            outcome = await rival.engine.submit(command)
        except Unavailable:
            return False
        assert isinstance(outcome, Accepted), outcome
        return True

    def _progress(self) -> int:
        """Jobs that are done, as the newest owner knows."""
        newest = max(self.owners, key=lambda rival: rival.engine.durable_head.term)
        counted = sum(provider.completed for provider in newest.engine.undurable_state.providers.values())
        self.done = max(self.done, counted) if newest.is_owner else self.done
        return self.done

    # ------------------------------------------------------------------------------------ what is done to them

    async def _disturb(self, turn: int) -> None:
        if turn % 3:
            await self._replaced(await self._held_owner(), is_cut=turn % 3 == 1)
        else:
            await self._kill(self._random.choice((await self._owner()).backends or [0]))

    async def _held_owner(self) -> CompetingOwner:
        """Just before an append; an owner whose append was in progress and fails may have lost ownership."""
        while True:
            owner = await self._owner()
            owner.gate.close()
            await self._until(lambda owner=owner: owner.gate.held is not None or not owner.is_owner)  # type: ignore[misc]
            if owner.gate.held is not None:
                return owner
            owner.gate.open()

    async def _replaced(self, owner: CompetingOwner, *, is_cut: bool) -> None:
        """The owner is held; it wakes up when the other one has given jobs out."""
        other = next(rival for rival in self.owners if rival is not owner)
        assert owner.gate.held is not None
        doomed, number = owner.engine, owner.engine.durable_head.number
        if not is_cut:
            await owner.journal.lose_the_lock()
        async with asyncio.timeout(STILL_S):
            while not (other.is_owner and other.engine.durable_head.number > number + 5):
                for store in (owner.journal, owner.tables) if is_cut else (owner.tables,):
                    await self._kill(store.backend or 0)  # again, where it was just connecting when it was held
                await asyncio.sleep(0.01)
        self.held.append(owner.gate.held)
        owner.gate.open()
        says = f"{owner.name} was replaced and goes on as if nothing had happened"
        await self._until(lambda: owner.engine is not doomed or not owner.is_owner, says)

    async def _kill(self, pid: int) -> None:
        await self._admin.execute("SELECT pg_terminate_backend($1)", pid)

    async def _owner(self) -> CompetingOwner:
        """The one that owns and has something to lose."""
        await self._until(lambda: any(rival.is_owner for rival in self.owners))
        return max(self.owners, key=lambda rival: (rival.is_owner, rival.engine.durable_head.term))

    async def _until(self, condition: Callable[[], bool], says: str = "the race stands still") -> None:
        end = time.monotonic() + STILL_S
        while not condition():
            assert time.monotonic() < end, says
            await asyncio.sleep(0.002)


# ------------------------------------------------------------------------------------------------ looking back


class LeaseHistory:
    """Reads the journal from its beginning, knowing only what a lease is."""

    def __init__(self) -> None:
        self.live: dict[TaskId, LeaseId] = {}
        self.given: Counter[LeaseId] = Counter()
        self.done: Counter[TaskId] = Counter()
        self.nonces: Counter[int] = Counter()
        self.terms: list[int] = []

    def apply(self, event: object) -> None:
        match event:
            case JobAdmitted():
                self.nonces[event.nonce] += 1
            case JobAssigned():
                assert event.job_id not in self.live, "a job that somebody holds was given away"
                self.live[event.job_id] = event.lease_id
                self.given[event.lease_id] += 1
            case LeaseClosed():
                del self.live[next(job for job, lease in self.live.items() if lease == event.id)]
            case ProofAccepted():
                assert self.live.pop(event.task_id) == event.lease_id, "done by somebody who did not hold it"
                self.done[event.task_id] += 1
            case OwnershipTaken():
                self.terms.append(event.term)


@pytest.fixture
async def journal(postgres: Server) -> AsyncIterator[tuple[Address, FullJournal]]:
    address = postgres.address()
    opened = PostgresJournal(*address)
    yield address, FullJournal(opened, SimulatedFiles())
    await opened.close()


@pytest.mark.timeout(1_200)
@pytest.mark.rule("ENG-001", "ENG-002", "LEA-002", "MAT-006", "MAT-007")
async def test_two_dispatchers_that_pause_and_are_cut_off_never_give_a_job_twice(
    journal: tuple[Address, FullJournal], admin: Any
) -> None:
    address, batches = journal
    race = Race(address, admin, counts(300, 10_000))
    await race.run(counts(9, 60))
    told, tip, hashes = LeaseHistory(), JournalHead(), dict[int, bytes]()
    async for batch in batches.read(BatchNo(0)):
        check_follows(tip, batch)
        tip, hashes[batch.number] = head_of(batch), batch.hash
        for event in journal_codec.unpack(batch):
            told.apply(event)
    assert told.nonces == Counter(range(race.jobs)), "each job was asked for until it was confirmed, and taken in once"
    assert len(told.done) == race.jobs
    assert max(told.done.values()) == 1
    assert told.live == {}
    assert max(told.given.values()) == 1, "no name of a lease was given twice"
    assert sum(told.given.values()) > race.jobs, "nothing was declined: the race was too tame"
    assert told.terms == list(range(1, tip.term + 1)), "an owner for each term, one after the other"
    assert len(race.held) == counts(6, 40)
    assert [batch for batch in race.held if hashes.get(batch.number) == batch.hash] == [], "a paused one has written"
    audited = await audit(batches, SimulatedFiles(), BRISK)
    assert isinstance(audited, AuditReport)
    assert audited.difference is None
    assert audited.assignments == sum(told.given.values())
