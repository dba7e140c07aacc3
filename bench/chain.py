"""The chain against the least that a signed, durable block costs: sealing 10 000 blocks, and replaying them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha3_256
from pathlib import Path

import apsw

from bench.engine.contestant import ALICE, new_engine
from bench.engine.opened import POLICY, close_engine
from bench.measure import Table, Turn, interleave, show, table
from bench.stores import StorePlace
from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.keys.signing import SigningKey, verify
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command, JournalHead
from holdfast.core.base.values import BatchNo, Tier
from holdfast.core.chain.messages import SealBlock
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.state import State
from holdfast.engine.loop import Engine
from holdfast.history.full_journal import FullJournal
from holdfast.history.replay import replay

BLOCKS = 10_000
RAW_SEAL, RAW_REPLAY = "hash, sign, one synced insert", "read, hash, verify"
EMPTY, FULL = "engine, empty blocks", "engine, a job in each block"
HEADER_BYTES = 420
"""About what a header has."""


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Both comparisons, each printed as soon as it is measured."""
    rounds, count = (1, 200) if is_quick else (5, BLOCKS)
    began, tables = time.monotonic(), list[Table]()
    for found in (await compare_sealing(folder, rounds, count), await compare_replaying(folder, rounds, count)):
        print(show(found), end="\n\n", flush=True)
        tables.append(found)
    print(f"took {time.monotonic() - began:.0f} s")
    return tables


async def compare_sealing(folder: Path, rounds: int, count: int) -> Table:
    """Blocks one after the other, each durable before the next: 10 000 over all rounds."""
    key, each = SigningKey.generate(), count // rounds
    raw = Raw(folder / "raw", key)
    empty, full = await new_engine(StorePlace(folder / "empty")), await new_engine(StorePlace(folder / "full"))

    async def by_hand(_: int) -> Mapping[str, float]:
        return {RAW_SEAL: raw.seal(each)}

    async def of_empty(_: int) -> Mapping[str, float]:
        return {EMPTY: await _seal(empty, key, each, has_jobs=False)}

    async def of_full(_: int) -> Mapping[str, float]:
        return {FULL: await _seal(full, key, each, has_jobs=True)}

    figures = await interleave((by_hand, of_empty, of_full), rounds)
    for engine in (empty, full):
        await close_engine(engine)
    raw.db.close()
    return table("chain-sealing", f"Sealing {count} blocks", "blocks/s", figures, [RAW_SEAL, EMPTY, FULL], RAW_SEAL)


async def _seal(engine: Engine, key: SigningKey, count: int, *, has_jobs: bool) -> float:
    seal, first = SealBlock(key.public, key.sign), engine.undurable_state.chain.head.height
    began = time.perf_counter()
    for number in range(first, first + count):
        commands: list[Command] = [_job(number), seal] if has_jobs else [seal]
        outcomes = await engine.submit_many(commands)  # one batch, as with callers of their own
        assert not any(isinstance(outcome, Refused) for outcome in outcomes), outcomes
    return count / (time.perf_counter() - began)


def _job(number: int) -> Enqueue:
    payload = {"kind": "AI", "spec": {"model": "m", "prompt": "hello"}}
    made = build_enqueue(POLICY, ALICE, Tier.FREE, payload, 5, number)
    assert isinstance(made, Enqueue)
    return made


async def compare_replaying(folder: Path, rounds: int, count: int) -> Table:
    """What the sealing has left: folded, and folded with every signature checked."""
    raw = Raw(folder / "raw", SigningKey.generate())
    turns: list[Turn] = []

    async def by_hand(_: int) -> Mapping[str, float]:
        return {RAW_REPLAY: raw.replay()}

    turns.append(by_hand)
    for name, place in ((EMPTY, "empty"), (FULL, "full")):
        turns.append(_replays(name, folder / place))
    figures = await interleave(turns, rounds)
    raw.db.close()
    order = [RAW_REPLAY, *(f"{name}: {how}" for name in (EMPTY, FULL) for how in ("folded", "replayed"))]
    return table("chain-replaying", f"Replaying {count} blocks", "blocks/s", figures, order, RAW_REPLAY)


def _replays(name: str, place: Path) -> Turn:
    async def turn(_: int) -> Mapping[str, float]:
        journal = FullJournal(SqliteJournal(place), AtomicFolder(place / "archive"))
        folded, state = time.perf_counter(), State(POLICY)
        tip = JournalHead()
        async for batch in journal.read(BatchNo(0)):
            tip = journal_codec.fold(state, tip, (batch,))
        replayed = time.perf_counter()
        done = await replay(journal, POLICY, verify)
        ended = time.perf_counter()
        assert not isinstance(done, Refused)
        assert done.blocks == state.chain.head.height
        await journal.close()
        return {
            f"{name}: folded": done.blocks / (replayed - folded),
            f"{name}: replayed": done.blocks / (ended - replayed),
        }

    return turn


class Raw:
    """The least: a header's worth of bytes hashed, the hash signed, both in one row that is synced."""

    def __init__(self, folder: Path, key: SigningKey) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = key
        self.db = apsw.Connection(str(folder / "raw.db"))
        self.db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000")
        columns = "height INTEGER PRIMARY KEY, header BLOB, public BLOB, signature BLOB"
        self.db.execute(f"CREATE TABLE IF NOT EXISTS block ({columns}) STRICT")

    def seal(self, count: int) -> float:
        first = self.db.execute("SELECT coalesce(max(height), 0) + 1 FROM block").get
        parent, began = bytes(32), time.perf_counter()
        for height in range(first, first + count):
            header = parent + height.to_bytes(HEADER_BYTES - 32, "big")
            parent = sha3_256(header).digest()
            row = (height, header, self._key.public, self._key.sign(parent))
            self.db.execute("INSERT INTO block VALUES (?1, ?2, ?3, ?4)", row)
        return count / (time.perf_counter() - began)

    def replay(self) -> float:
        count, began = 0, time.perf_counter()
        for header, public, signature in self.db.execute("SELECT header, public, signature FROM block ORDER BY height"):
            if not verify(public, sha3_256(header).digest(), signature):
                raise AssertionError("not what was signed")
            count += 1
        return count / (time.perf_counter() - began)
