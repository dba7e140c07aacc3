"""What only PostgreSQL can get wrong: settings, roles, schemas, partitions, snapshots held by others, secrets."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.postgres.server import PASSWORD, QUOTED, ROLE, Address, Server, running
from tests.storage.stores import PATIENCE_S
from tests.storage.test_journal import WITHIN_S, after, all_of, filled
from tests.storage.test_tables import account, at

from holdfast.adapters.postgres.connect import Database
from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.migrate import migrate
from holdfast.adapters.postgres.server import check_server, unsafe_settings
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.adapters.sql.named_queries import migrations
from holdfast.adapters.sql.table_schema import COLUMNS
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import Attachment, JournalHead, head_of
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.core.index.unique_ids import Claim

ONE, TWO = "CREATE TABLE one (x int);", "CREATE TABLE two (x int);"
BROKEN = "CREATE TABLE two (x int); CREATE TABLE one (x int);"


@pytest.fixture
def address(postgres: Server) -> Address:
    return postgres.address()


@pytest.fixture
async def journal(address: Address) -> AsyncIterator[PostgresJournal]:
    opened = PostgresJournal(*address, partition_batches=10, lock_wait_s=PATIENCE_S)
    await opened.acquire()
    yield opened
    await opened.close()


def as_role(server: Server, role: str, *settings: str) -> Address:
    """A schema for a new role that is not a superuser."""
    server.psql(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON DATABASE holdfast TO {role}")
    for setting in settings:
        server.psql(f"ALTER ROLE {role} SET {setting}")
    return Address(server.dsn(role), server.address().schema)


async def why_not(journal: PostgresJournal) -> str:
    try:
        with pytest.raises((Unavailable, Corrupt)) as refused:
            await journal.acquire()
    finally:
        await journal.close()
    return str(refused.value)


async def tables_in(admin: Any, schema: str) -> set[str]:
    rows = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    return {row[0] for row in rows}


# ------------------------------------------------------------------------------------------------ can it be trusted?


@pytest.mark.rule("ENG-002")
async def test_an_untuned_server_has_no_unsafe_settings_and_a_role_without_rights_is_enough(
    postgres: Server, address: Address, admin: Any
) -> None:
    assert not await admin.fetchval(
        "SELECT rolsuper OR rolcreatedb OR rolcreaterole FROM pg_roles WHERE rolname = $1", ROLE
    )
    connection = await asyncpg.connect(postgres.dsn())
    assert await unsafe_settings(connection) == []
    assert await connection.fetchval("SHOW fsync") == "on"
    await connection.close()
    journal = PostgresJournal(*address)
    await journal.acquire()
    await filled(journal, 2)
    await journal.close()


@pytest.mark.rule("ENG-002")
async def test_a_role_that_does_not_wait_for_the_disk_is_refused_unless_allowed(postgres: Server) -> None:
    place = as_role(postgres, "careless", "synchronous_commit = off")
    says = await why_not(PostgresJournal(*place))
    assert says.startswith("ENG-002: PostgreSQL has synchronous_commit = off: a crash of the server loses")
    assert "postgres.allow_unsafe" in says
    journal = PostgresJournal(*place, allow_unsafe=True)
    assert await journal.acquire() == JournalHead()
    await filled(journal, 1)
    await journal.close()


@pytest.mark.rule("ENG-002")
async def test_a_server_that_does_not_sync_and_one_that_only_follows_are_refused(postgres_programs: Path) -> None:
    with running(postgres_programs, fsync="off", full_page_writes="off") as server:
        place = server.address()
        says = await why_not(PostgresJournal(*place))
        assert "fsync = off" in says
        assert "full_page_writes = off" in says
        assert "synchronous_commit" not in says
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        says = await why_not(PostgresJournal(server.dsn(), place.schema, allow_unsafe=True))
        assert "is a standby (put the primary into the DSN)" in says


async def test_a_read_only_role_is_refused(postgres: Server) -> None:
    place = as_role(postgres, "reader", "default_transaction_read_only = on")
    assert "session is read-only" in await why_not(PostgresJournal(*place))


async def test_a_server_that_is_too_old_is_refused() -> None:
    class Old:
        async def fetchrow(self, _: str) -> tuple[object, ...]:
            return 13, False, False

    with pytest.raises(Unavailable, match="PostgreSQL 13 is too old"):
        await check_server(Old(), allow_unsafe=True)


async def test_limits_that_a_role_was_given_do_not_end_an_idle_owner(postgres: Server) -> None:
    limits = ("idle_session_timeout = 100", "statement_timeout = 1", "lock_timeout = 1")
    journal = PostgresJournal(*as_role(postgres, "hasty", *limits))
    await journal.acquire()
    await asyncio.sleep(0.3)
    await filled(journal, 1)
    await journal.close()


# ------------------------------------------------------------------------------------------------ schemas and roles


async def test_a_role_with_nothing_but_a_schema_of_its_own_is_enough(postgres: Server) -> None:
    postgres.psql(f"CREATE ROLE lodger LOGIN PASSWORD '{PASSWORD}'")
    place = Address(postgres.dsn("lodger"), "lodging")
    says = await why_not(PostgresJournal(*place))
    assert "permission denied for database holdfast" in says
    assert "CREATE on the database, or a schema of its own" in says
    postgres.psql("CREATE SCHEMA lodging AUTHORIZATION lodger")
    journal, tables = PostgresJournal(*place), PostgresTables(*place)
    await journal.acquire()
    await filled(journal, 2)
    await tables.open()
    await tables.write({"account": [account("alice")]}, [(b"h", Claim(EventNo(1), 1))], at(1))
    await journal.close()
    await tables.close()


async def test_two_networks_in_one_database_do_not_see_each_other(postgres: Server) -> None:
    journals = [PostgresJournal(*postgres.address()) for _ in range(2)]
    for count, journal in enumerate(journals, start=1):
        await journal.acquire()
        await filled(journal, count)
    follower = asyncio.create_task(journals[0].wait_after(BatchNo(1)))
    await filled(journals[1], 3)
    await asyncio.sleep(0.05)
    assert not follower.done()
    assert [(await journal.tip()).number for journal in journals] == [1, 5]
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    for journal in journals:
        await journal.close()


@pytest.mark.parametrize("name", ["", "Upper", "1st", "pg_mine", 'a"; DROP', "a" * 41, "a\n", "ä"])
def test_a_name_that_is_no_schema_is_refused(name: str) -> None:
    with pytest.raises(Unavailable, match="cannot be a schema"):
        PostgresJournal("postgresql://x", name)


@pytest.mark.rule("ENG-001")
async def test_reading_where_nothing_is_stored_says_so_and_makes_nothing(address: Address, admin: Any) -> None:
    journal, tables = PostgresJournal(*address), PostgresTables(*address)
    with pytest.raises(Unavailable, match="no journal in schema"):
        await journal.tip()
    with pytest.raises(Unavailable, match="no tables in schema"):
        await tables.checkpoint()
    await journal.close()
    await tables.close()
    assert await tables_in(admin, address.schema) == set()


@pytest.mark.rule("ENG-004")
async def test_migrations_go_forward_resume_and_are_not_done_twice_at_once(address: Address, admin: Any) -> None:
    database = Database(*address)
    one, two = await database.connect("one"), await database.connect("two")
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(one, database, "test", (ONE, BROKEN))  # its first statement succeeds, its second does not
    assert await tables_in(admin, address.schema) == {"schema_format", "one"}
    await asyncio.gather(migrate(one, database, "test", (ONE, TWO)), migrate(two, database, "test", (ONE, TWO)))
    assert await tables_in(admin, address.schema) == {"schema_format", "one", "two"}
    with pytest.raises(Corrupt, match=r"has schema 2 of 'test', this program knows 1.*newer Holdfast"):
        await migrate(one, database, "test", (ONE,))
    await one.close()
    await two.close()


@pytest.mark.rule("ENG-004")
async def test_a_later_migration_of_the_tables_keeps_their_rows(address: Address, admin: Any) -> None:
    tables = PostgresTables(*address)
    await tables.open()
    await tables.write({"account": [account("alice", 7)]}, [], at(1))
    await tables.close()
    database, schema = Database(*address), migrations("postgres_tables")
    connection = await database.connect("test")
    later = "ALTER TABLE account ADD COLUMN note text NOT NULL DEFAULT '-';"
    await migrate(connection, database, "tables", (*schema, later))
    row = await connection.fetchrow("SELECT * FROM account")
    assert tuple(row) == (*account("alice", 7), "-")
    assert await connection.fetchval("SELECT number FROM schema_format WHERE name = 'tables'") == len(schema) + 1
    await connection.close()


async def test_the_columns_of_a_table_are_those_of_its_record(address: Address, admin: Any) -> None:
    tables = PostgresTables(*address)
    await tables.open()
    await tables.close()
    rows = await admin.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1"
        " ORDER BY table_name, ordinal_position",
        address.schema,
    )
    for table, columns in COLUMNS.items():
        assert sorted(row[1] for row in rows if row[0] == table) == sorted(columns), table


@pytest.mark.rule("ENG-004")
async def test_stores_of_a_newer_version_are_refused_by_writers_and_readers(address: Address, admin: Any) -> None:
    journal, tables = PostgresJournal(*address), PostgresTables(*address)
    await journal.acquire()
    await tables.open()
    await journal.close()
    await tables.close()
    schema, uses = address.schema, (journal.acquire, journal.tip, tables.open, tables.checkpoint, tables.drop)
    await admin.execute(f"UPDATE {schema}.schema_format SET number = 99")
    for use in uses:
        with pytest.raises(Corrupt, match="newer Holdfast"):
            await use()
    for change in ("UPDATE {}.schema_format SET format = 2", "CREATE TABLE {}.schema_version (name text)"):
        await admin.execute(change.format(schema))
        for use in uses:
            with pytest.raises(Corrupt, match="written by another version of Holdfast"):
                await use()


@pytest.mark.rule("ENG-003")
async def test_a_journal_whose_table_is_gone_is_damage_and_not_made_again(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    await filled(journal, 2)
    await admin.execute(f"DROP TABLE {address.schema}.batch CASCADE")
    with pytest.raises(Corrupt, match="a table is gone"):
        await journal.append(after(JournalHead()), ())
    with pytest.raises(Corrupt, match="a table is gone"):
        await journal.acquire()


@pytest.mark.rule("ENG-004")
async def test_tables_that_are_damaged_can_be_dropped_and_are_open_again(address: Address, admin: Any) -> None:
    tables = PostgresTables(*address)
    await tables.open()
    await tables.write({"account": [account("alice")]}, [], at(1))
    await admin.execute(f"DROP TABLE {address.schema}.reservation, {address.schema}.checkpoint")
    with pytest.raises(Corrupt, match="a table is gone"):
        await tables.checkpoint()
    await tables.drop()
    await tables.write({"account": [account("bob")]}, [], at(1))
    assert await tables.page("account", {}, "", 9) == ([account("bob")], 1)
    await tables.close()


# ------------------------------------------------------------------------------------------------ partitions


async def partitions_of(admin: Any, schema: str) -> list[int]:
    return sorted(int(name[6:]) for name in await tables_in(admin, schema) if name.startswith("batch_"))


async def test_partitions_are_made_ahead_and_dropped_whole(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    made = await filled(journal, 35)
    payload = Attachment(Digest(b"1" * 32), b"a" * 9_000)
    made.append(after(head_of(made[-1])))
    await journal.append(made[-1], [payload])
    assert await partitions_of(admin, address.schema) == [1, 11, 21, 31]
    assert await all_of(journal) == made
    await journal.trim(BatchNo(25))
    assert await partitions_of(admin, address.schema) == [21, 31]
    assert (await journal.trimmed_until(), await all_of(journal)) == (25, made[25:])
    await journal.trim(BatchNo(99))
    assert (await journal.trimmed_until(), await all_of(journal)) == (35, made[35:])
    assert await journal.attachments(made[-1].number) == [payload]
    assert len(await filled(journal, 10)) == 10


async def test_another_size_of_partitions_goes_on_where_the_old_one_ended(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    await filled(journal, 10)
    await journal.close()
    larger = PostgresJournal(*address, partition_batches=100)
    assert (await larger.acquire()).number == 10
    await filled(larger, 101)
    assert await partitions_of(admin, address.schema) == [1, 11, 111]
    assert (await larger.tip()).number == 111
    await larger.close()


async def test_bodies_are_stored_as_they_are(journal: PostgresJournal, address: Address, admin: Any) -> None:
    await filled(journal, 11)
    storage = await admin.fetch(
        "SELECT attrelid::regclass::text, attstorage FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE attname IN ('body', 'raw') AND relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')",
        address.schema,
    )
    assert len(storage) == 6
    assert {row[1] for row in storage} == {b"e"}


@pytest.mark.rule("ENG-004")
async def test_a_snapshot_that_another_session_holds_blocks_nothing(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    tables = PostgresTables(*address)
    await tables.open()
    made = await filled(journal, 9)
    await tables.write({"account": [account("alice", 1)]}, [], at(1))
    async with admin.transaction(isolation="repeatable_read"):
        for table in ("batch", "attachment", "account", "reservation", "claim_page"):
            await admin.fetch(f"SELECT * FROM {address.schema}.{table}")
        made += await filled(journal, 20)  # over the borders of partitions
        await tables.write({"account": [account("alice", 2)]}, [(b"h", Claim(EventNo(1), 1))], at(2))
        await journal.trim(BatchNo(15))
        assert (await journal.trimmed_until(), await all_of(journal)) == (15, made[15:])
        await tables.drop()
        assert await tables.open() == JournalHead()
        assert await tables.page("account", {}, "", 9) == ([], 0)
    await journal.trim(BatchNo(15))
    assert await partitions_of(admin, address.schema) == [11, 21], "dropped as soon as nobody looks"
    await tables.close()


# ------------------------------------------------------------------------------------------------ secrets


@pytest.mark.rule("SEC-001")
async def test_the_password_never_shows_whatever_goes_wrong(postgres: Server) -> None:
    good, secret = postgres.dsn(), "hunter2-no-one-may-see"
    wrong = [
        good.replace(QUOTED, secret),
        good.replace("/holdfast", "/nowhere").replace(ROLE, "postgres"),
        f"postgresql://u:{secret}@127.0.0.1:1/x",
        f"postgresql://u:{secret}@no-such-host.invalid/x",
        f"postgresql://u:{secret}@127.0.0.1:port/x",
        f"postgresql://u:{secret}@[::1/x",
        f"mysql://u:{secret}@h/x",
        f"postgresql://u@{secret}:{secret}/x?sslmode={secret}",
        f"postgresql://u:{secret}@127.0.0.1:{postgres.port}/x?sslmode=require",
    ]
    for dsn in wrong:
        for store in (PostgresJournal(dsn), PostgresTables(dsn)):
            with pytest.raises((Unavailable, Corrupt)) as refused:
                await (store.acquire() if isinstance(store, PostgresJournal) else store.open())
            told = [*traceback.format_exception(refused.value), repr(refused.value), repr(vars(store))]
            told += [repr(vars(store._database)), repr(refused.value.__dict__)]
            assert not [text for text in told if secret in text or QUOTED in text or PASSWORD in text], dsn
            await store.close()


async def test_a_host_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        journal = PostgresJournal(f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/x", connect_s=0.3)
        with pytest.raises(Unavailable, match="no answer in time"):
            await asyncio.wait_for(journal.acquire(), WITHIN_S)
        await journal.close()
