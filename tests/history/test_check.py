"""The check: sound data passes, also beside a running node; every planted fault is found and named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import enqueue_command, histories, some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles, World, small_batches

import holdfast.core.escrow.invariants as escrow_invariants
import holdfast.history.archive_segments as segments_module
import holdfast.history.check as check_module
from holdfast.core import journal_codec
from holdfast.core.base.event import Command, Event, JournalHead, head_of
from holdfast.core.base.values import AccountId, Amount, BatchNo, Digest, EventNo, Height, Term
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Minted, Reserve
from holdfast.core.index.unique_ids import Claim, claim_id
from holdfast.core.state import State
from holdfast.engine.loop import Engine
from holdfast.engine.snapshots import snapshot_files
from holdfast.engine.snapshots.state_snapshot import snapshot as pack_snapshot
from holdfast.history.archive_segments import SegmentFolder
from holdfast.history.check import CheckResult, check
from holdfast.history.full_journal import FullJournal
from holdfast.ports import CLAIMS

ALICE, BOB = AccountId("alice"), AccountId("bob")
RESERVATION = 22
"""The event that made the first reservation."""

MINT_7, MINT_77 = (claim_id(b"m" + some_id(number)).hex() for number in (7, 77))


class StoredNode:
    """A node's stored data, with an archive."""

    def __init__(self) -> None:
        self.world, self.archive = World(small_batches(events_max=1)), SimulatedFiles()

    @property
    def journal(self) -> FullJournal:
        return FullJournal(SimulatedJournal(self.world.disk, ignores_lock=True), self.archive)

    async def check(self) -> list[CheckResult]:
        return await check(self.journal, self.world.tables, self.world.files, self.world.policy)

    async def bad(self) -> dict[str, str]:
        return {found.name: found.message for found in await self.check() if not found.is_good}

    def reseal(self, number: int, events: list[Event]) -> None:
        """Let a batch, and every one after it, say something else in a chain that fits."""
        batches = self.world.disk.batches
        tip = head_of(batches[number - 2])
        for at in range(number - 1, len(batches)):
            old = batches[at]
            batches[at] = journal_codec.pack(
                tip, old.term, events if at == number - 1 else journal_codec.unpack(old), old.time_ms
            )
            tip = head_of(batches[at])
        self.world.tables.at = tip


async def lived(trim: int = 0) -> StoredNode:
    """Twenty mints, three reservations (one with a large memo, one final), two snapshots, perhaps an archive."""
    stored = StoredNode()
    engine = await stored.world.started()
    for n in range(1, 21):
        await engine.submit(Mint(some_id(n), ALICE, Amount(10)))
    await engine.submit(Reserve(some_id(500), ALICE, Amount(3), b"large" * 2_000))
    await engine.wait_tables()
    await snapshot_files.make(stored.world.files, engine.journal, stored.world.policy)
    await engine.submit(Reserve(some_id(501), ALICE, Amount(3), b"small"))
    await engine.submit(Reserve(some_id(502), ALICE, Amount(3)))
    await engine.submit(Charge(some_id(502), Height(1), BOB, Amount(2)))
    await engine.submit(Finalize(Height(1)))
    await engine.stop()
    await snapshot_files.make(stored.world.files, engine.journal, stored.world.policy)
    if trim:
        await stored.journal.trim(BatchNo(trim))
    return stored


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "BATCHES_MAX", 3)


@pytest.mark.rule("ENG-003", "ENG-004", "ENG-005", "ENG-007")
@pytest.mark.parametrize("trim", [0, 10, 99])
async def test_a_sound_store_passes_and_says_what_was_seen(trim: int) -> None:
    findings = await (await lived(trim)).check()
    assert [found for found in findings if not found.is_good] == []
    said = {found.name: found.message for found in findings}
    assert said["history"].startswith("26 events in 26 batches")
    assert said["payloads"] == "1 large payloads, all stored"
    assert said["snapshots"] == "2 equal to the fold"
    assert said["tables"].startswith("30 rows and ids")
    assert ("archive" in said) == bool(trim)


@pytest.mark.rule("ENG-004")
@given(histories, st.integers(0, 60), st.booleans())
async def test_whatever_happened_the_tables_are_the_fold(history: list[Command], at: int, is_behind: bool) -> None:
    stored = StoredNode()
    engine = await stored.world.started()
    await engine.submit_many(history[:at])
    if is_behind:
        await engine.wait_tables()
        await engine.projector.stop()
    await engine.submit_many(history[at:])
    await engine.stop() if not is_behind else None
    assert await stored.bad() == {}


