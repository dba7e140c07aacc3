"""The archive against bare loops that do the same: committed and fresh blobs, notices, lag, restart, stalls."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import obstore
import structlog
from tests.seaweedfs import server as seaweedfs

from bench.archive.bench_node import BenchNode, CommittedBlob, bench_policy, bucket_of, committed_blobs
from bench.archive.notices import compare_notices
from bench.measure import Goal, Row, Table, Turn, at_least, at_most, interleave, show, table
from holdfast.adapters.keys.keccak import keccak_256
from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height
from holdfast.core.blob.framing import pack_payload
from holdfast.wire.ans104 import build_item
from holdfast.workers.archive.due_heights import DueHeights

CONCURRENCIES = (1, 4, 16)
HEIGHT_BLOBS = 8
OUTPUT_BLOBS = 16
CHUNK = 100
"""Blocks that are decided together, where only their number matters."""
STALL_GOAL_MS = 10.0
Work = Callable[[int], Awaitable[None]]


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Every comparison, printed as soon as it is measured."""
    rounds, heights, restart, notices = (2, 1, 300, 500) if is_quick else (5, 8, 100_000, 4_000)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    kzg = KzgPool()
    server = seaweedfs.SeaweedServer()
    server.start()
    tables = []
    try:
        blobs = await committed_blobs(kzg, HEIGHT_BLOBS)
        bench = ArchiveBench(folder, server, kzg, blobs)
        comparisons: tuple[Awaitable[Table], ...] = (
            bench.compare_committed(rounds, heights),
            bench.compare_fresh(rounds, OUTPUT_BLOBS if is_quick else 3 * OUTPUT_BLOBS),
            bench.measure_lag(3 if is_quick else 20),
            compare_notices(folder / "notices", blobs, rounds, notices),
            bench.measure_stall(1.0 if is_quick else 10.0),
            bench.measure_restart(restart),
        )
        for comparison in comparisons:
            found = await comparison
            print(show(found), end="\n\n", flush=True)
            tables.append(found)
    finally:
        await kzg.close()
        server.stop()
    return tables


