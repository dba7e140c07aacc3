"""What a journal means, on every store: a new one is done when it passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.core.commands import some_id
from tests.storage.stores import JOURNALS, OpenJournal, Place, impatient

from holdfast.core import journal_codec
from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, JournalHead, head_of
from holdfast.core.base.values import AccountId, Amount, BatchNo, Digest, EventNo, Term
from holdfast.core.escrow.messages import Minted
from holdfast.ports import Journal

pytestmark = pytest.mark.rule("ENG-001")
WITHIN_S = 60.0
"""A waiter that was not woken within this time never is."""


@pytest.fixture(params=sorted(JOURNALS))
def reopen(request: pytest.FixtureRequest, place: Place) -> OpenJournal:
    return JOURNALS[request.param](place)


@pytest.fixture
async def journal(reopen: OpenJournal) -> AsyncIterator[Journal]:
    opened = reopen()
    await opened.acquire()
    yield opened
    await opened.close()


def after(tip: JournalHead, events: int = 2, term: int = 1) -> Batch:
    mints = [Minted(some_id(tip.last + n), AccountId("alice"), Amount(1)) for n in range(events)]
    return journal_codec.pack(tip, Term(term), list(mints), tip.time_ms + 10)


async def filled(journal: Journal, batches: int, events: int = 2) -> list[Batch]:
    made, tip = [], await journal.tip()
    for _ in range(batches):
        made.append(after(tip, events))
        await journal.append(made[-1], ())
        tip = head_of(made[-1])
    return made


async def all_of(journal: Journal, after_: int = 0, until: int | None = None) -> list[Batch]:
    return [batch async for batch in journal.read(BatchNo(after_), None if until is None else BatchNo(until))]


async def test_a_new_journal_is_empty(journal: Journal) -> None:
    assert await journal.tip() == JournalHead()
    assert await all_of(journal) == []
    assert await journal.batch_of(EventNo(1)) is None


async def test_what_is_appended_is_read_back_byte_by_byte(journal: Journal) -> None:
    made = await filled(journal, 3)
    assert await all_of(journal) == made
    assert await journal.tip() == head_of(made[-1])


async def test_what_is_appended_is_there_after_reopening(reopen: OpenJournal) -> None:
    first = reopen()
    await first.acquire()
    made = await filled(first, 3)
    await first.close()
    second = reopen()
    assert await second.acquire() == head_of(made[-1])
    assert await all_of(second) == made
    await second.close()


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 6])
async def test_only_the_next_number_is_appended(journal: Journal, number: int) -> None:
    made = await filled(journal, 3)
    tip = head_of(made[-1])
    wrong = journal_codec.pack(
        JournalHead(BatchNo(number - 1), Term(1), tip.last, tip.time_ms, tip.hash), Term(1), [], tip.time_ms
    )
    with pytest.raises(Fenced):
        await journal.append(wrong, [Attachment(Digest(bytes(32)), b"lost")])
    assert await all_of(journal) == made
    assert await journal.attachment(BatchNo(number), Digest(bytes(32))) is None


async def test_a_batch_that_does_not_follow_the_last_hash_is_not_appended(journal: Journal) -> None:
    made = await filled(journal, 2)
    tip = head_of(made[-1])
    stranger = journal_codec.pack(
        JournalHead(tip.number, tip.term, tip.last, tip.time_ms, Digest(b"x" * 32)), Term(1), [], tip.time_ms
    )
    with pytest.raises(Fenced):
        await journal.append(stranger, ())
    assert await all_of(journal) == made


async def test_after_a_refused_batch_the_right_one_is_still_welcome(journal: Journal) -> None:
    made = await filled(journal, 2)
    with pytest.raises(Fenced):
        await journal.append(made[0], ())
    await filled(journal, 1)
    assert len(await all_of(journal)) == 3


async def test_a_range_is_read_exactly(journal: Journal) -> None:
    made = await filled(journal, 600, events=1)
    assert await all_of(journal, 0) == made
    assert await all_of(journal, 10, 10) == []
    assert await all_of(journal, 10, 11) == made[10:11]
    assert await all_of(journal, 255, 257) == made[255:257]
    assert await all_of(journal, 599) == made[599:]
    assert await all_of(journal, 600) == []


async def test_an_event_is_found_in_its_batch_also_beside_empty_ones(journal: Journal) -> None:
    where: dict[int, int] = {}
    sizes, tip = [2, 0, 0, 3, 0, 1], JournalHead()
    for size in sizes:
        batch = after(tip, size)
        await journal.append(batch, ())
        tip = head_of(batch)
        where |= dict.fromkeys(range(batch.first, batch.last + 1), batch.number)
    assert {event: await journal.batch_of(EventNo(event)) for event in where} == where
    assert await journal.batch_of(EventNo(tip.last + 1)) is None


@pytest.mark.rule("ENG-007")
@pytest.mark.rule("ENG-007", "RET-002")
async def test_payloads_are_listed_and_deleted_one_by_one(reopen: OpenJournal) -> None:
    journal = reopen()
    await journal.acquire()
    tip, made = JournalHead(), {}
    for number in range(1, 4):
        batch = after(tip, 2)
        made[number] = [Attachment(Digest(bytes([n]) * 32), bytes(1_000 * n)) for n in (5, 6)]
        await journal.append(batch, made[number])
        tip = head_of(batch)
    one, two = made[2]
    beside_two = [(2, one.digest, 5_000), (2, two.digest, 6_000)]
    assert await journal.stored_payloads(EventNo(2), EventNo(3)) == beside_two  # two events a batch
    assert await journal.stored_payloads(EventNo(2), EventNo(4)) == beside_two
    assert await journal.stored_payloads(EventNo(3), EventNo(4)) == beside_two
    assert [batch for batch, *_ in await journal.stored_payloads(EventNo(1), EventNo(5))] == [1, 1, 2, 2, 3, 3]
    assert len(await journal.stored_payloads(EventNo(0), EventNo(99))) == 6
    assert await journal.stored_payloads(EventNo(6), EventNo(99)) == []
    await journal.delete_payloads([(BatchNo(2), one.digest), (BatchNo(3), two.digest), (BatchNo(9), one.digest)])
    await journal.delete_payloads([(BatchNo(2), one.digest)])
    await journal.delete_payloads([])
    await journal.close()
    again = reopen()
    assert await again.acquire() == tip
    assert await again.attachment(BatchNo(2), one.digest) is None
    assert await again.attachments(BatchNo(2)) == [two]
    assert await again.attachments(BatchNo(3)) == [made[3][0]]
    assert await again.attachments(BatchNo(1)) == made[1]
    await again.append(after(tip, 1), [one])
    assert await again.attachment(BatchNo(4), one.digest) == one.raw
    await again.close()


async def test_attachments_come_back_by_batch_and_digest(journal: Journal) -> None:
    one, two = Attachment(Digest(b"1" * 32), b"a" * 100_000), Attachment(Digest(b"2" * 32), b"b")
    batch = after(JournalHead())
    await journal.append(batch, [one, two, one])
    assert await journal.attachment(batch.number, one.digest) == one.raw
    assert await journal.attachment(batch.number, two.digest) == two.raw
    assert await journal.attachment(BatchNo(2), one.digest) is None


async def test_a_second_owner_is_kept_out_while_the_first_lives(reopen: OpenJournal) -> None:
    first, second = reopen(), impatient(reopen())
    await first.acquire()
    with pytest.raises(Unavailable, match="ENG-001"):
        await second.acquire()
    await first.close()
    await second.wait_until_unowned()
    await second.acquire()
    await second.close()


@pytest.mark.rule("ENG-008")
async def test_an_owner_shows_its_heartbeats_to_every_process(reopen: OpenJournal) -> None:
    owner, other = reopen(), reopen()
    await owner.acquire()
    first = await other.owner_beat()
    await owner.heartbeat()
    second = await other.owner_beat()
    assert first is not None
    assert second is not None
    assert (first.holder, first.mark) == (second.holder, first.mark)
    assert first.mark != second.mark
    await other.evict_owner(first)  # it is not as silent as it was seen: nothing happens
    await owner.append(after(JournalHead()), ())
    await owner.close()
    assert await other.owner_beat() is None
    await other.close()


async def test_owning_again_keeps_everything(journal: Journal) -> None:
    made = await filled(journal, 2)
    assert await journal.acquire() == head_of(made[-1])
    assert len(await filled(journal, 1)) == 1


@pytest.mark.rule("ENG-004")
async def test_trimming_deletes_old_batches_and_their_payloads_never_the_last(journal: Journal) -> None:
    tip, made, payload = JournalHead(), [], Attachment(Digest(b"1" * 32), b"a" * 9_000)
    for _ in range(5):
        made.append(after(tip))
        await journal.append(made[-1], [payload])
        tip = head_of(made[-1])
    assert await journal.trimmed_until() == 0
    await journal.trim(BatchNo(2))
    assert (await journal.trimmed_until(), await all_of(journal)) == (2, made[2:])
    assert await journal.attachments(BatchNo(2)) == []
    assert await journal.attachments(BatchNo(3)) == [payload]
    assert await journal.batch_of(EventNo(made[2].first)) == 3
    await journal.trim(BatchNo(99))
    assert (await journal.trimmed_until(), await all_of(journal), await journal.tip()) == (4, made[4:], tip)
    await filled(journal, 1)
    assert (await journal.tip()).number == 6


@pytest.mark.rule("ENG-006")
async def test_a_follower_is_woken_by_the_next_batch(reopen: OpenJournal, journal: Journal) -> None:
    await filled(journal, 2)
    other = reopen()
    await other.wait_after(BatchNo(1))
    waiting = asyncio.create_task(other.wait_after(BatchNo(2)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await filled(journal, 1)
    await asyncio.wait_for(waiting, WITHIN_S)
    assert (await other.tip()).number == 3
    await other.close()


async def test_a_standby_is_woken_when_the_owner_goes(reopen: OpenJournal) -> None:
    first, second = reopen(), reopen()
    await first.acquire()
    waiting = asyncio.create_task(second.wait_until_unowned())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await first.close()
    await asyncio.wait_for(waiting, WITHIN_S)
    assert await second.acquire() == JournalHead()
    await second.close()


async def test_whoever_only_reads_sees_every_batch_that_was_confirmed(reopen: OpenJournal, journal: Journal) -> None:
    other, made = reopen(), []
    for _ in range(20):
        made += await filled(journal, 1)
        assert await other.tip() == head_of(made[-1])
        assert await all_of(other) == made
    await other.close()


async def test_many_follow_at_once(reopen: OpenJournal, journal: Journal) -> None:
    other = reopen()
    await filled(journal, 1)
    waiting = [asyncio.create_task(other.wait_after(BatchNo(n))) for n in (0, 1, 2, 3, 4)]
    await asyncio.wait_for(waiting[0], WITHIN_S)
    await filled(journal, 3)
    await asyncio.wait_for(asyncio.gather(*waiting[:4]), WITHIN_S)
    assert not waiting[4].done()
    waiting[4].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await other.close()


async def test_a_standby_may_stop_waiting(reopen: OpenJournal, journal: Journal) -> None:
    other = reopen()
    waiting = asyncio.create_task(other.wait_until_unowned())
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await filled(journal, 1)
    await other.close()


@pytest.mark.rule("ENG-004")
async def test_trimming_beside_an_owner_needs_no_ownership_and_stops_no_append(
    reopen: OpenJournal, journal: Journal
) -> None:
    made = await filled(journal, 700, events=1)
    operator = reopen()
    _, more = await asyncio.gather(operator.trim(BatchNo(600)), filled(journal, 20, events=1))
    assert (await operator.trimmed_until(), await all_of(operator)) == (600, [*made[600:], *more])
    await operator.close()
    await filled(journal, 1)
    assert (await journal.tip()).number == 721


async def test_a_sound_store_finds_no_fault_in_itself(journal: Journal) -> None:
    await filled(journal, 3)
    assert await journal.faults() == []