@pytest.mark.rule("ENG-004")
async def test_a_check_beside_a_running_node_finds_nothing_wrong() -> None:
    stored = StoredNode()
    engine = await stored.world.started()
    stop = asyncio.Event()
    done = asyncio.create_task(_busy(engine, stop))
    tips = set[int]()
    while len(tips) < 10:
        assert await stored.bad() == {}
        tips.add(engine.durable_head.number)
        await asyncio.sleep(0.005)
    stop.set()
    assert await done >= len(tips)
    await engine.stop()


async def _busy(engine: Engine, stop: asyncio.Event) -> int:
    number = 0
    while not stop.is_set():
        number += 1
        await engine.submit(Mint(some_id(number), ALICE, Amount(1)))
        await asyncio.sleep(0.002)
    return number


# ------------------------------------------------------------------------------------------------ tables


def _lose_row(stored: StoredNode) -> None:
    del stored.world.tables.rows["reservation"][RESERVATION]


def _add_row(stored: StoredNode) -> None:
    stored.world.tables.rows["account"]["eve"] = ("eve", 5, 0, 0)


def _change_row(stored: StoredNode) -> None:
    stored.world.tables.rows["account"][ALICE] = (ALICE, 10**6, 0, 0)


def _lose_claim(stored: StoredNode) -> None:
    del stored.world.tables.claims[b"m" + some_id(7)]


def _add_claim(stored: StoredNode) -> None:
    stored.world.tables.claims[b"m" + some_id(77)] = Claim(EventNo(7), 1)


def _change_claim(stored: StoredNode) -> None:
    stored.world.tables.claims[b"m" + some_id(7)] = Claim(EventNo(7), 1)


def _many_rows(stored: StoredNode) -> None:
    for n in range(9):
        stored.world.tables.rows["account"][f"eve{n}"] = (f"eve{n}", 5, 0, 0)


def _tables_ahead(stored: StoredNode) -> None:
    stored.world.tables.at = msgspec.structs.replace(stored.world.tables.at, number=BatchNo(99))


def _foreign_tables(stored: StoredNode) -> None:
    stored.world.tables.at = msgspec.structs.replace(stored.world.tables.at, hash=Digest(bytes(32)))


@pytest.mark.rule("ENG-004", "ENG-005")
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_lose_row, f"1 missing: reservation {RESERVATION}"),
        (_add_row, "1 not in the journal: account eve"),
        (_change_row, "1 different: account alice"),
        (_lose_claim, f"1 missing: claim {claim_id(b'm' + some_id(7)).hex()}"),
        (_add_claim, f"1 not in the journal: claim {claim_id(b'm' + some_id(77)).hex()}"),
        (_change_claim, f"1 different: claim {claim_id(b'm' + some_id(7)).hex()}"),
        (_many_rows, "9 not in the journal: account eve0, account eve1, account eve2 and 6 more"),
        (_tables_ahead, "they are at batch 99, which the journal does not have"),
        (_foreign_tables, "they are of another journal: its batch 26 differs"),
    ],
)
async def test_tables_that_say_something_else_are_named_row_by_row(
    damage: Callable[[StoredNode], None], says: str
) -> None:
    stored = await lived()
    damage(stored)
    assert await stored.bad() == {"tables": says}
    assert check_module.IRREPLACEABLE.isdisjoint(await stored.bad())


@pytest.mark.rule("ENG-005")
async def test_a_claim_that_is_found_in_two_sorted_runs_is_one_too_many() -> None:
    stored = await lived()
    dump = stored.world.tables.dump

    async def twice():  # type: ignore[no-untyped-def]
        async for moment, table, rows in dump():
            yield moment, table, rows + (rows[:1] if table == CLAIMS else [])

    stored.world.tables.dump = twice  # type: ignore[method-assign]
    assert list(await stored.bad()) == ["tables"]


# ------------------------------------------------------------------------------------------------ snapshots


