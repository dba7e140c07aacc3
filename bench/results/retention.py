"""Retention (RET-002): results deleted per second in each pass, against SQL by hand, and what the loop waits for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

import apsw

from bench.engine.contestant import ALICE
from bench.engine.opened import close_engine, open_engine, until_in_tables
from bench.measure import Table, at_least, at_most, interleave, show, table
from bench.queue.contestant import live_leases
from bench.stores import StorePlace
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, Digest, Network, Tier
from holdfast.core.chain.messages import SealBlock
from holdfast.core.escrow.messages import Mint
from holdfast.core.match.messages import Match
from holdfast.core.policy import AdmissionPolicy, ChainPolicy, Policy, QuotaPolicy, ResultPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.result import result_digest, result_hasher
from holdfast.core.retention.model import Pass
from holdfast.engine.loop import Engine
from holdfast.workers.retention.collector import Collector

OUTPUT_BYTES = 400
BATCH = 250
SEAL = SealBlock(bytes(32), lambda _: bytes(64))
KEY = b"\1" * 32
ID = provider_id(KEY)
HOT_ONLY, HOT = "pass 1, no bytes in the store", "pass 1, bytes read and hashed on the disk"
WARM, INDEX = "pass 2, files deleted", "pass 3, records to tombstones"
BY_HAND_HOT, BY_HAND_WARM = "by hand: read, hash, one DELETE each", "by hand: unlink, one UPDATE each"


def policy(inline_bytes_max: int) -> Policy:
    """Everything is old enough at once, and may be lost."""
    result = ResultPolicy(
        max_inline_bytes=inline_bytes_max,
        retain_hot_blocks=0,
        retain_warm_days=0,
        retain_cold_days=0,
        result_ttl_blocks=1,
        may_lose_unarchived=True,
    )
    return Policy(
        network=Network.DEVELOPMENT,
        chain=ChainPolicy(finality_depth=0),
        admission=AdmissionPolicy(in_flight_per_requester_max=10**6),
        quota=QuotaPolicy(leases_per_provider_max=10**6, ai_units_per_epoch=10**12),
        result=result,
    )


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """One table of rates, one of pauses."""
    rounds, count = (1, 500) if is_quick else (5, 4_000)
    pauses: dict[str, list[float]] = {}

    async def bare(number: int) -> Mapping[str, float]:
        node = await RetentionNode.build(folder / f"bare-{number}", count, 0)
        return {HOT_ONLY: await node.rate(Pass.HOT, pauses, HOT_ONLY), **await node.close()}

    async def whole(number: int) -> Mapping[str, float]:
        node = await RetentionNode.build(folder / f"whole-{number}", count, OUTPUT_BYTES)
        names = ((Pass.HOT, HOT), (Pass.WARM, WARM), (Pass.RECORDS, INDEX))
        found = {name: await node.rate(pass_, pauses, name) for pass_, name in names}
        return {**found, **await node.close()}

    async def by_hand(number: int) -> Mapping[str, float]:
        return await asyncio.to_thread(RetentionBaseline(folder / f"hand-{number}", count).rates)

    figures = await interleave((by_hand, bare, whole), rounds)
    order = [BY_HAND_HOT, BY_HAND_WARM, HOT_ONLY, HOT, WARM, INDEX]
    rates = table("results-gc", f"Letting {count} results go", "results/s", figures, order, BY_HAND_HOT)
    rates.goals += [at_least(f"{name}", figures[name], 50_000, "/s") for name in (HOT_ONLY, INDEX)]
    waits = table(
        "results-gc-pauses", "Longest wait of the event loop", "ms", pauses, [HOT_ONLY, HOT, WARM, INDEX], None
    )
    waits.goals += [at_most(name, pauses[name], 50, " ms") for name in (HOT_ONLY, HOT, WARM, INDEX)]
    for each in (rates, waits):
        print(show(each), end="\n\n", flush=True)
    return [rates, waits]


class RetentionNode:
    """A node on real files with results that retention may delete."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.engine, self.blobs = engine, WarmStore(folder / "warm")
        self.collector = Collector(self.engine, self.blobs, MachineClock())
        self.count = 0

    @classmethod
    async def build(cls, folder: Path, count: int, inline_bytes_max: int) -> RetentionNode:
        node = cls(folder, await open_engine(StorePlace(folder), policy(inline_bytes_max)))
        await node._fund_and_register()
        for first in range(0, count, BATCH):
            await node._resolve(first, min(BATCH, count - first))
        await node.engine.submit(SEAL)
        await node.engine.submit(SEAL)
        await until_in_tables(node.engine)
        node.count = count
        return node

    async def _fund_and_register(self) -> None:
        engine = self.engine
        await engine.submit(Mint(os.urandom(32), ALICE, Amount(10**12)))
        await engine.submit(Mint(os.urandom(32), AccountId("oak"), Amount(10**6)))
        told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["m"]}}), "eu", 1, 10**6)
        await engine.submit(Register(KEY, *told, engine.now_ms() + 10**10))
        await engine.submit(Stake(ID, Amount(10**6), os.urandom(32)))
        await engine.submit(SEAL)
        await engine.submit(Heartbeat(ID, 10**6))

    async def _resolve(self, first: int, count: int) -> None:
        engine = self.engine
        payload = {"kind": "AI", "spec": {"model": "m", "prompt": "hello"}}
        jobs = [build_enqueue(engine.policy, ALICE, Tier.FREE, payload, 5, first + n) for n in range(count)]
        await engine.submit_many(jobs)  # type: ignore[arg-type]
        await engine.submit(Match())
        leases = live_leases(engine)
        outputs = [os.urandom(OUTPUT_BYTES) for _ in leases]
        await asyncio.to_thread(self._write, outputs)
        made = []
        for lease, output in zip(leases, outputs, strict=True):
            body = body_of(lease.job_id, lease.id, ID, result_digest(output), len(output), {})
            made.append(SubmitCompletion(lease.id, ID, Envelope(1, "attested", body, bytes(64))))
        await engine.submit_many(made)
        most = engine.policy.result.max_inline_bytes
        pairs = zip(leases, outputs, strict=True)
        await engine.submit_many(
            [RecordVerdict(lease.id, True, "", output if most else None) for lease, output in pairs]
        )
        await engine.submit_many([SEAL])

    def _write(self, outputs: list[bytes]) -> None:
        """Straight to their places: how fast bytes come is measured elsewhere."""
        for output in outputs:
            place = path_of(self.blobs._path, result_digest(output))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(output)

    async def rate(self, pass_: Pass, pauses: dict[str, list[float]], name: str) -> float:
        """Results a second until nothing more can go, without the rests between the runs."""
        longest = LoopStall()
        ticking = asyncio.create_task(longest.tick())
        dropped, took_s = 0, 0.0
        while True:
            began = time.perf_counter()
            report = await self.collector.run_pass(pass_)
            took_s += time.perf_counter() - began
            dropped += report.dropped
            if report.is_done:
                break
        ticking.cancel()
        assert dropped == self.count, (dropped, self.count, report)
        pauses.setdefault(name, []).append(longest.ms)
        return dropped / took_s

    async def close(self) -> Mapping[str, float]:
        await close_engine(self.engine)
        return {}


