"""A replay computes every header of every life again, orphaned ones, too, and names the first that is not so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.core.blocks import PROPOSER, SEAL, Life, Step, final_after, lived, lives, verify
from tests.simulated.journal import Disk, SimulatedJournal
from tests.simulated.world import SimulatedFiles

from holdfast.core import law
from holdfast.core.chain.acts import BlockSealed, BlockUndone, RollBack
from holdfast.core.event import Event, Tip, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import BatchNo, Epoch, Height
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.replay import Replayed, replay

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


def journal_of(events: list[Event], per_batch: int = 3) -> LongJournal:
    """A journal in which these events happened."""
    disk, tip = Disk(), Tip()
    for at in range(0, len(events), per_batch):
        batch = law.pack(tip, Epoch(1), events[at : at + per_batch], 1_000_000 + at)
        disk.batches.append(batch)
        tip = tip_of(batch)
    return LongJournal(SimulatedJournal(disk), SimulatedFiles())


async def replayed(events: list[Event], policy: Policy = POLICY) -> Replayed:
    done = await replay(journal_of(events), policy, verify)
    assert isinstance(done, Replayed), done
    return done


@given(lives)
async def test_the_replay_of_any_life_comes_to_the_chain_that_was_lived(life: list[Step]) -> None:
    lived_ = lived(POLICY, life)
    done = await replayed(lived_.events)
    head, events = lived_.state.chain.head, lived_.events
    assert (done.height, done.hash, done.events) == (head.height, head.hash, len(events))
    assert done.blocks == sum(isinstance(event, BlockSealed) for event in events)
    assert done.orphaned == sum(isinstance(event, BlockUndone) and bool(event.hash) for event in events)
    assert done.transactions == sum(len(block.txs) for block in lived_.naive.blocks)
    assert done.blocks - done.orphaned == done.height


async def test_progress_is_told_batch_by_batch() -> None:
    events, seen = lived(POLICY, LIFE).events, []
    await replay(journal_of(events), POLICY, verify, lambda tip: seen.append(tip.last))
    assert seen == [*range(3, len(events), 3), len(events)]


def sealed_in(events: list[Event]) -> list[int]:
    return [at for at, event in enumerate(events) if isinstance(event, BlockSealed)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hash": b"x" * 32}, "does not have the hash that its events give"),
        ({"time_ms": 7}, "does not have the hash that its events give"),
        ({"proposer": b"x" * 32}, "does not have the hash that its events give"),
        ({"height": Height(9)}, "block 9 does not have the hash that its events give"),
        ({"signature": b"x" * 64}, "is not signed by its proposer"),
    ],
)
async def test_a_header_that_its_events_do_not_give_is_named_also_in_an_orphaned_block(
    change: dict[str, Any], says: str
) -> None:
    events = lived(POLICY, LIFE).events
    places = sealed_in(events)
    orphaned = next(e.hash for e in events if isinstance(e, BlockUndone) and e.hash)
    assert any(event.hash == orphaned for event in events if isinstance(event, BlockSealed))
    for at in places:
        bad = list(events)
        bad[at] = msgspec.structs.replace(events[at], **change)
        with pytest.raises(Corrupt, match=says) as found:
            await replayed(bad)
        assert found.value.rule == "CHN-006"


async def test_an_event_that_was_taken_out_or_put_in_is_found() -> None:
    events = lived(POLICY, LIFE).events
    admitted = next(at for at, event in enumerate(events) if type(event).__name__ == "JobAdmitted")
    for bad in (events[:admitted] + events[admitted + 1 :], [*events[:2], events[1], *events[2:]]):
        with pytest.raises(Corrupt):
            await replayed(bad)


async def test_another_chain_id_gives_another_chain() -> None:
    events = lived(POLICY, LIFE).events
    with pytest.raises(Corrupt, match="chain_id must be the one"):
        await replayed(events, msgspec.structs.replace(POLICY, chain_id=7))


async def test_history_that_was_deleted_cannot_be_replayed_and_is_said_so() -> None:
    life = Life(POLICY)
    for _ in range(3):
        life.do(SEAL)
    life.do(RollBack(Height(1)))
    journal = journal_of(life.events)
    await journal.store.trim(BatchNo(1))
    refused = await replay(journal, POLICY, verify)
    assert isinstance(refused, Refused)
    assert (refused.rule, "batches 1 to 1" in refused.says) == ("CHN-006", True)


async def test_a_journal_without_blocks_is_the_beginning_of_a_chain() -> None:
    done = await replayed([])
    assert (done.height, done.blocks, done.proposers) == (0, 0, set())
    assert (await replayed(lived(POLICY, LIFE).events)).proposers == {PROPOSER}
