"""What a finished, final job leaves in the owner's memory: its claims in the filter, and nothing else."""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from tests.core.blocks import SEAL
from tests.core.commands import enqueue_command, some_id
from tests.simulation.world import World, evict_final
from tests.storage.competing_owners import BRISK, set_up

from holdfast.core.chain.messages import FinalizeSettlements
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.result import result_digest
from holdfast.core.state import State
from holdfast.core.workflows.finalize import has_pending_settlements
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

JOBS = 48
PAYLOAD = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
BYTES_A_JOB = 150
A_LITTLE = 8
"""Bytes a job: less than a number takes, and more than a block that comes or goes."""
CLAIMS_A_JOB = 4
"""Transaction, idempotency key, nullifier and link; the id of a job is asked of the tables."""


@pytest.mark.rule("ENG-004")
async def test_a_final_job_leaves_nothing_but_its_claims_in_memory() -> None:
    engine = await World(BRISK).started()
    await set_up(engine, 10 * JOBS)
    await _run_whole_lives(engine, 0)
    state, filter_ = engine.undurable_state, engine.claim_index.prefixes
    state.queue.jobs.recent_max = 1  # it is bounded, by more jobs than this test has
    await _run_whole_lives(engine, JOBS)
    parts, claims = _bytes_by_part(state), filter_.size_bytes()
    await _run_whole_lives(engine, 2 * JOBS)
    after = _bytes_by_part(state)
    assert not {name for name in parts if after[name] - parts[name] > A_LITTLE * JOBS}
    assert not state.claims.recent | state.claims.older
    assert filter_.size_bytes() - claims == 4 * CLAIMS_A_JOB * JOBS
    kept = sum(after.values()) - sum(parts.values()) + filter_.size_bytes() - claims
    assert kept / JOBS <= BYTES_A_JOB


@pytest.mark.rule("ENG-004")
async def test_a_job_leaves_nothing_that_waits_for_the_garbage_collector() -> None:
    engine = await World(BRISK).started()
    await set_up(engine, 10 * JOBS)
    await _run_whole_lives(engine, 0)
    assert not await _left_in_cycles(_run_whole_lives(engine, JOBS))


async def _left_in_cycles(work: Coroutine[Any, Any, None]) -> Counter[str]:
    """The product's objects that are in cycles after this work: a node collects seldom (`app.node`)."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await work
        gc.collect()
        return Counter(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("holdfast."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def _run_whole_lives(engine: Engine, first: int) -> None:
    """Jobs until they are final, in the tables and out of memory."""
    for number in range(first + 1, first + JOBS + 1):
        command = enqueue_command(number, "alice", 100, some_id(number), PAYLOAD, engine.policy)
        assert isinstance(await engine.submit(command), Accepted)
    done = 0
    while leases := await _assign(engine):
        done += len(leases)
        for lease in leases:
            await engine.submit(_completion(lease))
            await engine.submit(RecordVerdict(lease.id, True))
    assert done == JOBS
    for _ in range(BRISK.chain.finality_depth + 2):
        await engine.submit(SEAL)
    while has_pending_settlements(engine.undurable_state):
        await engine.submit(FinalizeSettlements())
    await evict_final(engine)
    for _ in range(4):  # claims leave in steps, a step with each batch
        await engine.submit(SEAL)
        await evict_final(engine)


async def _assign(engine: Engine) -> list[Lease]:
    await engine.submit(Match())
    return list(engine.undurable_state.leases.by_id.values())


def _completion(lease: Lease) -> SubmitCompletion:
    body = body_of(lease.job_id, lease.id, lease.provider_id, result_digest(b"out"), 3, {"ms": 5})
    return SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64))


def _bytes_by_part(state: State) -> dict[str, int]:
    """What each part of the state takes; policy and metrics do not depend on jobs."""
    skipped = {"policy", "observer", "touched"}
    return {name: _size_of(getattr(state, name)) for name in State.__struct_fields__ if name not in skipped}


def _size_of(root: object) -> int:
    seen, total, waiting = set[int](), 0, [root]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not callable(each):
            seen.add(id(each))
            total += sys.getsizeof(each)
            waiting += _inside(each)
    return total


def _inside(each: Any) -> Iterator[object]:
    if isinstance(each, msgspec.Struct):
        yield from (getattr(each, name) for name in each.__struct_fields__)
    elif isinstance(each, dict):
        yield from each
        yield from each.values()
    elif isinstance(each, list | tuple | set | frozenset | deque):
        yield from each
    else:
        names = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
        yield from (getattr(each, name) for name in names if hasattr(each, name))
        yield from getattr(each, "__dict__", {}).values()
    assert not isinstance(each, Mapping) or isinstance(each, dict) or hasattr(type(each), "__slots__")
