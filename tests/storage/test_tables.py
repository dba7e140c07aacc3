"""What tables mean, on every store: rows replaced by key, claims for ever, one checkpoint with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.tables import SimulatedTables
from tests.storage.stores import TABLES, OpenTables, Place

from holdfast.adapters.sql.sorted_runs import RUN_SIZE_MAX, runs_to_merge
from holdfast.adapters.sql.table_schema import COLUMNS
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, BatchNo, Digest, EventNo, Height, ProviderId, TaskId, Term
from holdfast.core.escrow.model import ReservationStatus
from holdfast.core.index.unique_ids import Claim, claim_id, claim_number
from holdfast.core.result.model import Result, ResultStatus
from holdfast.core.tables import record_from_row
from holdfast.ports import CLAIMS, Row, TableWriter, is_row_deleted, row_deleted

pytestmark = pytest.mark.rule("ENG-004")


@pytest.fixture(params=sorted(TABLES))
def reopen(request: pytest.FixtureRequest, place: Place) -> OpenTables:
    return TABLES[request.param](place)


@pytest.fixture
async def tables(reopen: OpenTables) -> AsyncIterator[TableWriter]:
    opened = reopen()
    await opened.open()
    yield opened
    await opened.close()


def at(event: int) -> JournalHead:
    return JournalHead(BatchNo(event), Term(1), EventNo(event), event, Digest(event.to_bytes(32, "big")))


def account(owner: str, available: int = 0) -> Row:
    return (owner, available, 0, 0)


def reservation(event: int, owner: str, status: str = "HELD") -> Row:
    return (event, event.to_bytes(32, "big"), owner, 5, 0, None, status, 0, None, None, None)


async def get_row(tables: TableWriter, table: str, key: object) -> Row | None:
    row, _ = await tables.get(table, key)
    return row


async def test_new_tables_are_empty_at_the_beginning_of_the_journal(tables: TableWriter) -> None:
    assert await tables.open() == JournalHead()
    assert await tables.page("account", {}, "", 10) == ([], 0)


async def test_rows_and_checkpoint_are_there_after_reopening(reopen: OpenTables) -> None:
    first = reopen()
    await first.open()
    await first.write({"account": [account("alice", 3)], "reservation": [reservation(7, "alice")]}, [], at(9))
    await first.close()
    second = reopen()
    assert await second.open() == at(9)
    assert await get_row(second, "account", "alice") == account("alice", 3)
    assert await get_row(second, "reservation", 7) == reservation(7, "alice")
    await second.close()


async def test_a_row_is_replaced_by_its_key(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1), account("bob", 2)]}, [], at(1))
    await tables.write({"account": [account("alice", 5)]}, [], at(2))
    assert await tables.page("account", {}, "", 10) == ([account("alice", 5), account("bob", 2)], 2)
    assert await get_row(tables, "account", "carol") is None


async def test_of_rows_of_earlier_events_those_that_are_missing_are_added_and_the_others_changed(
    tables: TableWriter,
) -> None:
    """The row of a failed job has the key of its admission: it comes later than its event."""
    await tables.write({"reservation": [reservation(1, "alice"), reservation(2, "bob")]}, [], at(5))
    held, charged = reservation(2, "bob"), reservation(1, "alice", "CHARGED")
    await tables.write({"reservation": [charged]}, [], at(6), after=at(5))
    assert await tables.page("reservation", {}, 0, 10) == ([charged, held], 6)
    paid, missing = reservation(1, "alice", "PAID"), reservation(3, "carol", "PAID")
    await tables.write({"reservation": [paid, missing]}, [], at(7), after=at(6))
    assert await tables.page("reservation", {}, 0, 10) == ([paid, held, missing], 7)


@pytest.mark.parametrize("places", [range(150, 250), range(50, 52), range(0, 200, 2), (7, 3)])
async def test_leaves_that_come_again_replace_those_of_their_places_and_no_others(
    tables: TableWriter, places: Sequence[int]
) -> None:
    """After a rollback: many or few, with and without gaps, in any order."""
    await tables.write({"leaf": [(place, 1, b"old") for place in range(200)]}, [], at(5))
    await tables.write({"leaf": [(place, 2, b"new") for place in places]}, [], at(6), after=at(5))
    old, new = {place: (place, 1, b"old") for place in range(200)}, {place: (place, 2, b"new") for place in places}
    rows, _ = await tables.page("leaf", {}, -1, 1_000)
    assert {row[0]: row for row in rows} == old | new


async def test_of_two_rows_with_one_key_the_later_counts(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1), account("bob", 2), account("alice", 3)]}, [], at(1))
    assert await tables.page("account", {}, "", 10) == ([account("alice", 3), account("bob", 2)], 1)


async def test_a_row_that_is_gone_is_deleted_with_the_checkpoint_that_says_so(reopen: OpenTables) -> None:
    first = reopen()
    await first.open()
    rows = {
        "account": [account("alice", 1), account("bob", 2)],
        "reservation": [reservation(n, "alice") for n in range(1, 5_000)],
    }
    await first.write(rows, [], at(1))
    dead = [row_deleted(n) for n in range(2, 5_000)]
    await first.write({"account": [row_deleted("alice"), account("carol", 3)], "reservation": dead}, [], at(2))
    assert await get_row(first, "account", "alice") is None
    await first.close()
    second = reopen()
    assert await second.open() == at(2)
    assert await second.page("account", {}, "", 10) == ([account("bob", 2), account("carol", 3)], 2)
    assert await second.page("reservation", {"owner": "alice"}, 0, 10) == ([reservation(1, "alice")], 2)
    assert (await dumped(second))[1]["reservation"] == [reservation(1, "alice")]
    await second.close()


async def test_of_a_row_and_its_deletion_the_later_counts(tables: TableWriter) -> None:
    await tables.write(
        {"account": [account("alice", 1), row_deleted("alice"), row_deleted("bob"), account("bob", 2)]}, [], at(1)
    )
    assert await tables.page("account", {}, "", 10) == ([account("bob", 2)], 1)


async def test_deleting_what_is_not_there_changes_nothing(tables: TableWriter) -> None:
    """Rows are written again after a crash: what was deleted is deleted once more."""
    await tables.write({"account": [account("bob", 2)]}, [], at(1))
    for event in (2, 3):
        await tables.write({"account": [row_deleted("alice")], "reservation": [row_deleted(7)]}, [], at(event))
    assert await tables.page("account", {}, "", 10) == ([account("bob", 2)], 3)


async def test_a_row_that_was_deleted_may_come_back(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1)]}, [], at(1))
    await tables.write({"account": [row_deleted("alice")]}, [], at(2))
    await tables.write({"account": [account("alice", 9)]}, [], at(3))
    assert await get_row(tables, "account", "alice") == account("alice", 9)


async def test_rows_are_found_by_any_of_many_values(tables: TableWriter) -> None:
    rows = [reservation(n, f"owner {n % 5}") for n in range(1, 50)]
    await tables.write({"reservation": rows}, [], at(1))
    found = await tables.find("reservation", "owner", ["owner 1", "owner 3", "nobody"])
    assert sorted(found) == [row for row in rows if row[2] in ("owner 1", "owner 3")]
    assert await tables.find("reservation", "owner", []) == []


def test_no_row_of_any_table_can_pass_for_one_that_is_gone() -> None:
    assert is_row_deleted(row_deleted("alice"))
    assert all(len(columns) > 1 for columns in COLUMNS.values())


async def test_values_come_back_as_they_were_at_their_limits_too(tables: TableWriter) -> None:
    rows: list[Row] = [
        (1, bytes(32), "a", 2**63 - 1, 0, None, ReservationStatus.HELD, 0, None, None, None),
        (2**63 - 1, b"\xff" * 32, "b" * 128, 1, 2**31, b"", ReservationStatus.PAID, 2**32, "c", 2**63 - 1, 7),
    ]
    await tables.write({"reservation": rows, "account": [("mint", 1 - 2**63, 0, 0)]}, [], at(1))
    assert [await tables.get("reservation", row[0]) for row in rows] == [(row, 1) for row in rows]
    assert await tables.get("account", "mint") == (("mint", 1 - 2**63, 0, 0), 1)
    assert await tables.get("account", "nobody") == (None, 1)
    assert await tables.page("reservation", {"status": ReservationStatus.PAID}, 0, 9) == (rows[1:], 1)


async def test_names_are_ordered_by_their_bytes(tables: TableWriter) -> None:
    names = sorted(["a", "a-b", "a.b", "a:b", "a_b", "aa", "ab", "a1", "b", "0", "zz", "z"])
    await tables.write({"account": [account(name) for name in reversed(names)]}, [], at(1))
    rows, _ = await tables.page("account", {}, "", 100)
    assert [row[0] for row in rows] == names
    assert [row[0] for row in (await tables.page("account", {}, "a-b", 3))[0]] == names[names.index("a-b") + 1 :][:3]


async def test_whoever_only_looks_sees_the_checkpoint_and_the_rows_beside_the_writer(
    reopen: OpenTables, tables: TableWriter
) -> None:
    await tables.write({"account": [account("alice", 1)]}, [(b"h1", Claim(EventNo(1), 1))], at(4))
    other = reopen()
    assert await other.checkpoint() == at(4)
    assert await other.page("account", {}, "", 9) == ([account("alice", 1)], 4)
    await tables.write({"account": [account("alice", 2)]}, [], at(5))
    assert await other.checkpoint() == at(5)
    assert await get_row(other, "account", "alice") == account("alice", 2)
    assert await other.find_claims([b"h1"]) == ({b"h1": Claim(EventNo(1), 1)}, at(5))
    await other.close()


async def test_a_dump_has_everything_of_one_moment_beside_a_writer_that_goes_on(
    reopen: OpenTables, tables: TableWriter
) -> None:
    rows: dict[str, list[Row]] = {
        "account": [account("alice", 1), account("bob", 2)],
        "reservation": [reservation(n, "alice") for n in range(1, 6_000)],
    }
    claims = [(b"h%d" % n, Claim(EventNo(n), n)) for n in range(1, 6_000)]
    await tables.write(rows, claims, at(1))
    other = reopen()
    found: dict[str, list[Row]] = {"account": [], "reservation": [], CLAIMS: []}
    async for checkpoint, table, chunk in other.dump():
        assert checkpoint == at(1)
        found[table] += chunk
        if await tables.checkpoint() == at(1):
            await tables.write({"account": [account("carol", 1)]}, [(b"x", Claim(EventNo(9), 9))], at(2))
            await tables.drop()
    assert sorted(found["reservation"]) == rows["reservation"]
    assert sorted(found["account"]) == rows["account"]
    assert sorted(found[CLAIMS]) == sorted((claim_id(key), claim.event, claim.checksum, 0) for key, claim in claims)
    await other.close()


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_pages_walk_every_row_once_in_key_order_and_say_as_of(tables: TableWriter, is_newest_first: bool) -> None:
    rows = [reservation(n, "alice" if n % 3 else "bob", "HELD" if n % 2 else "PAID") for n in range(1, 50)]
    await tables.write({"reservation": rows}, [], at(60))
    if is_newest_first:
        rows.reverse()
    seen, after = [], 60 if is_newest_first else 0
    match = {"owner": "alice", "status": "HELD"}
    while True:
        page, as_of = await tables.page("reservation", match, after, 7, is_newest_first=is_newest_first)
        assert as_of == 60
        if not page:
            break
        seen += page
        after = page[-1][0]  # type: ignore[assignment]
    assert seen == [row for row in rows if row[2] == "alice" and row[6] == "HELD"]


async def test_dropping_leaves_nothing(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice")]}, [(b"hkey", Claim(EventNo(1), 2))], at(3))
    await tables.drop()
    assert await tables.open() == JournalHead()
    assert await get_row(tables, "account", "alice") is None
    assert await tables.find_claims([b"hkey"]) == ({}, JournalHead())
    assert [key async for keys in tables.claim_keys() for key in keys] == []


async def test_a_write_that_fails_changes_neither_rows_nor_checkpoint(reopen: OpenTables) -> None:
    tables = reopen()
    await tables.open()
    await tables.write({"account": [account("alice", 1)]}, [(b"h1", Claim(EventNo(1), 1))], at(1))
    if isinstance(tables, SimulatedTables):
        return await tables.close()  # it has no way to fail in the middle
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the store says about a row that is too short
        await tables.write({"account": [account("alice", 2)], "reservation": [(1, 2)]}, [], at(2))
    with pytest.raises(Exception):  # noqa: B017, PT011
        await tables.write({"account": [row_deleted("alice")], "reservation": [(1, 2)]}, [], at(2))
    assert await tables.open() == at(1)
    assert await get_row(tables, "account", "alice") == account("alice", 1)
    await tables.write({"account": [account("alice", 3)]}, [], at(2))
    assert await get_row(tables, "account", "alice") == account("alice", 3)
    return await tables.close()


@pytest.mark.rule("ENG-005")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(lots=st.lists(st.integers(1, 60), max_size=40))
async def test_claims_are_found_in_however_many_sorted_runs_they_came(tables: TableWriter, lots: list[int]) -> None:
    await tables.drop()
    expected: dict[bytes, Claim] = {}
    number = 0
    for size in lots:
        lot = []
        for _ in range(size):
            number += 1
            key = b"h" + (number * 2_654_435_761 % 2**256).to_bytes(32, "little")
            lot.append((key, Claim(EventNo(number), number % 7)))
        expected |= dict(lot)
        await tables.write({}, lot, at(number))
    absent = b"h" + bytes(32)
    assert await tables.find_claims([*expected, absent]) == (expected, at(number) if number else JournalHead())
    for key, claim in expected.items():
        assert (await tables.find_claims([absent, key])).claims == {key: claim}
    assert (await tables.find_claims([])).claims == {}
    in_order = sorted((claim_id(key), claim.event) for key, claim in expected.items())
    for low, high in ((0, 0), (1, 5), (0, 80)):
        wanted = in_order[low : high + 1]
        if wanted:
            found = await tables.find_claim_events(wanted[0][0], wanted[-1][0], 1_000)
            assert sorted(found) == sorted(event for _, event in wanted)
    assert sorted([key async for keys in tables.claim_keys() for key in keys]) == sorted(
        claim_number(key) for key in expected
    )


@pytest.mark.rule("ENG-005", "JOB-002")
async def test_of_two_claims_of_one_id_the_later_counts_in_whichever_run_they_are(tables: TableWriter) -> None:
    key = b"i" + bytes(range(32))
    for number in range(1, 20):
        await tables.write({}, [(key, Claim(EventNo(number), number, 100 + number))], at(number))
        assert (await tables.find_claims([key])).claims == {key: Claim(EventNo(number), number, 100 + number)}


@pytest.mark.rule("ENG-005")
async def test_no_claim_is_missed_by_a_reader_while_sorted_runs_are_merged(
    reopen: OpenTables, tables: TableWriter
) -> None:
    """What a follower does: it reads all claims while the owner goes on writing."""
    number = 0

    async def write_lot() -> bytes:
        nonlocal number
        number += 1
        key = b"h" + number.to_bytes(4, "big")
        await tables.write({}, [(key, Claim(EventNo(number), 1))], at(number))
        return key

    keys = {await write_lot() for _ in range(7)}
    other, seen = reopen(), set[int]()
    async for chunk in other.claim_keys():
        seen |= set(chunk)
        if number < 30:
            await write_lot()
    assert {claim_number(key) for key in keys} <= seen
    await other.close()


@pytest.mark.rule("ENG-005")
async def test_claims_come_with_the_checkpoint_of_their_own_read(reopen: OpenTables, tables: TableWriter) -> None:
    """Whoever finds a claim absent knows up to which batch that is true, whatever is written meanwhile."""
    keys = [b"h" + number.to_bytes(4, "big") for number in range(1, 41)]

    async def write_all() -> None:
        for number, key in enumerate(keys, start=1):
            await tables.write({}, [(key, Claim(EventNo(number), 1))], at(number))

    other = reopen()
    writing = asyncio.create_task(write_all())
    is_over = False
    while not is_over:
        is_over = writing.done()
        await asyncio.sleep(0)  # a simulated store never waits
        claims, checkpoint = await other.find_claims(keys)
        assert claims == {key: Claim(EventNo(n), 1) for n, key in enumerate(keys[: checkpoint.last], start=1)}
    assert checkpoint == at(40)
    await writing
    await other.close()


async def dumped(tables: TableWriter) -> tuple[set[JournalHead], dict[str, list[Row]]]:
    """The moments a dump is from, and all it holds."""
    moments, rows = set(), {table: list[Row]() for table in ("account", "reservation", "claim")}
    async for moment, table, lines in tables.dump():
        moments.add(moment)
        rows[table] += lines
    return moments, {table: sorted(lines, key=lambda row: str(row[0])) for table, lines in rows.items()}


async def test_a_dump_of_empty_tables_still_says_where_they_stand(tables: TableWriter) -> None:
    nothing: dict[str, list[Row]] = {"account": [], "reservation": [], "claim": []}
    assert await dumped(tables) == ({JournalHead()}, nothing)
    await tables.write({}, [], at(5))
    assert await dumped(tables) == ({at(5)}, nothing)


async def test_a_dump_holds_every_row_and_every_claim(tables: TableWriter) -> None:
    accounts = [account(f"a{n:03}", n) for n in range(50)]
    holds = [reservation(n, "a001") for n in range(100, 999)]
    claims = [(b"h" + n.to_bytes(4, "big"), Claim(EventNo(n), n % 5)) for n in range(500)]
    for number in range(0, 500, 50):  # in ten lots, of which eight are merged
        await tables.write({}, claims[number : number + 50], at(number + 1))
    await tables.write({"account": accounts, "reservation": holds}, [], at(1_000))
    moments, rows = await dumped(tables)
    assert moments == {at(1_000)}
    assert rows["account"] == accounts
    assert rows["reservation"] == holds
    assert sorted(rows["claim"]) == sorted((claim_id(key), claim.event, claim.checksum, 0) for key, claim in claims)


async def test_a_dump_is_of_one_moment_though_others_write_and_read_the_newest(
    reopen: OpenTables, tables: TableWriter
) -> None:
    await tables.write({"account": [account("alice", 1), account("bob", 1)]}, [(b"h1", Claim(EventNo(1), 1))], at(1))
    other, seen = reopen(), []
    async for moment, table, rows in other.dump():
        seen += [(moment, table, row) for row in rows]
        later = [account("alice", 2), account("bob", 2), account("carol", 2)]
        await tables.write({"account": later}, [(b"h2" + bytes([len(seen)]), Claim(EventNo(2), 2))], at(2))
        assert await get_row(other, "account", "alice") == account("alice", 2)
    assert sorted(seen, key=str) == [
        (at(1), "account", account("alice", 1)),
        (at(1), "account", account("bob", 1)),
        (at(1), "claim", (claim_id(b"h1"), 1, 1, 0)),
    ]
    await other.close()


async def test_a_dump_that_is_not_read_to_its_end_blocks_no_writer(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1)]}, [], at(1))
    chunks = tables.dump()
    await anext(aiter(chunks))
    await chunks.aclose()  # type: ignore[attr-defined]
    await tables.drop()
    assert await dumped(tables) == ({JournalHead()}, {"account": [], "reservation": [], "claim": []})


@pytest.mark.rule("ENG-004")
@pytest.mark.parametrize("is_public", [0, 1])
async def test_a_record_with_a_flag_comes_back_as_it_was(tables: TableWriter, is_public: int) -> None:
    """Columns hold numbers."""
    result = Result(
        event=EventNo(5), task_id=TaskId(bytes(32)), status=ResultStatus.RESOLVED, height_resolved=Height(1),
        proof_nullifier=Digest(bytes(32)), result_digest=Digest(bytes(32)), result_size=3, mime_type="",
        da_commitment=None, expires_at=Height(9), leaf_index=0, provider_id=ProviderId(bytes(32)),
        payee=AccountId("p"), charged=1, method="attested", reasons="", is_public=is_public,
    )  # fmt: skip
    await tables.write({"result": [msgspec.structs.astuple(result)]}, [], at(1))
    row = await get_row(tables, "result", 5)
    assert row is not None
    assert record_from_row(Result, row) == result


async def test_a_sound_store_finds_no_fault_in_itself(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1)]}, [(b"h1", Claim(EventNo(1), 1))], at(1))
    assert await tables.faults() == []


async def test_dropping_needs_no_opening_and_leaves_them_open(reopen: OpenTables) -> None:
    first = reopen()
    await first.open()
    await first.write({"account": [account("alice", 1)]}, [], at(1))
    await first.close()
    second = reopen()
    await second.drop()
    await second.write({"account": [account("bob", 2)]}, [], at(2))
    assert await second.page("account", {}, "", 10) == ([account("bob", 2)], 2)
    await second.close()


@pytest.mark.rule("ENG-005")
def test_eight_sorted_runs_of_about_one_size_are_merged_and_large_ones_left_alone() -> None:
    assert runs_to_merge([(n, 10, 0) for n in range(7)]) == []
    assert runs_to_merge([(n, 10, 0) for n in range(9)]) == list(range(8))
    assert runs_to_merge([(0, 5_000, 0), *((n, 10 + n, 0) for n in range(1, 9))]) == list(range(1, 9))
    assert len(runs_to_merge([(n, RUN_SIZE_MAX - 1, 0) for n in range(8)])) == 8
    assert runs_to_merge([(n, RUN_SIZE_MAX, 0) for n in range(20)]) == []
    assert runs_to_merge([(n, 10, n % 2) for n in range(14)]) == []  # claims for a while have runs of their own


@pytest.mark.rule("ENG-005", "JOB-002")
async def test_claims_that_have_expired_leave_the_tables_and_no_other_does(tables: TableWriter) -> None:
    """Each counts for 100 ms; some expire in a run that is merged, some with a whole run."""
    valid_ms, lasting, used = 100, dict[bytes, Claim](), dict[bytes, Claim]()
    for now in range(1, 500, 9):
        name = sha256(b"%d" % now).digest()
        lasting[b"j" + name] = Claim(EventNo(now))
        used[b"i" + name] = Claim(EventNo(now), 7, now + valid_ms)
        await tables.write({}, [(b"j" + name, lasting[b"j" + name]), (b"i" + name, used[b"i" + name])], at(now))
        valid = {key: claim for key, claim in used.items() if claim.until_ms > now}
        assert (await tables.find_claims([*lasting, *valid])).claims == lasting | valid
        assert len((await dumped(tables))[1]["claim"]) == len(lasting) + len(valid)
    for now in (700, 701):
        lasting[b"j" + sha256(b"%d" % now).digest()] = Claim(EventNo(now))
        await tables.write({}, list(lasting.items())[-1:], at(now))
    assert (await tables.find_claims([*lasting])).claims == lasting
    if not isinstance(tables, SimulatedTables):
        assert len([key async for keys in tables.claim_keys() for key in keys]) == len(lasting)


async def test_nothing_is_written_after_another_checkpoint_than_the_writer_knows(tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1)]}, [], at(1), after=JournalHead())
    with pytest.raises(Unavailable, match="the tables are at batch 1, not 0"):
        await tables.write({"account": [account("alice", 2)]}, [], at(2), after=JournalHead())
    assert await tables.open() == at(1)
    assert await get_row(tables, "account", "alice") == account("alice", 1)
    await tables.write({"account": [account("alice", 3)]}, [], at(3), after=at(1))
    assert await get_row(tables, "account", "alice") == account("alice", 3)


@pytest.mark.parametrize("reopen", ["postgres", "sqlite"], indirect=True)
async def test_one_writer_at_a_time_and_readers_beside_it(reopen: OpenTables, tables: TableWriter) -> None:
    await tables.write({"account": [account("alice", 1)]}, [], at(1))
    second = reopen()
    opening = asyncio.create_task(second.open())
    done, _ = await asyncio.wait({opening}, timeout=0.2)
    assert not done
    assert await second.checkpoint() == at(1)
    await tables.release()
    assert await opening == at(1)
    await second.write({"account": [account("alice", 2)]}, [], at(2), after=at(1))
    assert await get_row(tables, "account", "alice") == account("alice", 2)  # whoever released the lock reads on
    await second.close()