class ArchiveBench:
    """What the measurements share: a server, processes for KZG, and blobs that are committed to."""

    def __init__(self, folder: Path, server: seaweedfs.SeaweedServer, kzg: KzgPool, blobs: list[CommittedBlob]) -> None:
        self._folder, self._server, self._kzg, self._blobs = folder, server, kzg, blobs
        self._signer = SigningKey.from_seed(bytes(32))

    # ------------------------------------------------------------------------------------ uploads

    async def compare_committed(self, rounds: int, heights: int) -> Table:
        """Final blobs until they are archived, verified and recorded, against put and get with the same checks."""
        turns: list[Turn] = []
        order: list[str] = []
        nodes: list[BenchNode] = []
        for at_once in CONCURRENCIES:
            node = BenchNode(self._folder / f"at-{at_once}", self._kzg, bench_policy(uploads_at_once_max=at_once))
            await node.open_real(bucket_of(self._server)[0])
            node.archiver.on_archived = None  # pruning is measured with the lag
            nodes.append(node)
            order += [_bare(at_once), _ours(at_once)]
            turns += [self._archive_turn(node, at_once, heights), self._bare_turn(at_once, heights)]
        figures = await interleave(turns, rounds)
        for node in nodes:
            await node.close()
        title = f"Committed blobs to SeaweedFS, {heights * HEIGHT_BLOBS} a round"
        found = table("archive-committed", title, "blobs/s", figures, order, None)
        for at_once in CONCURRENCIES:
            ratios = [ours / bare for ours, bare in zip(figures[_ours(at_once)], figures[_bare(at_once)], strict=True)]
            found.goals.append(at_least(f"{at_once} at once, to its bare loop", ratios, 0.8))
        found.notes.append("ours also stores an intent, a place by height and a signed record, in a journal that syncs")
        return found

    def _archive_turn(self, node: BenchNode, at_once: int, heights: int) -> Turn:
        async def turn(_: int) -> Mapping[str, float]:
            for _ in range(heights):
                await node.add_height(self._blobs)
            began = time.perf_counter()
            await node.archiver.run_once()
            seconds = time.perf_counter() - began
            assert all(live.blob.assurance == "verified" for live in node.lives)
            return {_ours(at_once): heights * HEIGHT_BLOBS / seconds}

        return turn

    def _bare_turn(self, at_once: int, heights: int) -> Turn:
        objects = bucket_of(self._server)[1]

        async def put_and_get(number: int) -> None:
            blob = self._blobs[number % HEIGHT_BLOBS]
            assert keccak_256(blob.raw) == blob.work.keccak
            item = await asyncio.to_thread(build_item, self._signer, [(b"n", os.urandom(16))], blob.raw)
            assert not isinstance(item, Refused)
            await obstore.put_async(objects._store, f"items/{item[0]}", item[1], mode="create", use_multipart=False)
            raw = bytes(await (await obstore.get_async(objects._store, f"items/{item[0]}")).bytes_async())
            (is_same,) = await self._kzg.verify([(raw[-len(blob.raw) :], blob.work)])
            assert is_same

        async def turn(_: int) -> Mapping[str, float]:
            count = heights * HEIGHT_BLOBS
            return {_bare(at_once): count / await _seconds(count, at_once, put_and_get)}

        return turn

    async def compare_fresh(self, rounds: int, count: int) -> Table:
        """Outputs into blobs of a block: laid out, encrypted, KZG, synced, added, against KZG alone."""
        bare, ours = "bare ckzg, the same processes", "packer"
        node = BenchNode(self._folder / "fresh", self._kzg, bench_policy(blobs_per_block_max=4_096))
        await node.open_real(bucket_of(self._server)[0])
        await node.prepare_accounts()

        async def by_packer(_: int) -> Mapping[str, float]:
            for _ in range(count // OUTPUT_BLOBS):
                await node.heartbeat()
                await node.resolve(os.urandom(OUTPUT_BLOBS * 126_900 - 1_000))
            await node.seal()
            await node.engine.wait_tables()
            before, began = len(node.lives), time.perf_counter()
            await node.packer.run_once()
            seconds = time.perf_counter() - began
            return {ours: (len(node.lives) - before) / seconds}

        async def by_hand(_: int) -> Mapping[str, float]:
            raws = [pack_payload(os.urandom(100_000)) for _ in range(count)]

            async def commit(number: int) -> None:
                await self._kzg.commit(raws[number])

            return {bare: count / await _seconds(count, self._kzg.processes + 1, commit)}

        figures = await interleave([by_packer, by_hand], rounds)
        await node.close()
        title = f"Fresh blobs, {count} a round, {self._kzg.processes} process(es)"
        found = table("archive-fresh", title, "blobs/s", figures, [bare, ours], bare)
        found.goals.append(at_least("packer", found.rows[1].ratios, 0.9))
        return found

    # ------------------------------------------------------------------------------------ time

    async def measure_lag(self, times: int) -> Table:
        """From the block that is final to bytes that are gone, beside one put and one get of an item."""
        node = BenchNode(self._folder / "lag", self._kzg, bench_policy())
        provider, objects = bucket_of(self._server)
        await node.open_real(provider)
        worker = asyncio.create_task(node.archiver.run())
        lags, trips = list[float](), list[float]()
        try:
            for number in range(times):
                began = time.perf_counter()
                await objects.put_once(f"trip/{number}", self._blobs[0].raw)
                await objects.read(f"trip/{number}")
                trips.append((time.perf_counter() - began) * 1_000)
                await node.add_height(self._blobs)
                began = time.perf_counter()
                await node.wait_pruned()
                lags.append((time.perf_counter() - began) * 1_000)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            await node.close()
        block_ms = node.engine.policy.chain.block_ms
        rows = [Row("a put and a get of one item", trips), Row("final → archived → pruned", lags)]
        limit = 2 * sorted(trips)[len(trips) // 2] + block_ms
        goal = at_most(f"{HEIGHT_BLOBS} blobs, two round trips and a block", lags, limit, " ms")
        return Table("archive-lag", f"Lag of a height of {HEIGHT_BLOBS} blobs", "ms", None, rows, [goal])

    async def measure_stall(self, seconds: float) -> Table:
        """How long a timer of a millisecond is late while KZG runs all the time, and while nothing runs."""
        idle = await _late_ms(seconds)
        is_done = False

        async def commit_forever() -> None:
            while not is_done:
                await self._kzg.commit(self._blobs[0].raw)

        running = [asyncio.create_task(commit_forever()) for _ in range(self._kzg.processes + 1)]
        busy = await _late_ms(seconds)
        is_done = True
        await asyncio.gather(*running)
        rows = [Row("idle, at most", [max(idle)]), Row("KZG runs, p99", [sorted(busy)[len(busy) * 99 // 100]])]
        rows.append(Row("KZG runs, at most", [max(busy)]))
        goal = at_most("the event loop waits for KZG", [max(busy)], STALL_GOAL_MS, " ms")
        return Table("archive-stall", "The event loop while KZG runs", "ms late", None, rows, [goal])

    async def measure_restart(self, heights: int) -> Table:
        """Heights that wait for the archive, found by a node that has just started."""
        node = BenchNode(self._folder / "restart", self._kzg, bench_policy())
        await node.open_real(bucket_of(self._server)[0])
        for _ in range(heights // CHUNK):
            await node.add_bare([self._blobs[number % HEIGHT_BLOBS] for number in range(CHUNK)])
        await node.close()
        began = time.perf_counter()
        await node.open_real(bucket_of(self._server)[0])
        opened_s = time.perf_counter() - began
        due = DueHeights(node.engine, node.signer.public)
        late = asyncio.create_task(_late_until(due.rescan()))
        began = time.perf_counter()
        worst_ms = await late
        scan_s = time.perf_counter() - began
        assert due.queue_len == heights
        assert due.take() == Height(1)
        await node.close()
        rows = [Row("start of the engine", [opened_s * 1_000]), Row("scan", [scan_s * 1_000])]
        rows.append(Row("the loop is held, at most", [worst_ms]))
        goal = Goal("every height is found again", f"{due.queue_len} of {heights}", due.queue_len == heights)
        return Table("archive-restart", f"A restart with {heights} unarchived heights", "ms", None, rows, [goal])


# ------------------------------------------------------------------------------------------------ time


def _ours(at_once: int) -> str:
    return f"archiver, {at_once} at once"


def _bare(at_once: int) -> str:
    return f"bare put, get, hash, KZG, {at_once} at once"


async def _seconds(count: int, at_once: int, work: Work) -> float:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return time.perf_counter() - began


async def _late_ms(seconds: float) -> list[float]:
    """By how much each of many short sleeps was too long."""
    late, until = list[float](), time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await asyncio.sleep(0.001)
        late.append((time.perf_counter() - began - 0.001) * 1_000)
    return late


async def _late_until(work: Awaitable[None]) -> float:
    """The longest time that the loop was held while something ran."""
    running, worst = asyncio.ensure_future(work), 0.0
    while not running.done():
        began = time.perf_counter()
        await asyncio.sleep(0)
        worst = max(worst, (time.perf_counter() - began) * 1_000)
    await running
    return worst
