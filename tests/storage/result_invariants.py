"""The invariants of results, checked on a node: money, and bytes that verify or are reported as deleted."""

from __future__ import annotations

from collections.abc import Iterator

from tests.core.core_driver import ALICE
from tests.core.result.result_model import ModelResult
from tests.storage.result_life import INLINE_BYTES, ResultLife

from holdfast.core.base.values import TaskId
from holdfast.core.chain.model import TxKind, final_height
from holdfast.core.invariants import broken_invariants
from holdfast.core.job.model import JobState
from holdfast.core.proof.messages import link_key, nullifier_key
from holdfast.core.result import result_digest
from holdfast.core.retention.model import Pass, is_dropped

MINTED = 3_000
ENDED = {JobState.EXPIRED, JobState.FAILED, JobState.CANCELLED}


def broken_promises(life: ResultLife) -> list[str]:
    """All promises that do not hold now, each with the result it is about."""
    state = life.state
    found = broken_invariants(state)
    found += [name for name, holds in _whole(life).items() if not holds]
    for task, done in life.model.results.items():
        found += [f"{says}: {task.hex()[:8]}" for says in _of_one(life, task, done)]
    for job in state.queue.jobs.values():
        if job.id not in life.model.results:
            found += [f"{says}: {job.id.hex()[:8]}" for says in _without(life, job.id)]
    return found


def _whole(life: ResultLife) -> dict[str, bool]:
    state, model = life.state, life.model
    account = state.ledger.accounts[ALICE]
    charged = sum(done.charged for done in model.results.values())
    live = [tx for recent in state.chain.unfinalized.values() for tx in recent.txs] + state.chain.open.txs
    ours = [tx.number for tx in live if tx.kind in (TxKind.PROOF, TxKind.CONSUMPTION)]
    numbers = [entry.event for block in [*model.blocks[model.final + 1 :], model.open] for entry in block]
    return {
        "the heights are the model's": (state.open_height, final_height(state)) == (model.open_height, model.final),
        "blocks have what the model's have, in its order": ours == numbers,
        "who asked paid for what came, once": account.available + account.held + account.pending == MINTED - charged,
        "the log has a leaf for every result on the chain": state.chain.log.size == len(model.results),
        "only what the model knows has a record": set(state.results) <= set(model.results),
        "only what counts is marked as used": {task for task, done in model.results.items() if done.used is not None}
        >= set(state.consumptions),
    }


def _of_one(life: ResultLife, task: TaskId, done: ModelResult) -> Iterator[str]:
    """Read window, one link, digests first, and what became of the bytes."""
    model, state = life.model, life.state
    name, said = life.rpc_outcome("cap.readResult", task)
    if (name or said["status"]) != model.status(task):
        yield f"the model says {model.status(task)}, the node {name or said['status']}"
    if said is not None:
        shown = (said["result_digest"], said["proof_nullifier"], said["height_resolved"], said["result_size"])
        if shown != (done.digest.hex(), done.nullifier.hex(), model.height(task), len(done.output)):
            yield f"another digest, nullifier, height or size: {shown}"
    live = state.results.get(task)
    if live is not None and live.height_resolved != model.height(task):
        yield f"resolved at {live.height_resolved}, the model says {model.height(task)}"
    if not (life.knows(link_key(task)) and life.knows(nullifier_key(done.nullifier))):
        yield "the link or the nullifier is forgotten"
    if is_dropped(state, Pass.HOT, done.event) and model.height(task) > model.watermark:
        yield "let go though it is not old enough or not final"
    yield from _bytes(life, task, done)


def _bytes(life: ResultLife, task: TaskId, done: ModelResult) -> Iterator[str]:
    """RET-004, TIER-001: bytes match their digest, or the node reports that they were deleted, and they may be."""
    is_readable = life.model.status(task) != "NoResultYet"
    name, raw = life.output_of(task)
    if name == "":
        if raw != done.output or result_digest(raw) != done.digest or not is_readable:
            yield "other bytes, or bytes before they may be read"
    elif name == "ResultPruned":
        if not is_readable or not life.model.may_be_pruned(task, life.now_ms):
            yield "its bytes are gone though they are needed"
    elif is_readable or name != "NoResultYet":
        yield f"asked for bytes, the node says {name}"
    if not is_readable and not done.is_lost and len(done.output) > INLINE_BYTES and not life.holds(done.digest):
        yield "its bytes are gone before anybody could read them"


def _without(life: ResultLife, task: TaskId) -> Iterator[str]:
    """RES-003: a job without a result has no record; one that ended gave its money back."""
    name, _ = life.rpc_outcome("cap.readResult", task)
    job = life.state.queue.jobs.peek(task)
    assert job is not None
    state = job.state
    if name != (state.value.capitalize() if state in ENDED else "NoResultYet"):
        yield f"without a result, the node says {name}"
    if task in life.state.results:
        yield "a record without a proof"