@pytest.mark.rule("ENG-003")
async def test_a_damaged_a_wrong_and_a_foreign_snapshot_are_named_and_nothing_else() -> None:
    stored = await lived()
    files, policy = stored.world.files.files, stored.world.policy
    first, second = sorted(files)
    whole = dict(files)
    files[first] = whole[first][:-1] + b"?"
    assert first in (await stored.bad())["snapshots"]
    files |= {first: whole[second], second: whole[first]}
    assert (await stored.bad())["snapshots"].count("files were exchanged") == 2
    state, tip = State(policy), head_of(stored.world.disk.batches[21])
    files |= whole | {first: pack_snapshot(state, tip)}
    assert await stored.bad() == {"snapshots": f"1 not usable: {first} (the fold gives another state)"}
    elsewhere = msgspec.structs.replace(tip, hash=Digest(bytes(32)))
    files[first] = pack_snapshot(state, elsewhere)
    assert await stored.bad() == {"snapshots": f"1 not usable: {first} (of another journal)"}
    files[first] = whole[first]
    ahead = JournalHead(BatchNo(99), Term(1), EventNo(99), 0, Digest(bytes(32)))
    files[snapshot_files.file_name(ahead)] = pack_snapshot(state, ahead)
    assert await stored.bad() == {"snapshots": "1 not usable: batch 99 (history stops before it)"}


@pytest.mark.rule("ENG-003")
async def test_a_snapshot_whose_queue_contradicts_its_jobs_is_named() -> None:
    """Order and due times are stored beside the jobs, and no digest covers them."""
    stored = StoredNode()
    engine = await stored.world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    for nonce in (1, 2):
        await engine.submit(enqueue_command(nonce, policy=stored.world.policy))
    await engine.stop()
    tip = await snapshot_files.make(stored.world.files, engine.journal, stored.world.policy)
    assert await stored.bad() == {}
    state, _ = await snapshot_files.load(stored.world.files, snapshot_files.file_name(tip), stored.world.policy)
    (group,) = state.queue.ready_queue.groups.values()
    group.by_age.blocks[0].reverse()
    await stored.world.files.replace(snapshot_files.file_name(tip), pack_snapshot(state, tip))
    why = "it contradicts itself: not every group of the ready queue is in order"
    assert await stored.bad() == {"snapshots": f"1 not usable: {snapshot_files.file_name(tip)} ({why})"}


# ------------------------------------------------------------------------------------------------ history


def _body(stored: StoredNode) -> None:
    batches = stored.world.disk.batches
    batches[4] = msgspec.structs.replace(batches[4], body=batches[4].body[:-1] + b"?")


def _lost_batch(stored: StoredNode) -> None:
    del stored.world.disk.batches[4]


def _lost_end(stored: StoredNode) -> None:
    del stored.world.disk.batches[-2:]


def _other_batch(stored: StoredNode) -> None:
    tip, old = head_of(stored.world.disk.batches[3]), stored.world.disk.batches[4]
    stored.world.disk.batches[4] = journal_codec.pack(
        tip, old.term, [Minted(some_id(1), ALICE, Amount(999))], old.time_ms
    )


def _miscounted(stored: StoredNode) -> None:
    stored.reseal(5, [])
    batches, tip = stored.world.disk.batches, head_of(stored.world.disk.batches[3])
    one = journal_codec.pack(tip, Term(1), [Minted(some_id(1), ALICE, Amount(9))], tip.time_ms)
    batches[4:] = [msgspec.structs.replace(one, body=b"\x90")]


@pytest.mark.rule("ENG-001", "ENG-003")
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_body, "batch 5 does not match its stored hash"),
        (_lost_batch, "batch 6 does not follow batch 4"),
        (_other_batch, "batch 6 does not follow batch 5"),
        (_miscounted, "batch 5 does not match its stored hash"),
    ],
)
async def test_damaged_history_is_named_with_the_batch_and_how_far_it_folds(
    damage: Callable[[StoredNode], None], says: str
) -> None:
    stored = await lived()
    damage(stored)
    bad = await stored.bad()
    assert says in bad["history"]
    assert "the fold stops at batch " in bad["history"]
    assert bad["tables"].startswith(("not compared", "they are at"))


@pytest.mark.rule("ENG-001")
async def test_a_journal_that_ends_early_is_seen_by_what_has_seen_more() -> None:
    stored = await lived()
    _lost_end(stored)
    assert await stored.bad() == {
        "snapshots": "1 not usable: batch 26 (history stops before it)",
        "tables": "they are at batch 26, which the journal does not have",
    }


