"""Notices as an owner takes them: decoded, verified in groups by two processes, checked in order, recorded."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.archive.bench_node import BenchNode, CommittedBlob, bench_policy
from bench.measure import Table, at_least, interleave, table
from holdfast.adapters.keys.keccak import address_of
from holdfast.adapters.keys.signing import verify, verify_all
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.core.archive.decide import accept_notice
from holdfast.core.archive.messages import AcceptNotice
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.blob.model import Blob
from holdfast.engine.outcome import Outcome
from holdfast.ports.sync import SignedBytes
from holdfast.wire.peer_messages import encode_message
from holdfast.workers.archive.archiver import signed
from holdfast.workers.sync.owner_service import OwnerService
from holdfast.workers.sync.sync_metrics import SyncMetrics

PROCESSES = 2
CHUNK = 100
"""Blocks that are decided together."""
BARE, CHECKED = "bare Ed25519 verification", "decoded, verified, all checks in order"
RECORDED = "the same, and recorded in the journal"
NOTHING = [SignedBytes(b"", b"", b"")]


async def compare_notices(folder: Path, blobs: Sequence[CommittedBlob], rounds: int, count: int) -> Table:
    """Against two processes that verify as many signatures and do nothing else."""
    pool, node = KzgPool(PROCESSES), BenchNode(folder, KzgPool(1), bench_policy())
    await node.open_real(node.provider)
    try:
        for _ in range(count // CHUNK):
            await node.add_bare([blobs[number % len(blobs)] for number in range(CHUNK)])
        bench = NoticeBench(node, pool)
        with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as bare:
            figures = await interleave([lambda _: bench.by_hand(bare), bench.check, bench.record], rounds)
    finally:
        await node.close()
        await pool.close()
    title = f"Notices of version 1, {count} a round, {PROCESSES} verifying processes"
    found = table("archive-notices", title, "notices/s", figures, [BARE, CHECKED, RECORDED], BARE)
    found.goals.append(at_least("notices verified", figures[CHECKED], 5_000, "/s"))
    return found


class NoticeBench:
    """An owner with heights that wait, and notices about all of them, with other locators in every round."""

    def __init__(self, node: BenchNode, pool: KzgPool) -> None:
        self._node, self._pool = node, pool

    def _notices(self, round_: int) -> list[ArchiveNotice]:
        return [signed(self._notice(live.blob, round_), self._node.signer) for live in self._node.lives]

    def _notice(self, blob: Blob, round_: int) -> ArchiveNotice:
        return ArchiveNotice(
            version=1,
            height=blob.height,
            blob_index=blob.number,
            kzg_commitment=blob.commitment,
            blob_keccak=blob.keccak,
            provider_id="s3",
            locator=f"s3://bucket/{round_}/{os.urandom(32).hex()}.ans104",
            archived_by=address_of(self._node.signer.public),
            archived_at=1_800_000_000,
            chain_id=self._node.engine.policy.chain_id,  # type: ignore[arg-type]
            versioned_hash=blob.versioned_hash,
        )

    async def by_hand(self, pool: ProcessPoolExecutor) -> Mapping[str, float]:
        key, loop = self._node.signer.public, asyncio.get_running_loop()
        every = [SignedBytes(key, notice_root(each), each.signature) for each in self._notices(0)]
        parts = [every[number::PROCESSES] for number in range(PROCESSES)]
        await asyncio.gather(*(loop.run_in_executor(pool, verify_all, each[:1]) for each in parts))  # they start
        began = time.perf_counter()
        answers = await asyncio.gather(*(loop.run_in_executor(pool, verify_all, each) for each in parts))
        seconds = time.perf_counter() - began
        assert all(map(all, answers))
        return {BARE: len(every) / seconds}

    async def check(self, round_: int) -> Mapping[str, float]:
        """Everything but the record: what is decided is not applied."""
        state = self._node.engine.undurable_state

        async def decide(commands: Sequence[Command]) -> list[Outcome]:
            assert all(isinstance(each, AcceptNotice) for each in commands)
            outcomes = [accept_notice(state, each, 0) for each in commands]  # type: ignore[arg-type]
            assert not any(isinstance(each, Refused) for each in outcomes), outcomes
            return outcomes  # type: ignore[return-value]

        return {CHECKED: await self._rate(round_, decide)}

    async def record(self, round_: int) -> Mapping[str, float]:
        return {RECORDED: await self._rate(round_, self._node.engine.submit_many)}

    async def _rate(self, round_: int, submit_many: object) -> float:
        engine, files, metrics = self._node.engine, self._node.files, SyncMetrics()
        service = OwnerService(engine, files, verify, address_of, submit_many, metrics, self._pool)  # type: ignore[arg-type]
        messages = [encode_message(notice) for notice in self._notices(round_)]
        await asyncio.gather(*(self._pool.verify_signatures(NOTHING) for _ in range(2 * PROCESSES)))  # they start
        began = time.perf_counter()
        await service.receive(messages)
        seconds = time.perf_counter() - began
        assert not metrics.failures, metrics.failures
        return len(messages) / seconds
