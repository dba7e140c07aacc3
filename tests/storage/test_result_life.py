"""Any history of results, on every store: the invariants hold after each step."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.core.core_driver import ALICE
from tests.counts import counts
from tests.storage.result_invariants import broken_promises
from tests.storage.result_life import InMemoryResultLife, ResultLife
from tests.storage.stores import JOURNALS, TABLES, Place

from holdfast.core.base.values import TaskId
from holdfast.core.lease.messages import ExpireDue
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.retention.model import Pass

picks = st.integers(0, 30)
outputs = st.sampled_from([b"a", b"b", b"a large answer " * 3, b"another large one " * 40])
"""Some are shared, some are kept hot, some are pinned."""
DAY_MS = 24 * 3_600_000
PASSES = [(Pass.HOT,), (Pass.WARM,), (Pass.RECORDS,), (Pass.HOT, Pass.WARM, Pass.RECORDS)]
BESIDE = ["nothing", "newer", "proof", "death"]
RESULTS_MAX = 12


class ResultMachine(RuleBasedStateMachine):
    """One owner, two providers, a requester, an archive, and a collector that is never alone."""

    @initialize(seals=st.integers(0, 2))
    def begin(self, seals: int) -> None:
        """Two results are there from the beginning: a short life has something to lose, too."""
        self.life, self.nonce = self.new_life(), 0
        self.finish([b"a", b"a large answer " * 3], seals)

    def new_life(self) -> ResultLife:
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ results come

    @rule(fee=st.integers(1, 20))
    def enqueue(self, fee: int) -> None:
        if self._has_room():
            self.nonce += 1
            self.life.enqueued(self.nonce, fee)
            self.life.ask(Match())

    @rule(pick=picks, output=outputs, is_good=st.sampled_from([True, True, True, False]))
    def prove(self, pick: int, output: bytes, is_good: bool) -> None:
        """Accept or refuse; an earlier submission without a verdict gets this one."""
        if (lease := self._lease(pick)) is not None:
            if lease.submitted is None:
                self.life.run(self.life.submit_output(lease, output))
            self.life.run(self.life.give_verdict(lease, is_good=is_good))

    @rule(pick=picks, output=outputs)
    def submit_output(self, pick: int, output: bytes) -> None:
        """Again, with other bytes, it is equivocation, and the first one counts."""
        if (lease := self._lease(pick)) is not None:
            first = lease.submitted
            self.life.run(self.life.submit_output(lease, output))
            assert first is None or lease.submitted == first

    @rule(outputs=st.lists(outputs, min_size=1, max_size=3), seals=st.integers(0, 2))
    def finish(self, outputs: list[bytes], seals: int) -> None:
        for output in outputs:
            if self._has_room():
                self.nonce += 1
                self.life.run(self.life.finish(self.nonce, output))
        self.seal(seals)

    @rule(pick=picks)
    @precondition(lambda self: self.life.model.results)
    def prove_again(self, pick: int) -> None:
        """RES-001: the same proof is answered as the first time, and nothing changes. (Another one is slashed.)"""
        life, task = self.life, self._task(pick)
        proof = life.proofs[task]
        before = life.state.last_event
        assert life.late(proof) == "repeat"
        assert life.state.last_event == before

    # ------------------------------------------------------------------------------------ blocks come and go

    @rule(times=st.integers(1, 3))
    def seal(self, times: int) -> None:
        for _ in range(times):
            self.life.run(self.life.seal_one())

    @rule()
    def finalize_all(self) -> None:
        self.seal(12)

    @rule(by=st.integers(0, 6))
    def roll_back(self, by: int) -> None:
        """Of any depth, down to what is final and one below it."""
        self.life.run(self.life.roll_back(max(0, self.life.model.open_height - 1 - by)))

    @rule(pick=picks, txs=st.lists(st.integers(1, 2), min_size=1, max_size=3), by=st.integers(0, 2))
    @precondition(lambda self: self.life.model.results)
    def consume(self, pick: int, txs: list[int], by: int) -> None:
        """RES-005: consumption succeeds once and is refused afterwards; sometimes a reorg follows at once."""
        task = self._task(pick, those=self._readable())
        for tx in txs:
            self._consume(task, tx)
        if by:
            self.roll_back(by - 1)

    @rule(output=outputs, txs=st.lists(st.integers(1, 2), min_size=1, max_size=3), by=st.integers(0, 3))
    def use(self, output: bytes, txs: list[int], by: int) -> None:
        """A whole life and its use, so that a reorg finds both in blocks."""
        self.finish([output], 1)
        for tx in txs:
            self._consume(self._task(0, those=self._readable()), tx)
        self.seal(1)
        if by:
            self.roll_back(by)

    def _consume(self, task: TaskId, tx: int) -> None:
        model = self.life.model
        status, used = model.status(task), model.results[task].used
        name, said = self.life.rpc_outcome("cap.consumeResult", task, nonce=tx)
        if status == "RESOLVED":
            assert (name, said["is_repeat"]) == ("", False)
            model.consume(task, tx, said["event"])
        elif used is not None:
            assert name == ("" if used.tx == tx else "AlreadyConsumed")
            assert name or said["is_repeat"]
        else:
            assert name == "NoResultYet"

    # ------------------------------------------------------------------------------------ bytes go

    @rule(pick=picks, days=st.sampled_from([1, 3]), beside=st.sampled_from(BESIDE), at=st.integers(1, 3))
    def collect_old_results(self, pick: int, days: int, beside: str, at: int) -> None:
        """What is final, old and archived; a newer result has the same bytes, or something happens when they go."""
        life = self.life
        self.archive()
        self.seal(1)
        self.wait(days * DAY_MS)
        if beside == "newer" and life.model.results:
            self.finish([life.model.results[self._task(pick)].output], 1)
        self.finalize_all()
        life.collect((Pass.HOT,))
        if beside == "proof" and life.model.results:
            self.collect_while_the_same_bytes_come((Pass.WARM,), at, life.model.results[self._task(pick)].output)
        elif beside == "death":
            self.collect_and_die((Pass.WARM,), at, from_snapshot=False)
        else:
            self.collect((Pass.WARM, Pass.RECORDS))

    @rule(passes=st.sampled_from(PASSES))
    def collect(self, passes: tuple[Pass, ...]) -> None:
        self.life.collect(passes)

    @rule(passes=st.sampled_from(PASSES), at=st.integers(1, 4), by=st.integers(1, 6))
    def collect_during_a_reorg(self, passes: tuple[Pass, ...], at: int, by: int) -> None:
        life = self.life
        life.collect(passes, at, lambda: life.roll_back(max(0, life.model.open_height - 1 - by)))

    @rule(passes=st.sampled_from(PASSES), at=st.integers(1, 4), output=outputs)
    def collect_while_the_same_bytes_come(self, passes: tuple[Pass, ...], at: int, output: bytes) -> None:
        life, self.nonce = self.life, self.nonce + 1
        life.collect(passes, at, (lambda: life.finish(self.nonce, output)) if self._has_room() else None)

    @rule(passes=st.sampled_from(PASSES), at=st.integers(1, 4), from_snapshot=st.booleans())
    def collect_and_die(self, passes: tuple[Pass, ...], at: int, from_snapshot: bool) -> None:
        if not self.life.collect(passes, at, dies=True):
            self.crash(1_000, from_snapshot)

    @rule()
    def archive(self) -> None:
        self.life.archive()

    @rule(pick=picks)
    @precondition(lambda self: self.life.model.results)
    def lose_bytes(self, pick: int) -> None:
        self.life.lose(self._task(pick))

    # ------------------------------------------------------------------------------------ the world

    @rule(jump=st.sampled_from([1_000, 60_000, 7 * 3_600_000]))
    def wait(self, jump: int) -> None:
        self.life.now_ms += jump
        while self.life.do(ExpireDue()):
            pass

    @rule()
    def store(self) -> None:
        self.life.store()

    @rule(outage_ms=st.sampled_from([0, 90_000]), from_snapshot=st.booleans())
    def crash(self, outage_ms: int, from_snapshot: bool) -> None:
        self.life.crash(outage_ms, from_snapshot=from_snapshot)

    # ------------------------------------------------------------------------------------ what always holds

    @invariant()
    def the_promises_hold(self) -> None:
        if hasattr(self, "life"):
            assert broken_promises(self.life) == []

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.close()

    def _has_room(self) -> bool:
        waiting = len(self.life.state.queue.jobs) - len(self.life.state.results)
        return (
            len(self.life.model.results) + waiting < RESULTS_MAX
            and self.life.state.ledger.accounts[ALICE].available > 20
        )

    def _lease(self, pick: int) -> Lease | None:
        live = list(self.life.state.leases.by_id.values())
        return live[pick % len(live)] if live else None

    def _readable(self) -> list[TaskId]:
        model = self.life.model
        return [task for task in model.results if model.status(task) != "NoResultYet"]

    def _task(self, pick: int, those: list[TaskId] | None = None) -> TaskId:
        """Of these, or of all where there are none; the newest ones first."""
        done = those or list(self.life.model.results)
        return done[-1 - pick % len(done)]


def run_machine(store: str, place: Place, examples: int, steps: int) -> None:
    numbers = count(1)

    class Stored(ResultMachine):
        def new_life(self) -> ResultLife:
            folder = place.folder / str(next(numbers))
            folder.mkdir()
            own = Place(folder, place.server)
            kind = InMemoryResultLife if store == "simulated" else ResultLife
            return kind(JOURNALS[store](own), TABLES[store](own), folder)

    told = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Stored, settings=told)


@pytest.mark.rule("RES-001", "RES-002", "RES-004", "RES-005", "RES-006", "RET-001", "RET-002", "RET-004", "ESC-001")
def test_what_is_promised_of_results_holds_after_every_step(place: Place) -> None:
    run_machine("simulated", place, counts(20, 1_500), counts(40, 80))


@pytest.mark.rule("RES-001", "RES-002", "RES-005", "RES-006", "RET-001", "RET-002", "RET-003", "ENG-003", "ENG-004")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_it_holds_on_a_real_store_and_all_that_is_stored_agrees(store: str, place: Place) -> None:
    run_machine(store, place, counts(5, 100), counts(30, 60))
