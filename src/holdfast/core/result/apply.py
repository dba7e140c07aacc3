"""What an event does to results: resolved in the open block, unlinked by a reorg, resolved again."""

from __future__ import annotations

from holdfast.core.chain.acts import BlockUndone, Released
from holdfast.core.chain.apply import add_result, leave
from holdfast.core.chain.blocks import Tx, TxKind
from holdfast.core.job.record import JobAct
from holdfast.core.lease import apply as lease
from holdfast.core.lease.record import LeaseAct
from holdfast.core.proof import votes
from holdfast.core.proof.acts import (
    CompletionIgnored,
    ProofAccepted,
    ProofRefused,
    TaskLinked,
    Verdict,
    equivocation_key,
    link_key,
    nullifier_key,
)
from holdfast.core.provider.apply import touch
from holdfast.core.queue import apply as queue
from holdfast.core.queue import replicas
from holdfast.core.result import consume
from holdfast.core.result.record import Leaf, Resolving, Result, ResultStatus, leaf_of
from holdfast.core.values import KIND_NAMES, Height, TaskId


def apply_accepted(state: Resolving, event: ProofAccepted) -> None:
    """PRF-003: job and lease COMPLETED, nullifier reserved, resolved in the open block, all in one."""
    if event.paid:
        votes.apply_agreed(state, event)
    else:
        _complete(state, event)
    state.claims.add(nullifier_key(event.nullifier), state.last_event, event)
    if event.link:
        state.claims.add(link_key(event.task_id), state.last_event, TaskLinked(event.task_id, event.link))
    digests = (event.nullifier, event.digest, event.size)
    state.results[event.task_id] = Result(
        state.last_event,
        event.task_id,
        ResultStatus.UNLINKED,
        Height(0),
        *digests,
        "",
        event.da_commitment,
        event.expires_at,
        -1,
        event.provider_id,
        event.payee,
        event.charged,
        event.method,
        event.reasons,
        event.caller,
        event.kind,
        event.earliest,
    )
    resolve(state, event.task_id)


def _complete(state: Resolving, event: ProofAccepted) -> None:
    lease.end(state, event.lease_id, LeaseAct.COMPLETE, "", event.ended_ms)
    queue.end(state, event.task_id, JobAct.ACCEPT, "", event.ended_ms)
    provider = state.providers[event.provider_id]
    provider.completed += 1
    provider.failures_in_row = 0
    touch(state, provider)


def resolve(state: Resolving, task_id: TaskId) -> None:
    """RES-002: in the open block, which has to be sealed before anybody reads it; the money moves with it."""
    result, job = state.results[task_id], state.queue.jobs[task_id]
    if job.quorum_m:
        replicas.settle(state, job)
    else:
        queue.settle(state, job, result.payee, result.charged)
    result.status, result.height_resolved = ResultStatus.RESOLVED, state.open_height
    result.leaf_index = state.chain.log.size
    raw = leaf_of(result)
    add_result(state, raw)
    state.touched["leaf"][result.leaf_index] = Leaf(result.leaf_index, result.height_resolved, raw)
    state.touched["result"][result.event] = result
    count(state, "resolved", KIND_NAMES[job.kind])


def count(state: Resolving, what: str, kind: str) -> None:
    """OBS-001: how often, for whoever watches; it decides nothing."""
    state.counts[what, kind] = state.counts.get((what, kind), 0) + 1


def unlink(state: Resolving, event: BlockUndone) -> None:
    """RES-006: what was resolved or consumed in this block is not any more; its transactions wait for the next one."""
    chain, height = state.chain, event.height
    for tx in chain.recent[height].txs if event.hash else chain.open.txs:
        if tx.kind is TxKind.CONSUMPTION:
            consume.unmark(state, tx, height)
        elif tx.kind is TxKind.PROOF:
            result = state.results[TaskId(tx.subject)]
            result.status, result.height_resolved, result.leaf_index = ResultStatus.UNLINKED, Height(0), -1
            state.touched["result"][result.event] = result
            count(state, "rolled_back", "")


def resolve_again(state: Resolving, tx: Tx) -> None:
    """CHN-004: the same proof in another block gives the same digest at a new height."""
    resolve(state, TaskId(tx.subject))


def let_final_go(state: Resolving, height: Height) -> None:
    """What can never be taken back is history: its row has it. The blocks know what is in them; nothing is searched."""
    chain = state.chain
    final = [*state.settling.items(), *((each, recent.txs) for each, recent in chain.recent.items() if each <= height)]
    state.settling.clear()
    if state.open_height <= height:  # said by hand, before the block is sealed
        final.append((state.open_height, chain.open.txs))
    for each, txs in final:
        for tx in txs:
            _let_go(state, each, tx)


def let_some_go(state: Resolving, event: Released) -> None:
    """The same for a part of what is in final blocks."""
    for height, tx in leave(state, event.count):
        _let_go(state, height, tx)


def _let_go(state: Resolving, height: Height, tx: Tx) -> None:
    if tx.kind is TxKind.PROOF:
        state.results.pop(TaskId(tx.subject), None)
    elif tx.kind is TxKind.CONSUMPTION:
        consume.let_go(state, tx, height)


def apply_refused(state: Resolving, event: ProofRefused) -> None:
    """PRF-002: the verdict is kept with its reasons."""
    number, names = state.last_event, (event.task_id, event.lease_id, event.provider_id, event.method, event.digest)
    state.touched["verdict"][number] = Verdict(number, *names, event.verdict, event.reasons, event.at_ms)


def apply_ignored(state: Resolving, event: CompletionIgnored) -> None:
    """It is in the journal; what it cost is an event of its own, and costs once."""
    if event.is_sentenced:
        state.claims.add(equivocation_key(event.lease_id), state.last_event, event)
