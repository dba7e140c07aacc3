"""A replay recomputes every header, also of orphaned blocks, and names the first that is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.blocks import PROPOSER, SEAL, ChainRun, Step, final_after, run_steps, step_sequences, steps, verify
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.world import SimulatedFiles

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Event, JournalHead, head_of
from holdfast.core.base.values import BatchNo, Height, Term
from holdfast.core.chain.messages import BlockRolledBack, BlockSealed, ContinueRollback, RollBackBlocks
from holdfast.core.chain.model import final_height
from holdfast.core.policy import Policy
from holdfast.history.full_journal import FullJournal
from holdfast.history.replay import ReplayReport, replay

pytestmark = pytest.mark.rule("CHN-006")
POLICY = final_after(5)
LIFE = [
    Step("enqueue", 1, 4),
    Step("seal", 10),
    Step("enqueue", 2, 4),
    Step("cancel", 0),
    Step("seal", 10),
    Step("back", 1),
    Step("seal", 10),
    Step("seal", 10),
]


def journal_of(events: list[Event], per_batch: int = 3) -> FullJournal:
    """A journal in which these events happened."""
    disk, tip = Disk(), JournalHead()
    for at in range(0, len(events), per_batch):
        batch = journal_codec.pack(tip, Term(1), events[at : at + per_batch], 1_000_000 + at)
        disk.batches.append(batch)
        tip = head_of(batch)
    return FullJournal(SimulatedJournal(disk), SimulatedFiles())


async def replayed(events: list[Event], policy: Policy = POLICY) -> ReplayReport:
    done = await replay(journal_of(events), policy, verify)
    assert isinstance(done, ReplayReport), done
    return done


@given(step_sequences)
async def test_the_replay_of_any_life_comes_to_the_chain_that_was_lived(life: list[Step]) -> None:
    lived_ = run_steps(POLICY, life)
    done = await replayed(lived_.events)
    head, events = lived_.state.chain.head, lived_.events
    assert (done.height, done.hash, done.events) == (head.height, head.hash, len(events))
    assert done.blocks == sum(isinstance(event, BlockSealed) for event in events)
    assert done.orphaned == sum(isinstance(event, BlockRolledBack) and bool(event.hash) for event in events)
    assert done.transactions == sum(len(block.txs) for block in lived_.naive.blocks)
    assert done.blocks - done.orphaned == done.height


@given(step_sequences, st.integers(0, 6), st.lists(steps, max_size=12), st.integers(0, 9))
async def test_the_replay_of_a_rollback_in_steps_comes_to_its_chain_also_in_the_middle(
    life: list[Step], depth: int, between: list[Step], limit: int
) -> None:
    lived_ = run_steps(POLICY, life)
    to = max(final_height(lived_.state), lived_.state.chain.head.height - depth)
    lived_.do(RollBackBlocks(Height(to), at_once_max=0))
    for step in between:
        lived_.run_step(step)
        lived_.do(ContinueRollback(limit))
    done, head = await replayed(lived_.events), lived_.state.chain.head
    assert (done.height, done.hash, done.blocks - done.orphaned) == (head.height, head.hash, head.height)
    assert done.transactions == sum(len(block.txs) for block in lived_.naive.blocks)


async def test_progress_is_reported_batch_by_batch() -> None:
    events, seen = run_steps(POLICY, LIFE).events, []
    await replay(journal_of(events), POLICY, verify, lambda tip: seen.append(tip.last))
    assert seen == [*range(3, len(events), 3), len(events)]


def sealed_in(events: list[Event]) -> list[int]:
    return [at for at, event in enumerate(events) if isinstance(event, BlockSealed)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hash": b"x" * 32}, "does not match the hash of its events"),
        ({"time_ms": 7}, "does not match the hash of its events"),
        ({"proposer": b"x" * 32}, "does not match the hash of its events"),
        ({"height": Height(9)}, "block 9 does not match the hash of its events"),
        ({"signature": b"x" * 64}, "is not signed by its proposer"),
    ],
)
async def test_a_header_that_its_events_do_not_give_is_named_also_in_an_orphaned_block(
    change: dict[str, Any], says: str
) -> None:
    events = run_steps(POLICY, LIFE).events
    places = sealed_in(events)
    orphaned = next(e.hash for e in events if isinstance(e, BlockRolledBack) and e.hash)
    assert any(event.hash == orphaned for event in events if isinstance(event, BlockSealed))
    for at in places:
        bad = list(events)
        bad[at] = msgspec.structs.replace(events[at], **change)
        with pytest.raises(Corrupt, match=says) as found:
            await replayed(bad)
        assert found.value.rule == "CHN-006"


async def test_an_event_that_was_removed_or_inserted_is_found() -> None:
    events = run_steps(POLICY, LIFE).events
    admitted = next(at for at, event in enumerate(events) if type(event).__name__ == "JobAdmitted")
    for bad in (events[:admitted] + events[admitted + 1 :], [*events[:2], events[1], *events[2:]]):
        with pytest.raises(Corrupt):
            await replayed(bad)


async def test_another_chain_id_gives_another_chain() -> None:
    events = run_steps(POLICY, LIFE).events
    with pytest.raises(Corrupt, match="chain_id must be that of"):
        await replayed(events, msgspec.structs.replace(POLICY, chain_id=7))


async def test_history_that_was_deleted_cannot_be_replayed_and_is_said_so() -> None:
    life = ChainRun(POLICY)
    for _ in range(3):
        life.do(SEAL)
    life.do(RollBackBlocks(Height(1)))
    journal = journal_of(life.events)
    await journal.store.trim(BatchNo(1))
    refused = await replay(journal, POLICY, verify)
    assert isinstance(refused, Refused)
    assert (refused.rule, "batches 1 to 1" in refused.message) == ("CHN-006", True)


async def test_a_journal_without_blocks_is_the_beginning_of_a_chain() -> None:
    done = await replayed([])
    assert (done.height, done.blocks, done.proposers) == (0, 0, set())
    assert (await replayed(run_steps(POLICY, LIFE).events)).proposers == {PROPOSER}
