"""Disks that fail: errors and kills at chosen system calls, a hung sync, a full disk; nothing confirmed is lost."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.counts import counts
from tests.stories.faults.test_node_killed import Requester, fold_journal, journal_events
from tests.stories.gated_sync import GatedSync, needs_gcc
from tests.stories.node_process import HOLDFAST, NodeProcess
from tests.stories.small_disk import SmallDisk, small_disk

from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.client.node_socket import NodeSocket
from holdfast.client.refusals import UnavailableError
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.state_digest import digest

STRACE = shutil.which("strace")
pytestmark = pytest.mark.rule("ENG-002")
needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is missing: NO FAULTS ARE INJECTED, install it")


class Straced:
    """A node whose system calls go wrong as `injection` says."""

    def __init__(self, data: Path, injection: str) -> None:
        calls = injection.partition(":")[0]
        assert STRACE is not None
        trace = str(data.parent / "strace.log")
        # Only the named calls stop at the tracer; with that filter strace delivers no signals, though.
        only = [] if "signal=" in injection else ["--seccomp-bpf"]
        strace = [STRACE, "-f", "-qq", *only, "-o", trace, "-e", f"trace={calls}", "-e", f"inject={injection}"]
        data.mkdir(exist_ok=True)
        self._lock = data / "owner.lock"
        with (data.parent / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*strace, str(HOLDFAST), "up", "--data", str(data)], stderr=log, start_new_session=True
            )

    @property
    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Both are gone when this returns: the node is no child of ours, but its lock tells."""
        if not self.is_dead:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with self._lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


async def assert_nothing_lost(data: Path, requesters: list[Requester]) -> None:
    """Start a healthy node there and compare everything that was confirmed with everything that happened."""
    node = NodeProcess(data)
    try:
        await node.up()
        async with NodeSocket(data, 60) as client:
            live = await client.call("node.getStateDigest")
        seen, numbers = await journal_events(data)
        assert await node.stop() == 0
    finally:
        node.end()
    confirmed = Counter((what, id_) for each in requesters for what, ids in each.confirmed.items() for id_ in ids)
    assert numbers == list(range(1, len(numbers) + 1))
    assert confirmed - seen == Counter(), "confirmed, yet missing"
    assert [key for key, times in seen.items() if times > 1] == [], "done twice"
    state = await fold_journal(SqliteJournal(data))
    assert digest(state).hex() == live["digest"]
    assert broken_invariants(state.ledger) == []


async def run_requesters(data: Path, requesters: list[Requester], until: int, node: Straced | None = None) -> None:
    """Let the requesters work until so much is confirmed, or the node is dead."""
    stop = asyncio.Event()
    work = [asyncio.create_task(requester.work(stop)) for requester in requesters]
    while sum(requester.count for requester in requesters) < until and not (node is not None and node.is_dead):
        await asyncio.sleep(0.005)
        assert not any(task.done() and task.exception() for task in work)
    stop.set()
    if node is not None and node.is_dead:
        for task in work:
            task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    for requester in requesters:
        await requester.node.close()


async def fund_accounts(data: Path) -> list[Requester]:
    """A folder with money in it, and those who will spend it; no node is left running."""
    healthy = NodeProcess(data)
    try:
        await healthy.up()
        async with NodeSocket(data, 60) as client:
            await client.mint(bytes(32), "alice", 10**9)
        assert await healthy.stop() == 0
    finally:
        healthy.end()
    return [Requester(data, number) for number in range(4)]


@needs_strace
@pytest.mark.parametrize(
    "injection",
    [
        "fdatasync:error=EIO:when=9+9",
        "pwrite64:error=EIO:when=40+37",
        "pwrite64:error=ENOSPC:when=41+41",
    ],
)
async def test_a_disk_that_fails_now_and_then_costs_time_and_nothing_else(data: Path, injection: str) -> None:
    requesters = await fund_accounts(data)
    node = Straced(data, injection)
    try:
        await run_requesters(data, requesters, counts(150, 1_500), node)
    finally:
        node.kill()
    assert "Traceback" not in (data.parent / "node.log").read_text()
    await assert_nothing_lost(data, requesters)


@needs_strace
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
async def test_kill_minus_nine_at_a_chosen_system_call_loses_nothing(data: Path, call: str) -> None:
    requesters = await fund_accounts(data)
    for number in range(2, counts(8, 120), 3):
        at = number if call == "fdatasync" else 5 * number
        node = Straced(data, f"{call}:signal=KILL:when={at}")
        try:
            await run_requesters(data, requesters, 10**9, node)
        finally:
            node.kill()
    await assert_nothing_lost(data, requesters)


@needs_gcc
async def test_a_sync_that_hangs_blocks_only_its_callers(data: Path, tmp_path: Path) -> None:
    gate = GatedSync(tmp_path)
    node = NodeProcess(data, environ=gate.environ)
    try:
        await node.up()
        gate.shut()
        client = NodeSocket(data, 60, answer_timeout_s=60)
        mint = asyncio.create_task(client.mint(bytes(32), "alice", 5))
        for _ in range(50):
            reader, writer = await asyncio.open_unix_connection(data / "node.sock")
            writer.write(b'{"jsonrpc":"2.0","id":1,"method":"no.such.method"}\n')
            assert json.loads(await reader.readline())["error"]["data"]["name"] == "MethodNotFound"
            writer.close()
        assert not mint.done()
        gate.open()
        assert await mint == {"event": 4, "is_repeat": False}
        await client.close()
        assert await node.stop() == 0
    finally:
        gate.open()
        node.end()


async def fill(data: Path, confirmed: list[bytes]) -> None:
    """Until the node says no for the first time; one that is slow is waited for."""
    async with NodeSocket(data, total_timeout_s=0.0, answer_timeout_s=60.0) as impatient:
        for number in range(1, 1_000):
            id_ = number.to_bytes(32, "big")
            await impatient.reserve(id_, "alice", 1, b"m" * 40_000)
            confirmed.append(id_)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=2) as mounted:
        yield mounted


async def test_a_full_disk_is_reported_and_when_there_is_room_again_the_node_goes_on(disk: SmallDisk) -> None:
    data = disk.folder / "data"
    node = NodeProcess(data)
    try:
        await node.up()
        async with NodeSocket(data, 60) as client:
            await client.mint(bytes(32), "alice", 10**9)
        confirmed: list[bytes] = []
        with pytest.raises(UnavailableError, match=r"full|recovering|confirm"):
            await fill(data, confirmed)
        assert len(confirmed) > 5
        disk.resize(64)
        async with NodeSocket(data, 60) as client:
            await client.reserve(b"\xff" * 32, "alice", 1)
            for id_ in confirmed:
                assert (await client.reservation(id_))["memo_size"] == 40_000
        assert await node.stop() == 0
        state = await fold_journal(SqliteJournal(data))
        assert broken_invariants(state.ledger) == []
        assert {id_ in state.ledger.reservations for id_ in confirmed} == {True}
    finally:
        node.end()