class LoopStall:
    """How long a ticking task was not served."""

    def __init__(self) -> None:
        self.ms = 0.0

    async def tick(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.ms = max(self.ms, (time.perf_counter() - began) * 1000 - 1)


class RetentionBaseline:
    """The same as one would write it: a row each, transactions of a thousand, WAL, synchronous FULL."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir(parents=True)
        self._folder, self._count = folder, count
        self._db = apsw.Connection(str(folder / "hand.db"))
        self._db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE result (id INTEGER PRIMARY KEY, digest BLOB, is_warm INTEGER) STRICT")
        self._db.execute("CREATE TABLE hot (id INTEGER PRIMARY KEY, raw BLOB) STRICT")
        self._digests: list[Digest] = []
        for number in range(count):
            output = os.urandom(OUTPUT_BYTES)
            digest = result_digest(output)
            place = path_of(folder / "warm", digest)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(output)
            self._digests.append(digest)
            if number % 1_000 == 0:
                self._db.execute("COMMIT" if number else "BEGIN")
                if number:
                    self._db.execute("BEGIN")
            self._db.execute("INSERT INTO result VALUES (?, ?, 1)", (number, digest))
            self._db.execute("INSERT INTO hot VALUES (?, ?)", (number, output))
        self._db.execute("COMMIT")

    def rates(self) -> Mapping[str, float]:
        found = {BY_HAND_HOT: self._timed(self._hot), BY_HAND_WARM: self._timed(self._warm)}
        self._db.close()
        return found

    def _timed(self, each: object) -> float:
        began = time.perf_counter()
        for first in range(0, self._count, 1_000):
            with self._db:
                for number in range(first, min(first + 1_000, self._count)):
                    each(number)  # type: ignore[operator]
        return self._count / (time.perf_counter() - began)

    def _hot(self, number: int) -> None:
        digest = self._digests[number]
        raw = path_of(self._folder / "warm", digest).read_bytes()
        hasher = result_hasher(len(raw))
        hasher.update(raw)
        assert hasher.digest() == digest
        self._db.execute("DELETE FROM hot WHERE id = ?", (number,))

    def _warm(self, number: int) -> None:
        path_of(self._folder / "warm", self._digests[number]).unlink()
        self._db.execute("UPDATE result SET is_warm = 0 WHERE id = ?", (number,))
