"""Results: resolving, reading over HTTP, ids, retention, pinning, and reorgs of full blocks, each to its baseline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha3_256
from pathlib import Path
from urllib.request import Request, urlopen

from bench import knock, queue_ours, results_gc, results_nmt, results_reorg
from bench.doorstep import TOKEN
from bench.measure import Table, Turn, at_least, interleave, ratios_of, show, table
from bench.ours import check, close_engine
from bench.results_hand import HandResults, SqliteResults, resolved
from bench.results_step import started
from bench.stores import Store, postgres
from holdfast.core.canon import canonical
from holdfast.core.job.ids import packed_task_id, task_id
from holdfast.core.lease.record import Lease
from holdfast.core.match.decide import Match
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.result import result_digest
from holdfast.core.values import ChainId, Height
from holdfast.engine.loop import Engine

LOT, CALLERS = 1_000, 16
HAND, OURS = "hand-written SQL, a block of 1000", "Holdfast, a block of 1000"
IN_TABLES = "Holdfast, until in tables"
BARE, FRESH, OLD = "bare Starlette, same answer", "getResult, in memory", "getResult, from its row"
ENCODED, PACKED, HASHED = "task id with encoding", "task id, hashing alone", "bare SHA3-256 of the same bytes"


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, many = (2, 1_000) if is_quick else (5, 5_000)
    tables: list[Table] = []
    with postgres(folder / "pg") as server:
        for store in (Store(folder / "lite"), server):
            if store is not None:
                tables.append(_shown(await resolving(store, rounds, many)))
    tables.append(_shown(await reading(folder, rounds, many)))
    tables.append(_shown(await naming(rounds, 20 * many)))
    for program in (results_gc, results_nmt, results_reorg):
        tables += await program.run(folder / program.__name__, is_quick=is_quick)
    return tables


def _shown(found: Table) -> Table:
    print(show(found), end="\n\n", flush=True)
    return found


# ------------------------------------------------------------------------------------------------ resolving


async def by_hand(store: Store) -> HandResults:
    spot = store.spot("resolve/hand")
    if spot.address is None:
        return SqliteResults(spot.folder)
    from bench.results_hand import PostgresResults  # noqa: PLC0415 - needs an extra

    return await PostgresResults.open(spot.address)


async def resolving(store: Store, rounds: int, many: int) -> Table:
    """Verdict and block: result, job, lease, money, nullifier and header, all durable, in lots of 1 000."""
    hand, engine = await by_hand(store), await queue_ours.opened(store.spot("resolve/ours"))

    async def of_hand(_: int) -> Mapping[str, float]:
        return {HAND: await resolved(hand, many, LOT)}

    async def of_ours(_: int) -> Mapping[str, float]:
        verdicts = await _handed_in(engine, many)
        await engine.projector.drain()
        began = time.perf_counter()
        for at in range(0, many, LOT):
            check(await engine.submit_many(verdicts[at : at + LOT]))
            await queue_ours.sealed(engine)
        done = time.perf_counter()
        await engine.projector.drain()
        found = {OURS: many / (done - began), IN_TABLES: many / (time.perf_counter() - began)}
        await queue_ours.rested(engine)
        return found

    figures = await interleave((of_hand, of_ours), rounds)
    await close_engine(engine)
    await hand.close()
    title = f"Resolving results, {store.title}"
    found = table(store.named("results-resolve"), title, "results/s", figures, [HAND, OURS, IN_TABLES], HAND)
    found.goals.append(at_least("resolve", ratios_of(figures[OURS], figures[HAND]), 0.8))
    found.notes.append("proofs are handed in before the clock runs, and judged without signatures")
    return found


async def _handed_in(engine: Engine, many: int) -> list[Judge]:
    """As many proofs that wait for their verdict."""
    await queue_ours.enqueued(engine, queue_ours.asked(engine, many))
    while len(engine.state.leases.by_id) < many:
        check([await engine.submit(Match())])
    check(await engine.submit_many([_proof(each) for each in engine.state.leases.by_id.values()]))
    return [Judge(lease_id, True, "signed by the leased provider") for lease_id in engine.state.submissions]


def _proof(lease: Lease) -> Submit:
    body = body_of(lease.job_id, lease.id, lease.provider_id, _DIGEST, 3, {"ms": 5})
    return Submit(lease.id, lease.provider_id, Envelope(1, "attested", body, bytes(64)))


_DIGEST = result_digest(b"out")


# ------------------------------------------------------------------------------------------------ reading


async def reading(folder: Path, rounds: int, many: int) -> Table:
    """`cap.getResult` over connections that are kept, 16 callers at a time."""
    async with started("ours", folder / "reading") as ours:
        old, fresh = (_asking(task) for task in ours["tasks"])
        answer = json.dumps(_asked(ours["port"], fresh()))
        async with started("bare", answer) as bare:
            turns = [
                _turn(BARE, bare["port"], fresh, many),
                _turn(FRESH, ours["port"], fresh, many),
                _turn(OLD, ours["port"], old, many),
            ]
            figures = await interleave(turns, rounds)
    title = f"Reading results over HTTP, {CALLERS} callers, answers of {len(answer)} bytes"
    found = table("results-http", title, "requests/s", figures, [BARE, FRESH, OLD], BARE)
    found.goals += [at_least(name, ratios_of(figures[name], figures[BARE]), 0.7) for name in (FRESH, OLD)]
    return found


def _asking(task: str) -> knock.Write:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "cap.getResult", "params": {"task_id": task}}).encode()
    return lambda: body


def _asked(port: int, body: bytes) -> object:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    request = Request(f"http://127.0.0.1:{port}/rpc", body, headers)
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["result"]


def _turn(name: str, port: int, write: knock.Write, many: int) -> Turn:
    async def turn(_: int) -> Mapping[str, float]:
        return {name: await knock.posts(port, write, CALLERS, many)}

    return turn


# ------------------------------------------------------------------------------------------------ names


async def naming(rounds: int, many: int) -> Table:
    """JOB-001: ids of jobs, from payloads and from canonical bytes."""
    caller, height, chain = b"alice", Height(7), ChainId(1337)
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}, "units": 2}
    packed, hashes = canonical(payload), [os.urandom(32) for _ in range(many)]
    whole = [each + bytes(52) + packed for each in hashes]

    async def turn(_: int) -> Mapping[str, float]:
        return {
            ENCODED: _rate(hashes, lambda tx: task_id(chain, height, tx, caller, payload)),
            PACKED: _rate(hashes, lambda tx: packed_task_id(chain, height, tx, caller, packed)),
            HASHED: _rate(whole, lambda raw: sha3_256(raw).digest()),
        }

    figures = await interleave((turn,), rounds)
    found = table("results-ids", "Task ids", "ids/s", figures, [HASHED, PACKED, ENCODED], HASHED)
    found.goals.append(at_least("with encoding", figures[ENCODED], 100_000, "/s"))
    found.goals.append(at_least("hashing alone", figures[PACKED], 200_000, "/s"))
    return found


def _rate(things: Sequence[bytes], work: Callable[[bytes], object]) -> float:
    """In processor time: nothing here waits."""
    began = time.process_time()
    for each in things:
        work(each)
    return len(things) / (time.process_time() - began)
