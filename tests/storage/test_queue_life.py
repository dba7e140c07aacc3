"""The queue's state machine on real stores: owners that are killed, tables that lag, snapshots in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.core.histories.test_queue_machine import QueueMachine
from tests.core.journaled_core import JournaledCore
from tests.counts import counts
from tests.simulation.world import SimulatedClock, SimulatedFiles, stop_engine
from tests.storage.stores import JOURNALS, TABLES, OpenJournal, OpenTables, Place

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.audit import AuditReport, audit
from holdfast.history.check import CheckResult, check
from holdfast.history.full_journal import FullJournal

T = TypeVar("T")
GIVEN = Policy(network=Network.DEVELOPMENT)
"""The policy a node starts with; the one in the journal counts."""


class StoredLife(JournaledCore):
    """The owner of a journal in a real store; between two steps nothing is in flight."""

    def __init__(self, journal: OpenJournal, tables: OpenTables) -> None:
        self._open, self._clock, self._files = (journal, tables), SimulatedClock(), SimulatedFiles()
        self._loop = asyncio.new_event_loop()
        self._start()
        super().__init__()

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

    def ask(self, command: Command) -> tuple[Event, ...] | Refused:
        outcome = self._run(self.engine.submit(command))
        if isinstance(outcome, Refused):
            return outcome
        return () if outcome.is_repeat or outcome.fact is None else (outcome.fact,)

    def written(self) -> int:
        return self.engine.durable_head.last

    def store(self) -> None:
        self._run(snapshot_files.make(self._files, self.engine.journal, GIVEN))

    def crash(self, outage_ms: int, *, from_snapshot: bool) -> None:
        """The owner is gone without a word; where it had a snapshot and is not to use it, that is gone too."""
        before = digest(self.state)
        self._run(self._die())
        if not from_snapshot:
            self._files.files.clear()
        self._clock.wall, self._clock.monotonic = self._clock.wall + outage_ms, 0
        assert digest(self._run(self._found())) == before
        self._start()

    def close(self) -> None:
        """The end: everything that is stored, held against everything else."""
        self.crash(0, from_snapshot=True)
        assignments = self.state.assignments
        self._run(stop_engine(self.engine))
        findings, audited = self._run(self._checked())
        self._loop.close()
        assert [each.message for each in findings if not each.is_good] == []
        assert not isinstance(audited, Refused)
        assert audited.difference is None
        assert audited.assignments == assignments

    def _start(self) -> None:
        journal, tables = self._open
        self.engine = Engine(journal(), tables(), self._files, self._clock, GIVEN)
        self._run(self.engine.start())

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
            return (await recover(journal, tables, self._files, GIVEN)).state
        finally:
            await tables.close()
            await journal.close()

    async def _checked(self) -> tuple[list[CheckResult], AuditReport | Refused]:
        journal, tables = self._open[0](), self._open[1]()
        try:
            whole = FullJournal(journal, SimulatedFiles())
            findings = await check(whole, tables, self._files, GIVEN)
            return findings, await audit(whole, SimulatedFiles(), GIVEN)
        finally:
            await tables.close()
            await journal.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


@pytest.mark.rule("ENG-003", "ENG-004", "LEA-002", "QUO-001", "LEA-008", "ESC-001")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_invariants_hold_on_a_real_store_and_all_that_is_stored_agrees(store: str, place: Place) -> None:
    numbers = count(1)

    class Stored(QueueMachine):
        def new_life(self) -> JournaledCore:
            folder = place.folder / str(next(numbers))
            folder.mkdir()
            own = Place(folder, place.server)
            return StoredLife(JOURNALS[store](own), TABLES[store](own))

    told = settings(
        max_examples=counts(12, 100),
        stateful_step_count=counts(40, 80),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Stored, settings=told)
