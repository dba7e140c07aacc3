"""What an event does to results: resolved in the open block, unlinked by a reorg, resolved again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from holdfast.core.base.records import record_from
from holdfast.core.base.values import EventNo, Height, TaskId, tally
from holdfast.core.chain.model import Tx, TxKind, add_results
from holdfast.core.proof.messages import ProofAccepted
from holdfast.core.queue import apply as queue_apply
from holdfast.core.queue import replicas
from holdfast.core.result.messages import ConsumptionDropped, ResultConsumed, consumption_claim, consumption_key
from holdfast.core.result.model import Consumption, HasResults, LogLeaf, Result, ResultStatus, leaf_of
from holdfast.core.result.readability import NOT_IN_BLOCK, is_valid_above

UNLINKED, RESOLVED = ResultStatus.UNLINKED, ResultStatus.RESOLVED
NO_LEAF = -1


def make_result(number: EventNo, event: ProofAccepted) -> Result:
    """RES-003: the record of a result with an accepted proof; the block that includes the proof resolves it."""
    return Result(  # by position: by name takes several times as long, and every result needs it
        number, event.task_id, UNLINKED, NOT_IN_BLOCK, event.nullifier, event.digest, event.size, event.media_type,
        event.da_commitment, event.expires_at, NO_LEAF, event.provider_id, event.payee, event.charged, event.method,
        event.reasons, event.caller, event.kind, event.earliest, int(event.is_public),
    )  # fmt: skip


def include_proofs(state: HasResults, included: Iterable[tuple[EventNo, Tx]]) -> None:
    """RES-002, ESC-001: the open block resolves the results and settles the money of their jobs.

    CHN-004: the same proof in another block gives the same digest at a new height. Each has the event that includes it.
    """
    results = state.results
    proofs = [(number, results[tx.subject]) for number, tx in included]  # type: ignore[index]  # a call takes time
    for is_quorum, group in (
        groupby(proofs, key=lambda proof: proof[1].task_id in state.quorums) if state.quorums else ((False, proofs),)
    ):
        if is_quorum:
            for number, result in group:
                replicas.settle_quorum(state, state.queue.jobs[result.task_id], number)
        else:
            queue_apply.settle(state, [(number, each.task_id, each.payee, each.charged) for number, each in group])
    _resolve(state, [result for _, result in proofs])


def _resolve(state: HasResults, results: Sequence[Result]) -> None:
    """RES-002: in the open block, which must be sealed before a result is readable."""
    height, first, leaves = state.open_height, state.chain.log.size, list[bytes]()
    rows, leaf_rows = state.touched["result"], state.touched["leaf"]
    for index, result in enumerate(results, first):
        result.status, result.height_resolved, result.leaf_index = RESOLVED, height, index
        raw = leaf_of(result)
        leaves.append(raw)
        leaf_rows[index] = LogLeaf(index, height, raw)
        rows[result.event] = result
    add_results(state, leaves)
    for kind, count in tally([result.kind for result in results]).items():
        count_outcome(state, "resolved", kind, count)


def count_outcome(state: HasResults, outcome: str, kind: str, by: int = 1) -> None:
    """OBS-001: a metric; no decision depends on it."""
    state.result_counts[outcome, kind] = state.result_counts.get((outcome, kind), 0) + by


def unlink(state: HasResults, txs: Iterable[Tx], height: Height) -> None:
    """RES-006: the results and consumptions of these transactions, which were in the block of this height."""
    for tx in txs:
        if tx.kind is TxKind.PROOF:
            result = state.results[TaskId(tx.subject)]
            result.status, result.height_resolved, result.leaf_index = UNLINKED, NOT_IN_BLOCK, NO_LEAF
            state.touched["result"][result.event] = result
            count_outcome(state, "rolled_back", "")
        elif (consumption := _consumption_of(state, tx)) is not None and consumption.height == height:
            _move_consumption(state, consumption, NOT_IN_BLOCK)


def evict_final(state: HasResults, txs: Iterable[Tx], height: Height) -> None:
    """Final results and consumptions leave memory: their rows have them. A consumption stays a claim (ENG-005)."""
    for tx in txs:
        if tx.kind is TxKind.PROOF:
            state.results.pop(TaskId(tx.subject), None)
        elif (consumption := _consumption_of(state, tx)) is not None and consumption.height == height:
            state.claims.add(consumption_key(consumption.task_id), consumption.event, consumption_claim(consumption))
            del state.consumptions[consumption.task_id]


def apply_consumed(state: HasResults, event: ResultConsumed) -> None:
    consumption = record_from(Consumption, event, event=state.last_event)
    state.consumptions[event.task_id] = state.touched["consumption"][event.result] = consumption
    count_outcome(state, "consumed", event.kind.value)


def apply_dropped(state: HasResults, event: ConsumptionDropped) -> None:
    _move_consumption(state, state.consumptions.pop(event.task_id), NOT_IN_BLOCK)


def include_consumptions(state: HasResults, included: Iterable[tuple[EventNo, Tx]]) -> None:
    """CHN-004: included again it counts only where its result is readable (RES-002)."""
    for _, tx in included:
        consumption = _consumption_of(state, tx)
        if consumption is not None and is_valid_above(state, consumption, state.chain.head.height):
            _move_consumption(state, consumption, state.open_height)


def _consumption_of(state: HasResults, tx: Tx) -> Consumption | None:
    """The consumption that this transaction is; None where it is none, or was dropped: a later one is another."""
    consumption = state.consumptions.get(TaskId(tx.subject))
    return consumption if consumption is not None and consumption.event == tx.number else None


def _move_consumption(state: HasResults, consumption: Consumption, height: Height) -> None:
    consumption.height = height
    state.touched["consumption"][consumption.result] = consumption
