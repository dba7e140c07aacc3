"""The one table from command to station and from event to effect; everything that decides passes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from holdfast.core import adopt, clock, key
from holdfast.core.act import Act, ActDone
from holdfast.core.call import AtHeight, why_not_height
from holdfast.core.chain import acts as chain
from holdfast.core.chain import apply as link
from holdfast.core.chain import decide as may_link
from holdfast.core.chain.blocks import TxKind
from holdfast.core.counting import COUNTED
from holdfast.core.escrow import acts as money
from holdfast.core.escrow import apply as move
from holdfast.core.escrow import decide as may
from holdfast.core.event import Batch, Decided, Event, OwnershipTaken, Tip, check_follows, seal, tip_of
from holdfast.core.evidence import letters, marks, sessions
from holdfast.core.lease import acts as lease
from holdfast.core.lease import apply as lend
from holdfast.core.lease import decide as may_lend
from holdfast.core.lease import ousting
from holdfast.core.match import decide as match
from holdfast.core.match import fairness
from holdfast.core.proof import acts as proof
from holdfast.core.proof import decide as may_prove
from holdfast.core.proof import votes
from holdfast.core.provider import acts as provider
from holdfast.core.provider import apply as enlist
from holdfast.core.provider import decide as may_enlist
from holdfast.core.provider import moves
from holdfast.core.queue import acts as queue
from holdfast.core.queue import apply as line
from holdfast.core.queue import bury, pauses, replicas, requeue
from holdfast.core.queue import decide as may_queue
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.result import acts as use
from holdfast.core.result import apply as result
from holdfast.core.result import consume as may_use
from holdfast.core.retention import acts as retain
from holdfast.core.retention import apply as let_go
from holdfast.core.retention import decide as may_let_go
from holdfast.core.state import State
from holdfast.core.values import Epoch, EventNo, ProviderId

Command = (
    money.Mint
    | money.Reserve
    | money.Charge
    | money.Refund
    | money.Finalize
    | money.RollBack
    | key.MakeKey
    | key.RotateKey
    | key.RevokeKey
    | queue.Enqueue
    | queue.Cancel
    | queue.RaiseFee
    | requeue.Requeue
    | bury.Bury
    | pauses.PauseKind
    | pauses.ResumeKind
    | adopt.AdoptPolicy
    | chain.Seal
    | chain.RollBack
    | chain.Release
    | provider.Register
    | provider.Stake
    | provider.Beat
    | provider.Unstake
    | provider.MoveProvider
    | provider.Drain
    | provider.RotateSigner
    | provider.List
    | provider.Tend
    | match.Match
    | lease.AckLease
    | lease.RenewLease
    | lease.DeclineLease
    | lease.FailLease
    | lease.Reap
    | proof.Submit
    | proof.Judge
    | use.Consume
    | retain.DropHot
    | retain.DropWarm
    | retain.Sweep
    | retain.Vacuum
    | retain.EndAudit
    | marks.TakeEvidence
    | letters.ReleaseLetter
    | sessions.SealSession
    | sessions.PruneEvidence
    | sessions.AssignChannel
    | clock.NoteTime
    | AtHeight
    | Act
)

TOO_LATE: Final = frozenset({"LeaseLost", "ProofConflict"})


def _handed_in(state: State, command: proof.Submit, now_ms: int) -> Decided | Refused:
    """RCV-002: what comes too late changes nothing, and is counted."""
    said = may_let_go.why_not_hold(state, command) or may_prove.submit(state, command, now_ms)
    if isinstance(said, Refused) and said.name in TOO_LATE:
        state.tally.count("ignored")
    return said


_DECIDE: Final[dict[type, Callable[[State, Any, int], Decided | Refused]]] = {
    money.Mint: may.mint,
    money.Reserve: may.reserve,
    money.Charge: may.charge,
    money.Refund: may.refund,
    money.Finalize: may.finalize,
    money.RollBack: may.roll_back,
    key.MakeKey: key.make,
    key.RotateKey: key.rotate,
    key.RevokeKey: key.revoke,
    queue.Enqueue: may_queue.enqueue,
    queue.Cancel: may_lend.cancel,
    queue.RaiseFee: may_queue.raise_fee,
    requeue.Requeue: requeue.requeue,
    bury.Bury: bury.bury,
    pauses.PauseKind: pauses.pause,
    pauses.ResumeKind: pauses.resume,
    adopt.AdoptPolicy: adopt.adopt,
    chain.Seal: may_link.seal,
    chain.RollBack: may_use.roll_back,
    chain.Release: may_link.release,
    provider.Register: may_enlist.register,
    provider.Stake: may_enlist.stake,
    provider.Beat: may_enlist.beat,
    provider.Unstake: moves.unstake,
    provider.MoveProvider: ousting.move,
    provider.Drain: moves.drain,
    provider.RotateSigner: moves.rotate,
    provider.List: moves.list_,
    provider.Tend: ousting.tend,
    match.Match: match.match,
    lease.AckLease: may_lend.ack,
    lease.RenewLease: may_lend.renew,
    lease.DeclineLease: may_lend.decline,
    lease.FailLease: may_lend.fail,
    lease.Reap: may_lend.reap,
    proof.Submit: _handed_in,
    proof.Judge: may_prove.judge,
    use.Consume: may_use.consume,
    retain.DropHot: may_let_go.drop_hot,
    retain.DropWarm: may_let_go.drop_warm,
    retain.Sweep: may_let_go.sweep,
    retain.Vacuum: may_let_go.vacuum,
    retain.EndAudit: may_let_go.end_audit,
    marks.TakeEvidence: marks.take,
    letters.ReleaseLetter: lambda state, command, now_ms: letters.release(state, command, now_ms, decide),
    sessions.SealSession: sessions.seal,
    sessions.PruneEvidence: sessions.prune,
    sessions.AssignChannel: sessions.assign,
    clock.NoteTime: clock.note,
    AtHeight: lambda state, call, now_ms: (
        why_not_height(state.open_height, call.height) or decide(state, call.command, now_ms)
    ),
    Act: lambda state, act, now_ms: _by_name(act, decide(state, act.command, now_ms)),
}


def _owned(state: State, event: OwnershipTaken) -> None:
    state.owner = event
    lend.forgive(state, event)


def _adopted(state: State, event: adopt.PolicyAdopted) -> None:
    adopt.apply_adopted(state, event)
    enlist.looked_after(state)


def _finalized(state: State, event: money.Finalized) -> None:
    result.let_final_go(state, event.height)
    link.apply_finalized(state, event)


def _released(state: State, event: chain.Released) -> None:
    result.let_some_go(state, event)
    link.apply_released(state, event)


def _accepted(state: State, event: proof.ProofAccepted) -> None:
    result.apply_accepted(state, event)
    let_go.note_accepted(state, event.digest)


def _undone(state: State, event: chain.BlockUndone) -> None:
    result.unlink(state, event)
    link.apply_undone(state, event)


_AGAIN: Final[dict[TxKind, link.Again]] = {
    TxKind.CANCELLATION: link.refund_again,
    TxKind.EXPIRY: link.refund_again,
    TxKind.FAILURE: link.refund_again,
    TxKind.PROOF: result.resolve_again,
    TxKind.SLASH: lambda state, tx: enlist.slash_again(state, ProviderId(tx.subject), tx.number),
    TxKind.CONSUMPTION: may_use.consume_again,
}
"""CHN-003, CHN-004: what follows from being in a block. An admission has no such effect."""

_APPLY: Final[dict[type[Event], Callable[[State, Any], None]]] = {
    OwnershipTaken: _owned,
    ActDone: lambda _state, _event: None,
    clock.TimeNoted: lambda _state, _event: None,
    money.Minted: move.apply_minted,
    money.Reserved: move.apply_reserved,
    money.Charged: move.apply_charged,
    money.Refunded: move.apply_refunded,
    money.Finalized: _finalized,
    chain.BlocksFinal: link.apply_blocks_final,
    chain.Released: _released,
    money.Undone: move.apply_undone,
    key.KeyMade: key.apply_made,
    key.KeyRotated: key.apply_rotated,
    key.KeyRevoked: key.apply_revoked,
    queue.JobAdmitted: line.apply_admitted,
    queue.JobCancelled: line.apply_cancelled,
    queue.FeeRaised: line.apply_fee_raised,
    replicas.ReplicaAdmitted: replicas.apply_replica_admitted,
    replicas.ReplicaEnded: replicas.apply_replica_ended,
    requeue.JobRequeued: requeue.apply_requeued,
    bury.JobsBuried: bury.apply_buried,
    pauses.KindPaused: pauses.apply_paused,
    pauses.KindResumed: pauses.apply_resumed,
    adopt.PolicyAdopted: _adopted,
    chain.BlockSealed: link.apply_sealed,
    chain.BlockUndone: _undone,
    chain.Reincluded: lambda state, event: link.apply_reincluded(state, event, _AGAIN),
    provider.ProviderRegistered: enlist.apply_registered,
    provider.ProviderStaked: enlist.apply_staked,
    provider.HeartbeatTaken: enlist.apply_heartbeat,
    provider.ProviderMoved: enlist.apply_moved,
    provider.HealthMoved: enlist.apply_health,
    provider.ProviderSlashed: enlist.apply_slashed,
    provider.UnstakeAsked: enlist.apply_unstaked,
    provider.StakeReleased: enlist.apply_released,
    provider.ProviderDrained: enlist.apply_drained,
    provider.SignerRotated: enlist.apply_rotated,
    provider.ListingChanged: enlist.apply_listed,
    provider.HeartbeatsForgiven: enlist.apply_forgiven,
    provider.HeartbeatMissed: enlist.apply_missed,
    lease.JobAssigned: lend.apply_assigned,
    fairness.RequestersCounted: fairness.apply_counted,
    lease.LeaseAcked: lend.apply_acked,
    lease.LeaseRenewed: lend.apply_renewed,
    lease.LeaseClosed: lend.apply_closed,
    lease.CompletionSubmitted: lend.apply_submitted,
    lease.JobExpired: lend.apply_expired,
    lease.JobFailed: lend.apply_failed,
    proof.ProofAccepted: _accepted,
    votes.VoteCast: votes.apply_vote,
    proof.CompletionIgnored: result.apply_ignored,
    proof.ProofRefused: result.apply_refused,
    use.ResultConsumed: may_use.apply_consumed,
    retain.HotDropped: let_go.apply_hot_dropped,
    retain.WarmDropped: let_go.apply_warm_dropped,
    retain.BytesGone: let_go.apply_gone,
    retain.Vacuumed: let_go.apply_vacuumed,
    retain.AuditEnded: let_go.apply_audit_ended,
    use.ConsumptionDropped: may_use.apply_dropped,
    marks.EvidenceTaken: marks.apply_taken,
    marks.SessionSealed: sessions.apply_sealed,
    letters.EvidenceBuried: letters.apply_buried,
    letters.LetterReleased: letters.apply_released,
    sessions.EvidencePruned: sessions.apply_pruned,
    sessions.ChannelAssigned: sessions.apply_assigned,
}

TRANSACTIONS: Final[dict[type[Event], tuple[TxKind, Callable[[Any], bytes], Callable[[Any], bytes]]]] = {
    queue.JobAdmitted: (TxKind.ADMISSION, lambda event: event.id, lambda event: event.request_hash),
    requeue.JobRequeued: (TxKind.ADMISSION, lambda event: event.id, lambda event: event.job.request_hash),
    queue.JobCancelled: (TxKind.CANCELLATION, lambda event: event.id, lambda event: event.reason.encode()),
    lease.JobExpired: (TxKind.EXPIRY, lambda event: event.id, lambda event: event.reason.encode()),
    lease.JobFailed: (TxKind.FAILURE, lambda event: event.id, lambda event: event.reason.encode()),
    proof.ProofAccepted: (TxKind.PROOF, lambda event: event.task_id, lambda event: event.nullifier + event.digest),
    use.ResultConsumed: (TxKind.CONSUMPTION, lambda event: event.task_id, lambda event: event.tx_hash),
    provider.ProviderSlashed: (TxKind.SLASH, lambda event: event.id, provider.slash_told),
}
"""CHN-001: the events that blocks are made of, whom each concerns and what it says."""

_CLAIM_KEY: Final[dict[type, Callable[[State, Any], bytes | None]]] = {
    money.Mint: lambda _, command: money.mint_key(command),
    money.Reserve: lambda _, command: money.hold_key(command),
    money.Charge: may.settlement_asked_for,
    money.Refund: may.settlement_asked_for,
    key.MakeKey: lambda _, command: key.key_claim(command),
    queue.Enqueue: lambda _, command: queue.enqueue_key(command),
    requeue.Requeue: requeue.claim_asked_for,
    provider.Stake: lambda _, command: provider.stake_key(command),
    provider.Unstake: lambda _, command: provider.unstake_key(command),
    proof.Submit: may_prove.submission_key,
    proof.Judge: may_prove.verdict_key,
    use.Consume: lambda _, command: use.consumption_key(command.task_id),
    AtHeight: lambda state, call: claim_key(state, call.command),
    Act: lambda state, act: claim_key(state, act.command),
}


def _by_name(act: Act, decided: Decided | Refused) -> Decided | Refused:
    """SEC-001: who asked stands before what was done, in the same batch; what changed nothing needs no name."""
    if isinstance(decided, Refused) or not decided.events:
        return decided
    signed = ActDone(act.actor, act.method, len(decided.events))
    return Decided((signed, *decided.events), decided.attachments, preface=1 + decided.preface)


EVENTS: Final = tuple(_APPLY)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[reduce(or_, EVENTS)]).decode  # type: ignore[misc]


def decide(state: State, command: Command, now_ms: int) -> Decided | Refused:
    """What the rules say to this command now; nothing has changed yet."""
    return _DECIDE[type(command)](state, command, now_ms)


def claim_key(state: State, command: Command) -> bytes | None:
    """The claim this command depends on (ENG-005), so that the engine can recall an old one before the decision."""
    key = _CLAIM_KEY.get(type(command))
    return key(state, command) if key else None


def apply(state: State, event: Event) -> None:
    """Give the event the next number and let it take effect: the only way state changes (ENG-001)."""
    state.last_event = EventNo(state.last_event + 1)
    count, effect, tx = _EFFECTS[type(event)]
    if count is not None:
        count(state, event)
    effect(state, event)
    if tx is not None:
        kind, subject, about = tx
        link.include(state, kind, subject(event), about(event))


_EFFECTS: Final = {each: (COUNTED.get(each), effect, TRANSACTIONS.get(each)) for each, effect in _APPLY.items()}
"""The three tables as one: every event is looked up here."""


def pack(tip: Tip, epoch: Epoch, events: list[Event], time_ms: int) -> Batch:
    """The events as the batch that follows `tip`."""
    return seal(tip, epoch, len(events), time_ms, _pack(events))


def unpack(batch: Batch) -> list[Event]:
    """The events of a batch; unknown fields at an event's end are skipped (CAN-005), an unknown event is Corrupt."""
    try:
        events: list[Event] = _unpack(batch.body)
    except msgspec.DecodeError as fault:
        raise Corrupt(
            "ENG-001", f"batch {batch.number} cannot be read: {fault}", "it may come from a newer version of Holdfast"
        ) from fault
    if len(events) != batch.last - batch.first + 1:
        raise Corrupt("ENG-001", f"batch {batch.number} holds {len(events)} events, not {batch.first}–{batch.last}")
    return events


def fold(state: State, tip: Tip, batches: Iterable[Batch]) -> Tip:
    """ENG-003: check and apply the batches that follow `tip`; returns the new one."""
    for batch in batches:
        check_follows(tip, batch)
        for event in unpack(batch):
            try:
                apply(state, event)
            except Corrupt:
                raise
            except Exception as fault:
                raise Corrupt("ENG-001", f"event {state.last_event} cannot have happened: {event!r:.200}") from fault
        tip = tip_of(batch)
    return tip
