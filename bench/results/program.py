"""Results: resolving, reading over HTTP, ids, retention, pinning, and reorgs of full blocks, each to its baseline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha3_256
from pathlib import Path
from urllib.request import Request, urlopen

from bench.api import clients
from bench.api.servers import TOKEN
from bench.engine.contestant import check
from bench.engine.opened import close_engine, until_in_tables
from bench.measure import Table, Turn, at_least, interleave, ratios_of, show, table
from bench.queue import contestant
from bench.results import nmt, reorg, retention
from bench.results.baselines import BaselineResults, SqliteBaselineResults, resolve_all
from bench.results.servers import running_server
from bench.stores import Store, postgres
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import ChainId, Height
from holdfast.core.job.ids import task_id, task_id_maker
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.result import result_digest
from holdfast.engine.loop import Engine

BATCH, CALLERS = 1_000, 16
HAND, OURS = "hand-written SQL, a block of 1000", "Holdfast, a block of 1000"
IN_TABLES = "Holdfast, until in tables"
BARE, FRESH, OLD = "bare Starlette, same answer", "getResult, in memory", "getResult, from its row"
ENCODED, PACKED, HASHED = "task id with encoding", "task id, hashing alone", "bare SHA3-256 of the same bytes"


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, many = (1, 1_000) if is_quick else (5, 5_000)
    tables: list[Table] = []
    with postgres(folder / "pg") as server:
        for store in (Store(folder / "lite"), server):
            if store is not None:
                tables.append(_shown(await compare_resolving(store, rounds, many)))
    tables.append(_shown(await compare_reading(folder, rounds, many)))
    tables.append(_shown(await compare_ids(rounds, 20 * many)))
    for program in (retention, nmt, reorg):
        tables += await program.run(folder / program.__name__, is_quick=is_quick)
    return tables


def _shown(found: Table) -> Table:
    print(show(found), end="\n\n", flush=True)
    return found


# ------------------------------------------------------------------------------------------------ resolving


async def open_baseline(store: Store) -> BaselineResults:
    spot = store.place("resolve/hand")
    if spot.address is None:
        return SqliteBaselineResults(spot.folder)
    from bench.results.baselines import PostgresBaselineResults  # noqa: PLC0415 - needs an extra

    return await PostgresBaselineResults.open(spot.address)


async def compare_resolving(store: Store, rounds: int, many: int) -> Table:
    """Verdict and block: result, job, lease, money, nullifier and header, all durable, in chunks of 1 000."""
    hand, engine = await open_baseline(store), await contestant.open_engine_with_providers(store.place("resolve/ours"))

    async def of_hand(_: int) -> Mapping[str, float]:
        return {HAND: await resolve_all(hand, many, BATCH)}

    async def of_ours(_: int) -> Mapping[str, float]:
        verdicts = await _submit_completions(engine, many)
        await until_in_tables(engine)
        began = time.perf_counter()
        for at in range(0, many, BATCH):
            check(await engine.submit_many(verdicts[at : at + BATCH]))
            await contestant.seal_blocks(engine)
        done = time.perf_counter()
        await until_in_tables(engine)
        found = {OURS: many / (done - began), IN_TABLES: many / (time.perf_counter() - began)}
        await contestant.finalize_and_project(engine)
        return found

    figures = await interleave((of_hand, of_ours), rounds)
    await close_engine(engine)
    await hand.close()
    title = f"Resolving results, {store.title}"
    found = table(store.named("results-resolve"), title, "results/s", figures, [HAND, OURS, IN_TABLES], HAND)
    found.goals.append(at_least("resolve", ratios_of(figures[OURS], figures[HAND]), 0.8))
    found.notes.append("completions are submitted before the clock runs, and judged without signatures")
    return found


async def _submit_completions(engine: Engine, many: int) -> list[RecordVerdict]:
    """As many proofs that wait for their verdict."""
    await contestant.enqueue_all(engine, contestant.make_enqueues(engine, many))
    while len(leases := contestant.live_leases(engine)) < many:
        check([await engine.submit(Match())])
    check(await engine.submit_many([_proof(each) for each in leases]))
    return [RecordVerdict(each.id, True, "signed by the leased provider") for each in leases]


def _proof(lease: Lease) -> SubmitCompletion:
    body = body_of(lease.job_id, lease.id, lease.provider_id, _DIGEST, 3, {"ms": 5})
    return SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, bytes(64)))


_DIGEST = result_digest(b"out")


# ------------------------------------------------------------------------------------------------ reading


async def compare_reading(folder: Path, rounds: int, many: int) -> Table:
    """`cap.getResult` over connections that are kept, 16 callers at a time."""
    async with running_server("ours", folder / "reading") as ours:
        old, fresh = (_make_request(task) for task in ours["tasks"])
        answer = json.dumps(_post(ours["port"], fresh()))
        async with running_server("bare", answer) as bare:
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


def _make_request(task: str) -> clients.Write:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "cap.getResult", "params": {"task_id": task}}).encode()
    return lambda: body


def _post(port: int, body: bytes) -> object:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    request = Request(f"http://127.0.0.1:{port}/rpc", body, headers)
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())["result"]


def _turn(name: str, port: int, write: clients.Write, many: int) -> Turn:
    async def turn(_: int) -> Mapping[str, float]:
        return {name: await clients.posts(port, write, CALLERS, many)}

    return turn


# ------------------------------------------------------------------------------------------------ names


async def compare_ids(rounds: int, many: int) -> Table:
    """JOB-001: ids of jobs, from payloads and from canonical bytes."""
    caller, height, chain = b"alice", Height(7), ChainId(1337)
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hello"}, "units": 2}
    packed, hashes = canonical(payload), [os.urandom(32) for _ in range(many)]
    whole = [each + bytes(52) + packed for each in hashes]

    async def turn(_: int) -> Mapping[str, float]:
        return {
            ENCODED: _rate(hashes, lambda tx: task_id(chain, height, tx, caller, payload)),
            PACKED: _rate(hashes, lambda tx: task_id_maker(chain, height, 1)(tx, caller, packed)),
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
