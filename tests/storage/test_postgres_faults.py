"""PostgreSQL goes away in the middle: cuts, killed backends, restarts, silence; what is read then is the truth."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest
from tests.counts import counts
from tests.postgres.server import Address, Server, running
from tests.storage.test_journal import after, all_of, filled
from tests.storage.test_tables import account, at

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.adapters.postgres.listen import LOOK_AGAIN_S
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.core.claim import Claim
from holdfast.core.event import Attachment, Tip, tip_of
from holdfast.core.refusal import Fenced, Unavailable
from holdfast.core.values import BatchNo, Digest, EventNo

CLAIM = [(b"h1", Claim(EventNo(1), 1))]


@pytest.fixture
def address(postgres: Server) -> Address:
    return postgres.address()


@pytest.fixture
async def journal(address: Address) -> AsyncIterator[PostgresJournal]:
    opened = PostgresJournal(*address, patience_s=0.3)
    await opened.own()
    yield opened
    await opened.close()


@pytest.fixture
async def tables(address: Address) -> AsyncIterator[PostgresTables]:
    opened = PostgresTables(*address, patience_s=0.3)
    await opened.open()
    yield opened
    await opened.close()


async def backends(admin: Any, schema: str, purpose: str) -> list[int]:
    name = f"holdfast {schema} {purpose}"
    return [row[0] for row in await admin.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = $1", name)]


async def kill(admin: Any, schema: str, purpose: str) -> None:
    for pid in await backends(admin, schema, purpose):
        await admin.execute("SELECT pg_terminate_backend($1)", pid)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.01)


async def is_blocked(admin: Any, schema: str) -> bool:
    name = f"holdfast {schema} owner"
    found = await admin.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name
    )
    return bool(found)


# ------------------------------------------------------------------------------------------------ the journal


@pytest.mark.rule("ENG-002")
async def test_a_backend_killed_at_any_moment_of_an_append_leaves_the_truth(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    random, unknown = Random(3), 0
    payload = [Attachment(Digest(b"1" * 32), b"a" * 50_000)]
    tip = await journal.tip()
    for n in range(counts(20, 300)):
        (pid,) = await backends(admin, address.schema, "owner")
        batch = after(tip)
        appending = asyncio.create_task(journal.append(batch, payload if n % 2 else ()))
        await asyncio.sleep(random.random() / 500)
        await admin.execute("SELECT pg_terminate_backend($1)", pid)
        (fault,) = await asyncio.gather(appending, return_exceptions=True)
        found = await journal.own()
        assert found in ((tip_of(batch),) if fault is None else (tip, tip_of(batch)))
        assert fault is None or type(fault) is Unavailable
        unknown += fault is not None
        assert len(await journal.attachments(batch.number)) == (n % 2 if found != tip else 0)
        tip = found
    assert unknown, "no append was hit: the test proves nothing"
    assert len(await all_of(journal)) == tip.number


@pytest.mark.rule("ENG-001")
async def test_a_backend_that_still_commits_keeps_everybody_out_until_it_has(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    (first,) = await filled(journal, 1)
    late = after(tip_of(first))
    async with admin.transaction():
        await admin.execute(f"LOCK TABLE {address.schema}.batch_1 IN SHARE MODE")  # a commit that takes its time
        appending = asyncio.create_task(journal.append(late, ()))
        await until(lambda: is_blocked(admin, address.schema))
        assert journal._owned is not None
        journal._owned.connection.terminate()  # our side is gone, its backend does not know yet
        with pytest.raises(Unavailable):
            await appending
        other = PostgresJournal(*address, patience_s=0.3)
        for successor in (journal, other):
            with pytest.raises(Unavailable, match=r"ENG-001: a node on 127.0.0.1 \(backend \d+, .*owner\) owns the"):
                await successor.own()
        assert await other.tip() == tip_of(first)
    await other.wait_free()
    assert await other.own() == tip_of(late), "it landed after all, and before we were let in"
    await other.close()


@pytest.mark.rule("ENG-001")
async def test_an_owner_whose_lock_was_lost_is_stopped_by_the_number(
    journal: PostgresJournal, address: Address, admin: Any
) -> None:
    assert journal._owned is not None
    await journal._owned.connection.execute("SELECT pg_advisory_unlock_all()")  # what must never happen
    other = PostgresJournal(*address)
    tip = await other.own()
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
            await journal.append(after(tip_of(made[-1])), ())
    assert await journal.own() == tip_of(made[-1])
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
    batch = after(Tip())
    async with admin.transaction():
        await admin.execute(f"LOCK TABLE {address.schema}.batch_1 IN SHARE MODE")
        appending = asyncio.create_task(journal.append(batch, ()))
        await until(lambda: is_blocked(admin, address.schema))
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
    with pytest.raises(Unavailable, match="not owned"):
        await journal.append(batch, ())
    await journal.wait_free()
    assert await journal.own() in (Tip(), tip_of(batch))


@pytest.mark.rule("ENG-002")
async def test_a_server_that_falls_silent_is_given_up_in_time(address: Address, admin: Any) -> None:
    journal = PostgresJournal(*address, command_s=0.5, patience_s=0.3)
    await journal.own()
    (pid,) = await backends(admin, address.schema, "owner")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="no answer in time"):
            await asyncio.wait_for(journal.append(after(Tip()), ()), 10)
        with pytest.raises(Unavailable, match="owns the journal"):
            await journal.own()
    finally:
        os.kill(pid, signal.SIGCONT)
    await until(lambda: no_backend(admin, address.schema))
    tip = await journal.own()
    await journal.append(after(tip), ())
    await journal.close()


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
    for use in (journal.tip, journal.own, lambda: journal.append(after(tip_of(made[-1])), ())):
        with pytest.raises(Unavailable):
            await use()
    with pytest.raises(Unavailable):
        await tables.write({"account": [account("alice", 2)]}, [], at(2))
    postgres.start()
    assert await journal.own() == tip_of(made[-1])
    assert await all_of(journal) == made
    await filled(journal, 1)
    checkpoint = await tables.open()
    assert checkpoint in (Tip(), at(1)), "the newest rows may be gone, and the checkpoint says so"
    await tables.write({"account": [account("alice", 2)]}, [], at(2))
    assert await tables.get("account", "alice") == account("alice", 2)


@pytest.mark.rule("ENG-002")
async def test_a_commit_that_came_with_a_warning_is_not_confirmed(postgres_programs: Path) -> None:
    """Cancelled while it waits for a synchronous standby, a commit ends well, although no standby has it."""
    with running(postgres_programs) as server:
        address = server.address()
        journal, admin = PostgresJournal(*address), await asyncpg.connect(server.superuser)
        await journal.own()
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'somebody'")
        await admin.execute("SELECT pg_reload_conf()")
        (pid,) = await backends(admin, address.schema, "owner")
        batch = after(Tip())
        await asyncio.sleep(0.5)  # until every backend has read it
        appending = asyncio.create_task(journal.append(batch, ()))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'"
        await until(lambda: admin.fetchval(waits, pid))
        await admin.execute("SELECT pg_cancel_backend($1)", pid)
        with pytest.raises(Unavailable, match="warning"):
            await asyncio.wait_for(appending, 10)
        await admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await admin.execute("SELECT pg_reload_conf()")
        assert await journal.own() == tip_of(batch)
        await journal.close()
        await admin.close()


async def is_listening(journal: PostgresJournal) -> bool:
    return journal._bell._connection is not None


@pytest.mark.rule("ENG-006")
async def test_a_lost_notification_only_delays(journal: PostgresJournal, address: Address, admin: Any) -> None:
    waiting = asyncio.create_task(journal.wait_beyond(BatchNo(0)))
    await until(partial(is_listening, journal))
    assert journal._bell._connection is not None
    journal._bell._connection._listeners.clear()  # deaf from now on
    await filled(journal, 1)
    await asyncio.wait_for(waiting, LOOK_AGAIN_S + 5)
    waiting = asyncio.create_task(journal.wait_beyond(BatchNo(1)))
    await asyncio.sleep(0.05)
    await kill(admin, address.schema, "follower")
    await filled(journal, 1)
    await asyncio.wait_for(waiting, LOOK_AGAIN_S + 5)


# ------------------------------------------------------------------------------------------------ the tables


async def lots(admin: Any, schema: str) -> list[int]:
    return [row[0] for row in await admin.fetch(f"SELECT size FROM {schema}.lot")]


@pytest.mark.rule("ENG-004", "ENG-005")
async def test_a_write_that_landed_unknown_is_not_done_twice(
    tables: PostgresTables, address: Address, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = tables._writing

    async def cut_off(work: Callable[[Connection], Awaitable[None]]) -> None:
        await really(work)
        assert tables._writer is not None
        tables._writer.terminate()
        raise Unavailable("ENG-002", "the answer was lost")

    monkeypatch.setattr(tables, "_writing", cut_off)
    with pytest.raises(Unavailable, match="the answer was lost"):
        await tables.write({"account": [account("alice", 1)]}, CLAIM, at(1))
    monkeypatch.undo()
    await tables.write({"account": [account("alice", 1)]}, CLAIM, at(1))
    assert await lots(admin, address.schema) == [1]
    await tables.write({"account": [account("alice", 2)]}, [(b"h2", Claim(EventNo(2), 1))], at(2))
    assert await lots(admin, address.schema) == [1, 1]
    assert await tables.open() == at(2)


async def is_written(tables: PostgresTables, rows: Any, claims: Any, checkpoint: Tip) -> bool:
    """What the projector does until it succeeds."""
    try:
        await tables.write(rows, claims, checkpoint)
    except Unavailable:
        return False
    return True


@pytest.mark.rule("ENG-004")
async def test_a_backend_killed_in_the_middle_of_a_write_leaves_all_or_nothing(
    tables: PostgresTables, address: Address, admin: Any
) -> None:
    random = Random(5)
    for n in range(1, counts(10, 100) + 1):
        (pid,) = await backends(admin, address.schema, "tables")
        rows = {"account": [account(f"a{i}", n) for i in range(500)]}
        claims = [(b"%d-%d" % (n, i), Claim(EventNo(n), i)) for i in range(500)]
        writing = asyncio.create_task(tables.write(rows, claims, at(n)))
        await asyncio.sleep(random.random() / 50)
        await admin.execute("SELECT pg_terminate_backend($1)", pid)
        (fault,) = await asyncio.gather(writing, return_exceptions=True)
        page, as_of = await tables.page("account", {}, "", 500)
        assert {row[1] for row in page} == ({as_of} if as_of else set())
        assert as_of in ((n - 1, n) if fault else (n,))
        await until(partial(is_written, tables, rows, claims, at(n)))
        assert sum(await lots(admin, address.schema)) == 500 * n


@pytest.mark.rule("ENG-004")
async def test_a_writer_that_was_replaced_cannot_put_old_rows_over_new_ones(
    tables: PostgresTables, address: Address, admin: Any
) -> None:
    await tables.write({"account": [account("alice", 1)]}, [], at(1))
    successor = PostgresTables(*address, patience_s=0.3)
    with pytest.raises(Unavailable, match="owns the tables"):
        await successor.open()
    assert await successor.checkpoint() == at(1), "whoever only looks needs no lock"
    await kill(admin, address.schema, "tables")
    assert await successor.open() == at(1)
    await successor.write({"account": [account("alice", 3)]}, [], at(3))
    with pytest.raises(Unavailable, match="owns the tables"):
        await tables.write({"account": [account("alice", 2)]}, [], at(2))
    await successor.close()
    with pytest.raises(Unavailable, match="another node has written"):
        await tables.write({"account": [account("alice", 2)]}, [], at(2))
    assert await tables.page("account", {}, "", 9) == ([account("alice", 3)], 3)


@pytest.mark.rule("ENG-004")
async def test_a_projection_that_is_stopped_in_the_middle_can_be_opened_again(
    tables: PostgresTables, address: Address
) -> None:
    for n in range(1, 11):
        rows = {"account": [account(f"a{i}", n) for i in range(2_000)]}
        writing = asyncio.create_task(tables.write(rows, [], at(n)))
        await asyncio.sleep(n / 1000)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        found = await tables.open()
        page, as_of = await tables.page("account", {}, "", 2_000)
        assert found.last == as_of
        assert {row[1] for row in page} == ({as_of} if as_of else set())