@pytest.mark.rule("ENG-001")
async def test_the_check_goes_on_after_the_first_fault() -> None:
    stored = await lived()
    for number in (5, 9):
        old = stored.world.disk.batches[number - 1]
        stored.world.disk.batches[number - 1] = msgspec.structs.replace(old, time_ms=old.time_ms + 1)
    says = (await stored.bad())["history"]
    assert "batch 5 does not match its stored hash" in says
    assert "batch 9 does not match its stored hash" in says


@pytest.mark.rule("ENG-001", "ENG-005")
async def test_events_that_cannot_have_happened_are_named_though_the_chain_fits() -> None:
    stored = await lived()
    stored.reseal(6, [Minted(some_id(4), ALICE, Amount(10))])
    assert (await stored.bad())["ids"].startswith(f"1 claimed more than once: claim m:{some_id(4).hex()} at event")
    stored.reseal(6, list(journal_codec.unpack(stored.world.disk.batches[-2])))  # a charge, before its reservation
    assert "event 6 cannot have happened: Charged" in (await stored.bad())["history"]
    stored.reseal(6, [])
    assert "ledger" not in await stored.bad()


@pytest.mark.rule("ESC-001")
async def test_a_ledger_that_does_not_add_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    home = await lived()
    monkeypatch.setattr(escrow_invariants, "broken_invariants", lambda _: ["all accounts sum to zero"])
    assert await home.bad() == {"ledger": "does not hold: all accounts sum to zero"}


@pytest.mark.rule("ENG-007")
@pytest.mark.parametrize("trim", [0, 99])
async def test_a_payload_that_is_missing_or_damaged_is_named(trim: int) -> None:
    for damage, says in ((None, "missing"), (b"other bytes", "damaged")):
        stored = await lived()
        key = next(iter(stored.world.disk.attachments))
        if damage is None:
            del stored.world.disk.attachments[key]
        else:
            stored.world.disk.attachments[key] = damage
        if trim:
            await stored.journal.trim(BatchNo(trim))
        assert await stored.bad() == {
            "payloads": f"1 of 1 large payloads: the payload of event {RESERVATION} is {says}"
        }


# ------------------------------------------------------------------------------------------------ archive


@pytest.mark.rule("ENG-004")
async def test_every_damaged_or_missing_archive_segment_is_named() -> None:
    stored = await lived(99)
    names = sorted(stored.archive.files)
    for name in names[1], names[3]:
        stored.archive.files[name] = stored.archive.files[name][:-1] + b"?"
    says = (await stored.bad())["history"]
    assert f"segment {names[1]} is damaged" in says
    assert f"segment {names[3]} is damaged" in says
    del stored.archive.files[names[1]]
    stored.archive.files[names[3]] = stored.archive.files[names[2]]
    says = (await stored.bad())["history"]
    assert f"segment {names[3]} does not hold the batches it is named for" in says


@pytest.mark.rule("ENG-004")
async def test_an_archive_that_contradicts_the_store_is_named_before_anything_is_trimmed() -> None:
    stored, other = await lived(), StoredNode()
    other.world.clock.wall = 7
    engine = await other.world.started()
    for n in range(1, 10):
        await engine.submit(Mint(some_id(n), BOB, Amount(1)))
    await engine.stop()
    await segments_module.copy_journal(SimulatedJournal(other.world.disk), SegmentFolder(stored.archive), BatchNo(9))
    assert "the archive does not hold batches 1 to 9 of this journal" in (await stored.bad())["archive"]
    before = list(stored.world.disk.batches)
    with pytest.raises(Exception, match="ENG-00"):
        await stored.journal.trim(BatchNo(8))
    with pytest.raises(Exception, match="ENG-00"):
        await stored.journal.trim(BatchNo(20))
    assert stored.world.disk.batches == before


@pytest.mark.rule("ENG-004")
async def test_after_the_archive_was_deleted_the_check_begins_at_a_snapshot() -> None:
    stored = await lived(22)
    await stored.journal.archive.delete_until(BatchNo(22))
    findings = {found.name: found for found in await stored.check()}
    assert [name for name, found in findings.items() if not found.is_good] == []
    assert "from batch 23 on; the 22 before were deleted" in findings["history"].message
    _change_row(stored)
    assert await stored.bad() == {"tables": "1 different: account alice"}
    stored.world.files.files.clear()
    assert "batches 1 to 22 were deleted and no snapshot" in (await stored.bad())["history"]
