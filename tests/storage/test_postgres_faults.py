"""PostgreSQL fails in the middle of an append: cuts, killed backends, restarts, silence; the next read is correct."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest
from tests.counts import counts
from tests.postgres.server import Address, Server, running
from tests.storage.postgres_backends import backends, is_blocked, kill, owner_of, table_locked, until
from tests.storage.stores import PATIENCE_S, impatient
from tests.storage.test_journal import WITHIN_S, after, all_of, filled
from tests.storage.test_tables import account, at

from holdfast.adapters.postgres.connect import COMMAND_S
from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.listen import RECHECK_S
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, JournalHead, head_of
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.core.index.unique_ids import Claim

CLAIM = [(b"h1", Claim(EventNo(1), 1))]


@pytest.fixture
def address(postgres: Server) -> Address:
    return postgres.address()


@pytest.fixture
async def journal(address: Address) -> AsyncIterator[PostgresJournal]:
    opened = PostgresJournal(*address, lock_wait_s=PATIENCE_S)
    await opened.acquire()
    yield opened
    await opened.close()


@pytest.fixture
async def tables(address: Address) -> AsyncIterator[PostgresTables]:
    opened = PostgresTables(*address, lock_wait_s=PATIENCE_S)
    await opened.open()
    yield opened
    await opened.close()


@pytest.mark.rule("ENG-002")
async def test_a_backend_killed_at_any_moment_of_an_append_leaves_the_truth(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    random, tip = Random(3), await journal.tip()
    payload = [Attachment(Digest(b"1" * 32), b"a" * 50_000)]
    for n in range(counts(20, 300)):
        batch, attachments = after(tip), payload if n % 2 else []
        appending = asyncio.create_task(journal.append(batch, attachments))
        await asyncio.sleep(random.random() / 500)
        await admin.execute("SELECT pg_terminate_backend($1)", owner_of(journal))
        tip = await assert_all_or_nothing(journal, appending, batch, attachments)
    assert len(await all_of(journal)) == tip.number


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("table", ["batch_1", "attachment_1"])
async def test_a_backend_killed_before_any_table_of_an_append_leaves_nothing_of_it(
    journal: PostgresJournal, address: Address, admin: Any, table: str
) -> None:
    (first,) = await filled(journal, 1)
    batch, attachments = after(head_of(first)), [Attachment(Digest(b"1" * 32), b"a" * 50_000)]
    async with table_locked(admin, f"{address.schema}.{table}"):
        appending = asyncio.create_task(journal.append(batch, attachments))
        await until(lambda: is_blocked(admin, address.schema))
        await admin.execute("SELECT pg_terminate_backend($1)", owner_of(journal))
        await asyncio.wait({appending})
    assert isinstance(appending.exception(), Unavailable)
    assert await assert_all_or_nothing(journal, appending, batch, attachments) == head_of(first)


async def assert_all_or_nothing(
    journal: PostgresJournal, appending: asyncio.Task[None], batch: Batch, attachments: list[Attachment]
) -> JournalHead:
    """The head of the journal after the append of a batch was cut."""
    (fault,) = await asyncio.gather(appending, return_exceptions=True)
    assert fault is None or type(fault) is Unavailable
    found = await journal.acquire()
    is_there = found == head_of(batch)
    assert is_there or (fault is not None and found.hash == batch.parent)
    assert await journal.attachments(batch.number) == (attachments if is_there else [])
    return found


@pytest.mark.rule("ENG-001")
async def test_a_backend_that_still_commits_keeps_everybody_out_until_it_has(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    (first,) = await filled(journal, 1)
    late = after(head_of(first))
    async with table_locked(admin, f"{address.schema}.batch_1"):  # a commit that takes its time
        appending = asyncio.create_task(journal.append(late, ()))
        await until(lambda: is_blocked(admin, address.schema))
        assert journal._appender is not None
        journal._appender.connection.terminate()  # our side is gone, its backend does not know yet
        with pytest.raises(Unavailable):
            await appending
        other = PostgresJournal(*address)
        for successor in (impatient(journal), impatient(other)):
            with pytest.raises(Unavailable, match=r"ENG-001: a node on 127.0.0.1 \(backend \d+, .*owner\) owns the"):
                await successor.acquire()
        assert await other.tip() == head_of(first)
    await other.wait_until_unowned()
    assert await other.acquire() == head_of(late), "it landed after all, and before we were let in"
    await other.close()


@pytest.mark.rule("ENG-001")
async def test_an_owner_whose_lock_was_lost_is_stopped_by_the_number(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    assert journal._appender is not None
    await journal._appender.connection.execute("SELECT pg_advisory_unlock_all()")  # what must never happen
    other = PostgresJournal(*address)
    tip = await other.acquire()
    await other.append(after(tip, events=3), ())
    with pytest.raises(Fenced, match="another owner has written"):
        await journal.append(after(tip), ())
    assert len(await all_of(other)) == 1
    await other.close()


@pytest.mark.rule("ENG-002")
async def test_after_an_unknown_outcome_nothing_is_appended_before_owning_again(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    made = await filled(journal, 1)
    await kill(admin, address.schema, "owner")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await journal.append(after(head_of(made[-1])), ())
    assert await journal.acquire() == head_of(made[-1])
    await filled(journal, 1)


async def test_an_idle_owner_leaves_no_transaction_open(journal: PostgresJournal, address: Address, admin: Any) -> None:
    ask = "SELECT state, backend_xmin FROM pg_stat_activity WHERE application_name = $1"
    for _ in range(2):
        assert [tuple(row) for row in await admin.fetch(ask, f"holdfast {address.schema} owner")] == [("idle", None)]
        await filled(journal, 1)


@pytest.mark.rule("ENG-002")
async def test_a_caller_that_gives_up_leaves_an_append_whose_outcome_is_looked_up(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    batch = after(JournalHead())
    async with table_locked(admin, f"{address.schema}.batch_1"):
        appending = asyncio.create_task(journal.append(batch, ()))
        await until(lambda: is_blocked(admin, address.schema))
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
    with pytest.raises(Unavailable, match="not owned"):
        await journal.append(batch, ())
    await journal.wait_until_unowned()
    assert await journal.acquire() in (JournalHead(), head_of(batch))


@pytest.mark.rule("ENG-002")
async def test_a_server_that_falls_silent_is_given_up_in_time(address: Address, admin: Any) -> None:
    journal = PostgresJournal(*address, command_s=0.5, lock_wait_s=PATIENCE_S)
    await until(partial(is_owned, journal))  # half a second may be too little for a sound server, too
    pid, journal._database._command_s = owner_of(journal), COMMAND_S
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="no answer in time"):
            await asyncio.wait_for(journal.append(after(JournalHead()), ()), WITHIN_S)
        with pytest.raises(Unavailable, match="owns the journal"):
            await impatient(journal).acquire()
    finally:
        os.kill(pid, signal.SIGCONT)
    await until(lambda: no_backend(admin, address.schema))
    tip = await journal.acquire()
    await journal.append(after(tip), ())
    await journal.close()


async def is_owned(journal: PostgresJournal) -> bool:
    try:
        await journal.acquire()
    except Unavailable:
        return False
    return True


async def no_backend(admin: Any, schema: str) -> bool:
    return not await backends(admin, schema, "owner")


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["in order", "as a crash"])
async def test_the_server_restarts_and_everything_confirmed_is_there(
    postgres: Server, journal: PostgresJournal, tables: PostgresTables, how: signal.Signals
) -> None:
    made = await filled(journal, 20)
    await tables.write({"account": [account("alice", 1)]}, CLAIM, at(1))
    postgres.stop(how)
    for use in (journal.tip, journal.acquire, lambda: journal.append(after(head_of(made[-1])), ())):
        with pytest.raises(Unavailable):
            await use()
    with pytest.raises(Unavailable):
        await tables.write({"account": [account("alice", 2)]}, [], at(2))
    postgres.start()
    assert await journal.acquire() == head_of(made[-1])
    assert await all_of(journal) == made
    await filled(journal, 1)
    checkpoint = await tables.open()
    assert checkpoint in (JournalHead(), at(1)), "the newest rows may be gone, and the checkpoint says so"
    await tables.write({"account": [account("alice", 2)]}, [], at(2))
    assert await tables.get("account", "alice") == (account("alice", 2), 2)


@pytest.mark.rule("ENG-002")
async def test_a_commit_that_came_with_a_warning_is_not_confirmed(postgres_programs: Path) -> None:
    """Cancelled while it waits for a synchronous standby, a commit ends well, although no standby has it."""
    with running(postgres_programs) as server:
        address = server.address()
        journal = PostgresJournal(*address, lock_wait_s=PATIENCE_S)
        admin = await asyncpg.connect(server.superuser)
        await journal.acquire()
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'somebody'")
        await admin.execute("SELECT pg_reload_conf()")
        batch, appending = await one_that_waits(journal, admin)
        await admin.execute("SELECT pg_cancel_backend($1)", owner_of(journal))
        with pytest.raises(Unavailable, match="warning"):
            await asyncio.wait_for(appending, WITHIN_S)
        await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await admin.execute("SELECT pg_reload_conf()")
        assert await journal.acquire() == head_of(batch)
        await journal.close()
        await admin.close()


async def one_that_waits(journal: PostgresJournal, admin: Any) -> tuple[Batch, asyncio.Task[None]]:
    """The first append that waits for the standby: each of the server's processes reads the setting in its own time."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'"
    tip = JournalHead()
    async with asyncio.timeout(WITHIN_S):
        while True:
            batch = after(tip)
            appending = asyncio.create_task(journal.append(batch, ()))
            while not appending.done():
                if await admin.fetchval(waits, owner_of(journal)):
                    return batch, appending
            await appending
            tip = head_of(batch)


async def is_listening(journal: PostgresJournal) -> bool:
    return journal._notifier._connection is not None


@pytest.mark.rule("ENG-006")
async def test_a_lost_notification_only_delays(journal: PostgresJournal, address: Address, admin: Any) -> None:
    waiting = asyncio.create_task(journal.wait_after(BatchNo(0)))
    await until(partial(is_listening, journal))
    assert journal._notifier._connection is not None
    journal._notifier._connection._listeners.clear()  # deaf from now on
    await filled(journal, 1)
    await asyncio.wait_for(waiting, RECHECK_S + WITHIN_S)
    waiting = asyncio.create_task(journal.wait_after(BatchNo(1)))
    await asyncio.sleep(0.05)
    await kill(admin, address.schema, "follower")
    await filled(journal, 1)
    await asyncio.wait_for(waiting, RECHECK_S + WITHIN_S)
