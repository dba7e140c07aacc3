"""Whole PostgreSQL hosts fail: a full disk, a failover to a synchronous replica; and the tests' server without root."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGQUIT

import pytest
from tests.counts import counts
from tests.postgres.server import DATABASE, NOBODY, QUOTED, ROLE, Address, Server, replica_of, running
from tests.storage.stores import PATIENCE_S
from tests.storage.test_journal import after, all_of
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.adapters.postgres.journal import PostgresJournal
from holdfast.client.node_socket import NodeSocket
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import Attachment, Batch, JournalHead, head_of
from holdfast.core.base.values import Digest

MIB = 1 << 20
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.rule("ENG-002")


@contextmanager
def small_disk(mib: int) -> Iterator[Path]:
    """A file system of its own, which root can mount."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755,uid={NOBODY}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("no file system can be mounted here: A FULL DISK UNDER POSTGRESQL IS NOT TESTED, run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def fill(file: Path, left_mib: int) -> None:
    """Leave this much room on the file's disk."""
    with file.open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(file.parent).free - left_mib * MIB)


async def append_until_refused(journal: PostgresJournal, tip: JournalHead) -> tuple[list[Batch], Unavailable]:
    """What was confirmed before the first error, and that error."""
    confirmed: list[Batch] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            batch = after(tip)
            try:
                await journal.append(batch, [Attachment(Digest(bytes(32)), os.urandom(MIB))])
            except Unavailable as fault:
                return confirmed, fault
            confirmed.append(batch)
            tip = head_of(batch)


async def owned_again(journal: PostgresJournal) -> JournalHead:
    async with asyncio.timeout(2 * PATIENCE_S):
        while True:
            with suppress(Unavailable):
                return await journal.acquire()
            await asyncio.sleep(0.1)


async def test_a_full_disk_under_postgresql_loses_nothing_that_was_confirmed(postgres_programs: Path) -> None:
    small = {"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "16MB"}
    with small_disk(192) as disk, running(postgres_programs, disk, **small) as server:
        journal = PostgresJournal(*server.address(), lock_wait_s=PATIENCE_S)
        tip = await journal.acquire()
        fill(disk / "filler", left_mib=8)
        confirmed, fault = await append_until_refused(journal, tip)
        assert confirmed
        assert fault.rule == "ENG-002", (
            "a server that cannot write its log ends all connections: the outcome is unknown"
        )
        (disk / "filler").unlink()
        if not server.is_running:  # its log could not be written: then it ends, as an operator knows it
            server.restart()
        head = await owned_again(journal)
        stored = await all_of(journal)
        assert stored[: len(confirmed)] == confirmed, "what was confirmed is there"
        assert len(stored) <= len(confirmed) + 1, "of the one without an answer all or nothing"
        await journal.append(after(head), ())
        await journal.close()


async def test_a_node_goes_on_at_the_replica_with_everything_that_was_confirmed(
    postgres_programs: Path, tmp_path: Path
) -> None:
    with running(postgres_programs) as primary, replica_of(primary, postgres_programs) as replica:
        node = NodeProcess(tmp_path / "data", environ=on_postgres(either(primary, replica)))
        try:
            async with NodeSocket(await node.up(), PATIENCE_S) as client:
                await client.mint(bytes(32), "alice", 1_000)
                confirmed = await mint_during(client, primary, replica)
                account = await client.account("alice")
                assert account["available"] == 1_000 + len(confirmed)
                numbers = [(await client.mint(id_, "alice", 1))["event"] for id_ in confirmed]
                assert numbers == list(confirmed.values()), "each was done once, under its number"
                assert (await client.status())["term"] > 1
            assert await node.stop() == 0
            assert "Traceback" not in node.log()
        finally:
            node.end()


def either(*servers: Server) -> Address:
    """The address of whichever of them accepts writes."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    dsn = f"postgresql://{ROLE}:{QUOTED}@{hosts}/{DATABASE}?target_session_attrs=read-write"
    return Address(dsn, servers[0].address().schema)


async def mint_during(client: NodeSocket, primary: Server, replica: Server) -> dict[bytes, int]:
    """Mint before, during and after a crash of the primary; the event of each."""
    confirmed: dict[bytes, int] = {}
    count = counts(30, 300)
    for number in range(1, count + 1):
        id_ = number.to_bytes(32, "big")
        minting = asyncio.create_task(client.mint(id_, "alice", 1))
        if number == count // 2:
            await asyncio.sleep(0)
            await asyncio.to_thread(primary.stop, SIGQUIT)
            replica.psql("SELECT pg_promote()")
        confirmed[id_] = (await minting)["event"]
    return confirmed


def test_the_server_of_the_tests_runs_without_root() -> None:
    """Where we are root, as another user of a namespace; where we are not, as we are."""
    alone = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []
    program = (
        "import os; from tests.postgres.server import programs, running\n"
        "with programs() as found, running(found) as server: print(os.getuid() != 0, server.psql('SELECT 42'))"
    )
    command = [*alone, sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if alone and "unshare" in run.stderr:
        pytest.skip("no user namespace here: THE SERVER WITHOUT ROOT IS NOT TESTED, run as another user")
    assert run.stdout == "True 42\n", run.stderr
