"""What an event does to results: resolved in the open block, unlinked by a reorg, resolved again."""

from __future__ import annotations

from holdfast.core.chain.apply import add_result
from holdfast.core.chain.blocks import Tx
from holdfast.core.job.record import JobAct
from holdfast.core.lease import apply as lease
from holdfast.core.lease.record import LeaseAct
from holdfast.core.proof.decide import CompletionIgnored, ProofAccepted, nullifier_key
from holdfast.core.provider.apply import touch
from holdfast.core.queue import apply as queue
from holdfast.core.result.record import Leaf, Resolving, Result, ResultStatus, leaf_of
from holdfast.core.values import Height, TaskId


def apply_accepted(state: Resolving, event: ProofAccepted) -> None:
    """PRF-003: job and lease COMPLETED, nullifier reserved, resolved in the open block, all in one."""
    lease.end(state, event.lease_id, LeaseAct.COMPLETE, "", event.ended_ms)
    queue.end(state, event.task_id, JobAct.ACCEPT, "", event.ended_ms)
    provider = state.providers[event.provider_id]
    provider.completed += 1
    provider.failures_in_row = 0
    touch(state, provider)
    state.claims.add(nullifier_key(event), state.last_event, event)
    digests = (event.nullifier, event.digest, event.size)
    state.results[event.task_id] = Result(
        state.last_event,
        event.task_id,
        ResultStatus.UNLINKED,
        Height(0),
        *digests,
        "",
        None,
        event.expires_at,
        -1,
        event.provider_id,
        event.payee,
        event.charged,
        event.method,
        event.reasons,
    )
    resolve(state, event.task_id)


def resolve(state: Resolving, task_id: TaskId) -> None:
    """RES-002: in the open block, which has to be sealed before anybody reads it; the money moves with it."""
    result, job = state.results[task_id], state.queue.jobs[task_id]
    queue.settle(state, job, result.payee, result.charged)
    result.status, result.height_resolved = ResultStatus.RESOLVED, state.open_height
    result.leaf_index = state.chain.log.size
    raw = leaf_of(result)
    add_result(state, raw)
    state.touched["leaf"][result.leaf_index] = Leaf(result.leaf_index, result.height_resolved, raw)
    state.touched["result"][result.event] = result


def unlink(state: Resolving, height: Height) -> None:
    """RES-006: what was resolved in this block is not any more; its proof waits for the next one."""
    for result in state.results.values():
        if result.height_resolved == height:
            result.status, result.height_resolved, result.leaf_index = ResultStatus.UNLINKED, Height(0), -1
            state.touched["result"][result.event] = result


def resolve_again(state: Resolving, tx: Tx) -> None:
    """CHN-004: the same proof in another block gives the same digest at a new height."""
    resolve(state, TaskId(tx.subject))


def let_final_go(state: Resolving, height: Height) -> None:
    """What can never be taken back is history: its row has it."""
    for task_id in [id_ for id_, each in state.results.items() if 0 < each.height_resolved <= height]:
        del state.results[task_id]


def apply_ignored(_: Resolving, __: CompletionIgnored) -> None:
    """It is in the journal: that is all it should be."""
