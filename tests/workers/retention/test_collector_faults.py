"""Retention with faults: killed at any step it leaves too many bytes, never too few, and continues where it was."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.counts import counts
from tests.simulation.journal import Fault
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Height, TaskId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.chain.model import final_height
from holdfast.core.result import result_digest
from holdfast.core.retention.model import Pass, is_dropped
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.outcome import EngineStatus
from holdfast.workers.retention.collector import PASSES

OUTPUTS = (b"small one", b"small two", b"large" * 300, b"small one", b"larger" * 300)


async def aged_node(*, days: int = 3) -> RetentionNode:
    """Results old enough for every pass, all of them archived."""
    home = RetentionNode(policy(audit_window_days=None))
    await home.open_with_provider()
    for output in OUTPUTS:
        await home.resolve(output)
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(days)
    home.world.disk.before_append = home.world.disk.before_delete_payloads = home.fuse
    home.fuse.burnt = 0
    return home


async def check_readable(home: RetentionNode) -> None:
    """Bytes verify, or the node reports that they were deleted; nothing in between."""
    state = home.engine.undurable_state
    for task, output in home.outputs.items():
        found = await home.record(task)
        got = await home.bytes_of(task)
        if got is not None:
            assert got == output
        else:
            assert is_dropped(state, Pass.WARM, found.event), "bytes are gone that nobody let go"
            assert home.archive is not None
            assert found.result_digest in home.archive.held, "bytes are gone that nobody else holds"


async def check_all_gone(home: RetentionNode) -> None:
    assert home.hot == set()
    assert home.blobs.held == {}
    state = home.engine.undurable_state
    assert [state.hot_deletes_pending, state.warm_deletes_pending, state.skipped_hot, state.skipped_warm] == [
        {},
        {},
        {},
        {},
    ]
    assert [state.retention_progress[each].results for each in (Pass.HOT, Pass.WARM, Pass.RECORDS)] == [
        len(OUTPUTS)
    ] * 3
    await home.engine.wait_tables()
    assert home.world.tables.rows["result"] == {}
    assert len(home.world.tables.rows["tombstone"]) == len(OUTPUTS)
    assert digest(await home.world.recovered()) == digest(state)


async def steps() -> int:
    home = await aged_node()
    await home.collector.run_passes()
    await check_all_gone(home)
    return home.fuse.burnt


@pytest.mark.rule("RET-003")
async def test_killed_at_any_step_it_goes_on_and_ends_in_the_same_place() -> None:
    count = await steps()
    assert count >= 10
    for at in range(1, count + 1):
        home = await aged_node()
        home.fuse.at = at
        with suppress(Unavailable):
            await home.collector.run_passes()
        await home.kill()
        home.fuse.at = None
        await home.open()
        await check_readable(home)
        await home.collector.run_passes()
        await check_all_gone(home)
        before = home.engine.durable_head
        await home.collector.run_passes()
        assert home.engine.durable_head == before
        await home.kill()


@pytest.mark.rule("RET-003", "ENG-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER, Fault.TEAR])
async def test_an_append_of_unknown_outcome_loses_nothing(fault: Fault) -> None:
    for at in range(6):
        home = await aged_node()
        home.world.disk.faults = [None] * at + [fault]
        with suppress(Unavailable):
            await home.collector.run_passes()
        async with asyncio.timeout(60):
            while home.engine.status is not EngineStatus.RUNNING:
                await asyncio.sleep(0)
        await check_readable(home)
        home.world.disk.faults = []
        await home.collector.run_passes()
        await check_all_gone(home)
        await home.kill()


@pytest.mark.rule("RET-002")
async def test_bytes_go_only_after_the_event_that_says_so_is_durable() -> None:
    home = await aged_node()
    held, hot = dict(home.blobs.held), home.hot
    home.world.disk.faults = [Fault.HANG]
    looking = asyncio.create_task(home.collector.run_passes())
    for _ in range(200):
        await asyncio.sleep(0)
    assert (home.blobs.held, home.hot) == (held, hot)
    home.world.disk.release.set()
    await looking
    await check_all_gone(home)


class RetentionMachine(RuleBasedStateMachine):
    """Results come, blocks are sealed and taken back, bytes are archived, lost and collected, the node dies."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.home = RetentionNode(policy(audit_window_days=3))
        self.run(self.home.open_with_provider())
        self.home.world.disk.before_append = self.home.world.disk.before_delete_payloads = self.home.fuse
        self.unfinal_hot: dict[TaskId, bytes] = {}

    def run(self, work: object) -> object:
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    @rule(output=st.sampled_from(OUTPUTS), seals=st.integers(0, 3))
    def resolve(self, output: bytes, seals: int) -> None:
        self.run(self.home.heartbeat())
        self.run(self.home.resolve(output, seals=seals))

    @rule(times=st.integers(1, 15))
    def seal(self, times: int) -> None:
        self.run(self.home.seal(times))

    @rule(days=st.integers(1, 2))
    def wait(self, days: int) -> None:
        self.run(self.home.pass_days(days))

    @rule(depth=st.integers(1, 12))
    def reorg(self, depth: int) -> None:
        state = self.home.engine.undurable_state
        to = max(final_height(state), state.chain.head.height - depth)
        self.run(self.home.engine.submit(RollBackBlocks(Height(to))))
        self.run(self.home.seal())

    @rule()
    def archive(self) -> None:
        self.run(self.home.archive_all())

    @rule(number=st.integers(0, 4))
    def lose_a_file_that_the_store_still_has(self, number: int) -> None:
        task = next((each for i, each in enumerate(self.home.outputs) if i == number), None)
        found = self.run(queries.result(self.home.engine, task)) if task is not None else None
        hot = self.run(queries.hot_output(self.home.engine, found)) if found is not None else None  # type: ignore[arg-type]
        sharing = [each for each, output in self.home.outputs.items() if task and output == self.home.outputs[task]]
        if hot is not None and len(sharing) == 1:
            self.home.blobs.held.pop(result_digest(hot), None)  # type: ignore[arg-type]

    @rule(output=st.sampled_from((*OUTPUTS, b"never accepted" * 100)))
    def send_an_output_and_never_complete(self, output: bytes) -> None:
        self.home.blobs.held[result_digest(output)] = output

    @rule(passes=st.lists(st.sampled_from([Pass.HOT, Pass.WARM, Pass.RECORDS, Pass.ORPHANS]), min_size=1, max_size=3))
    def collect(self, passes: list[Pass]) -> None:
        self.run(self.home.collector.run_passes(passes))

    @rule(at=st.integers(1, 12))
    def die_while_collecting(self, at: int) -> None:
        self.home.fuse.burnt, self.home.fuse.at = 0, at
        with suppress(Unavailable):
            self.run(self.home.collector.run_passes([*PASSES, Pass.ORPHANS]))
        self.home.fuse.at = None
        self.run(self.home.kill())
        self.run(self.home.open())

    @invariant()
    def every_result_is_readable_or_says_that_it_was_deleted(self) -> None:
        if not hasattr(self, "home"):
            return
        home, state = self.home, self.home.engine.undurable_state
        for task, output in home.outputs.items():
            found = self.run(queries.result(home.engine, task))
            if found is None:  # its audit window has ended
                assert state.retention_progress[Pass.AUDIT].results
                continue
            got = self.run(home.bytes_of(task))
            if found.height_resolved > final_height(state):  # type: ignore[attr-defined]
                assert got == output, "a result that is not final lost its bytes"
            is_in_archive = home.archive is not None and found.result_digest in home.archive.held  # type: ignore[attr-defined]
            is_let_go = is_dropped(state, Pass.HOT if is_in_archive else Pass.WARM, found.event)  # type: ignore[attr-defined]
            assert got == output or (got is None and is_let_go)  # a lost file is the archive's matter, if it has it

    @invariant()
    def the_fold_is_the_state(self) -> None:
        if hasattr(self, "home"):
            assert digest(self.run(self.home.world.recovered())) == digest(self.home.engine.undurable_state)  # type: ignore[arg-type]

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.run(self.home.kill())
            self.loop.close()


RetentionMachine.TestCase.settings = settings(
    max_examples=counts(10, 150), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.rule("RET-001", "RET-002", "RET-003", "RET-004")
class TestRetentionMachine(RetentionMachine.TestCase):  # type: ignore[misc, valid-type]
    """Whatever happens, in whatever order."""
