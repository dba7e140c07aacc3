"""Retention under fire: killed at any step it leaves bytes too many, never too few, and goes on where it was."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.counts import counts
from tests.duties.retained import House, policy
from tests.simulated.journal import Fault

from holdfast.core.chain.acts import RollBack
from holdfast.core.chain.blocks import finalized
from holdfast.core.refusal import Unavailable
from holdfast.core.result import result_digest
from holdfast.core.retention.books import Pass, is_dropped
from holdfast.core.state import digest
from holdfast.core.values import Height, TaskId
from holdfast.duties.collector import PASSES
from holdfast.engine import read
from holdfast.engine.outcome import Phase

OUTPUTS = (b"small one", b"small two", b"large" * 300, b"small one", b"larger" * 300)


async def aged(*, days: int = 3) -> House:
    """Results old enough for every pass, all of them archived."""
    home = House(policy(audit_window_days=None))
    await home.furnished()
    for output in OUTPUTS:
        await home.resolve(output)
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(days)
    home.world.disk.before_append = home.world.disk.before_let_go = home.fuse
    home.fuse.burnt = 0
    return home


async def check_readable(home: House) -> None:
    """Bytes verify, or it is told that they were let go; nothing in between."""
    state = home.engine.state
    for task, output in home.outputs.items():
        found = await home.record(task)
        got = await home.bytes_of(task)
        if got is not None:
            assert got == output
        else:
            assert is_dropped(state, Pass.WARM, found.event), "bytes are gone that nobody let go"
            assert home.cold is not None
            assert found.result_digest in home.cold.held, "bytes are gone that nobody else holds"


async def check_all_gone(home: House) -> None:
    assert home.hot == set()
    assert home.blobs.held == {}
    state = home.engine.state
    assert [state.leaving, state.condemned, state.kept_hot, state.kept_warm] == [{}, {}, {}, {}]
    assert [state.passes[each].results for each in (Pass.HOT, Pass.WARM, Pass.INDEX)] == [len(OUTPUTS)] * 3
    await home.engine.projector.drain()
    assert home.world.tables.rows["result"] == {}
    assert len(home.world.tables.rows["tombstone"]) == len(OUTPUTS)
    assert digest(await home.world.recovered()) == digest(state)


async def steps() -> int:
    home = await aged()
    await home.collector.look()
    await check_all_gone(home)
    return home.fuse.burnt


@pytest.mark.rule("RET-003")
async def test_killed_at_any_step_it_goes_on_and_ends_in_the_same_place() -> None:
    count = await steps()
    assert count >= 10
    for at in range(1, count + 1):
        home = await aged()
        home.fuse.at = at
        with suppress(Unavailable):
            await home.collector.look()
        await home.killed()
        home.fuse.at = None
        await home.open()
        await check_readable(home)
        await home.collector.look()
        await check_all_gone(home)
        before = home.engine.durable
        await home.collector.look()
        assert home.engine.durable == before
        await home.killed()


@pytest.mark.rule("RET-003", "ENG-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER, Fault.TEAR])
async def test_an_append_of_unknown_outcome_loses_nothing(fault: Fault) -> None:
    for at in range(6):
        home = await aged()
        home.world.disk.faults = [None] * at + [fault]
        with suppress(Unavailable):
            await home.collector.look()
        async with asyncio.timeout(60):
            while home.engine.phase is not Phase.RUNNING:
                await asyncio.sleep(0)
        await check_readable(home)
        home.world.disk.faults = []
        await home.collector.look()
        await check_all_gone(home)
        await home.killed()


@pytest.mark.rule("RET-002")
async def test_bytes_go_only_after_the_event_that_says_so_is_durable() -> None:
    home = await aged()
    held, hot = dict(home.blobs.held), home.hot
    home.world.disk.faults = [Fault.HANG]
    looking = asyncio.create_task(home.collector.look())
    for _ in range(200):
        await asyncio.sleep(0)
    assert (home.blobs.held, home.hot) == (held, hot)
    home.world.disk.release.set()
    await looking
    await check_all_gone(home)


class Lives(RuleBasedStateMachine):
    """Results come, blocks are sealed and taken back, bytes are archived, lost and collected, the node dies."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.home = House(policy(audit_window_days=3))
        self.run(self.home.furnished())
        self.home.world.disk.before_append = self.home.world.disk.before_let_go = self.home.fuse
        self.unfinal_hot: dict[TaskId, bytes] = {}

    def run(self, work: object) -> object:
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    @rule(output=st.sampled_from(OUTPUTS), seals=st.integers(0, 3))
    def resolve(self, output: bytes, seals: int) -> None:
        self.run(self.home.beat())
        self.run(self.home.resolve(output, seals=seals))

    @rule(times=st.integers(1, 15))
    def seal(self, times: int) -> None:
        self.run(self.home.seal(times))

    @rule(days=st.integers(1, 2))
    def wait(self, days: int) -> None:
        self.run(self.home.pass_days(days))

    @rule(depth=st.integers(1, 12))
    def reorg(self, depth: int) -> None:
        state = self.home.engine.state
        to = max(finalized(state), state.chain.head.height - depth)
        self.run(self.home.engine.submit(RollBack(Height(to))))
        self.run(self.home.seal())

    @rule()
    def archive(self) -> None:
        self.run(self.home.archive_all())

    @rule(number=st.integers(0, 4))
    def lose_a_file_that_the_store_still_has(self, number: int) -> None:
        task = next((each for i, each in enumerate(self.home.outputs) if i == number), None)
        found = self.run(read.result(self.home.engine, task)) if task is not None else None
        hot = self.run(read.hot_output(self.home.engine, found)) if found is not None else None  # type: ignore[arg-type]
        sharing = [each for each, output in self.home.outputs.items() if task and output == self.home.outputs[task]]
        if hot is not None and len(sharing) == 1:
            self.home.blobs.held.pop(result_digest(hot), None)  # type: ignore[arg-type]

    @rule(output=st.sampled_from((*OUTPUTS, b"never accepted" * 100)))
    def send_an_output_and_never_complete(self, output: bytes) -> None:
        self.home.blobs.held[result_digest(output)] = output

    @rule(passes=st.lists(st.sampled_from([Pass.HOT, Pass.WARM, Pass.INDEX, Pass.STRAY]), min_size=1, max_size=3))
    def collect(self, passes: list[Pass]) -> None:
        self.run(self.home.collector.look(passes))

    @rule(at=st.integers(1, 12))
    def die_while_collecting(self, at: int) -> None:
        self.home.fuse.burnt, self.home.fuse.at = 0, at
        with suppress(Unavailable):
            self.run(self.home.collector.look([*PASSES, Pass.STRAY]))
        self.home.fuse.at = None
        self.run(self.home.killed())
        self.run(self.home.open())

    @invariant()
    def every_result_is_readable_or_says_that_it_was_let_go(self) -> None:
        if not hasattr(self, "home"):
            return
        home, state = self.home, self.home.engine.state
        for task, output in home.outputs.items():
            found = self.run(read.result(home.engine, task))
            if found is None:  # its audit window has ended
                assert state.passes[Pass.AUDIT].results
                continue
            got = self.run(home.bytes_of(task))
            if found.height_resolved > finalized(state):  # type: ignore[attr-defined]
                assert got == output, "a result that is not final lost its bytes"
            is_in_archive = home.cold is not None and found.result_digest in home.cold.held  # type: ignore[attr-defined]
            is_let_go = is_dropped(state, Pass.HOT if is_in_archive else Pass.WARM, found.event)  # type: ignore[attr-defined]
            assert got == output or (got is None and is_let_go)  # a lost file is the archive's matter, if it has it

    @invariant()
    def the_fold_is_the_state(self) -> None:
        if hasattr(self, "home"):
            assert digest(self.run(self.home.world.recovered())) == digest(self.home.engine.state)  # type: ignore[arg-type]

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.run(self.home.killed())
            self.loop.close()


Lives.TestCase.settings = settings(
    max_examples=counts(10, 150), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.rule("RET-001", "RET-002", "RET-003", "RET-004")
class TestLives(Lives.TestCase):  # type: ignore[misc, valid-type]
    """Whatever happens, in whatever order."""
