"""The one table from command to station and from event to effect; everything that decides passes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from holdfast.core import clock, key
from holdfast.core.act import Act, ActDone
from holdfast.core.chain import acts as chain
from holdfast.core.chain import apply as link
from holdfast.core.chain import decide as may_link
from holdfast.core.chain.blocks import TxKind
from holdfast.core.escrow import acts as money
from holdfast.core.escrow import apply as move
from holdfast.core.escrow import decide as may
from holdfast.core.event import Batch, Decided, Event, OwnershipTaken, Tip, check_follows, seal, tip_of
from holdfast.core.evidence import marks
from holdfast.core.lease import acts as lease
from holdfast.core.lease import apply as lend
from holdfast.core.lease import decide as may_lend
from holdfast.core.match import decide as match
from holdfast.core.proof import decide as proof
from holdfast.core.provider import acts as provider
from holdfast.core.provider import apply as enlist
from holdfast.core.provider import decide as may_enlist
from holdfast.core.queue import acts as queue
from holdfast.core.queue import apply as line
from holdfast.core.queue import decide as may_queue
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.result import apply as result
from holdfast.core.state import State
from holdfast.core.values import Epoch, EventNo

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
    | chain.Seal
    | chain.RollBack
    | provider.Register
    | provider.Stake
    | provider.Beat
    | match.Match
    | lease.AckLease
    | lease.RenewLease
    | lease.DeclineLease
    | lease.FailLease
    | lease.Reap
    | proof.Submit
    | proof.Judge
    | marks.TakeEvidence
    | clock.NoteTime
    | Act
)

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
    chain.Seal: may_link.seal,
    chain.RollBack: may_link.roll_back,
    provider.Register: may_enlist.register,
    provider.Stake: may_enlist.stake,
    provider.Beat: may_enlist.beat,
    match.Match: match.match,
    lease.AckLease: may_lend.ack,
    lease.RenewLease: may_lend.renew,
    lease.DeclineLease: may_lend.decline,
    lease.FailLease: may_lend.fail,
    lease.Reap: may_lend.reap,
    proof.Submit: proof.submit,
    proof.Judge: proof.judge,
    marks.TakeEvidence: marks.take,
    clock.NoteTime: clock.note,
    Act: lambda state, act, now_ms: _by_name(act, decide(state, act.command, now_ms)),
}


def _owned(state: State, event: OwnershipTaken) -> None:
    state.owner = event
    lend.forgive(state, event)


def _finalized(state: State, event: money.Finalized) -> None:
    link.apply_finalized(state, event)
    result.let_final_go(state, event.height)


def _undone(state: State, event: chain.BlockUndone) -> None:
    result.unlink(state, event.height)
    link.apply_undone(state, event)


_AGAIN: Final[dict[TxKind, link.Again]] = {
    TxKind.CANCELLATION: link.refund_again,
    TxKind.EXPIRY: link.refund_again,
    TxKind.FAILURE: link.refund_again,
    TxKind.PROOF: result.resolve_again,
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
    money.Undone: move.apply_undone,
    key.KeyMade: key.apply_made,
    key.KeyRotated: key.apply_rotated,
    key.KeyRevoked: key.apply_revoked,
    queue.JobAdmitted: line.apply_admitted,
    queue.JobCancelled: line.apply_cancelled,
    queue.FeeRaised: line.apply_fee_raised,
    chain.BlockSealed: link.apply_sealed,
    chain.BlockUndone: _undone,
    chain.Reincluded: lambda state, event: link.apply_reincluded(state, event, _AGAIN),
    provider.ProviderRegistered: enlist.apply_registered,
    provider.ProviderStaked: enlist.apply_staked,
    provider.HeartbeatTaken: enlist.apply_heartbeat,
    provider.ProviderMoved: enlist.apply_moved,
    lease.JobAssigned: lend.apply_assigned,
    lease.LeaseAcked: lend.apply_acked,
    lease.LeaseRenewed: lend.apply_renewed,
    lease.LeaseClosed: lend.apply_closed,
    lease.CompletionSubmitted: lend.apply_submitted,
    lease.JobExpired: lend.apply_expired,
    lease.JobFailed: lend.apply_failed,
    proof.ProofAccepted: result.apply_accepted,
    proof.CompletionIgnored: result.apply_ignored,
    marks.EvidenceTaken: marks.apply_taken,
}

TRANSACTIONS: Final[dict[type[Event], tuple[TxKind, Callable[[Any], bytes], Callable[[Any], bytes]]]] = {
    queue.JobAdmitted: (TxKind.ADMISSION, lambda event: event.id, lambda event: event.request_hash),
    queue.JobCancelled: (TxKind.CANCELLATION, lambda event: event.id, lambda event: event.reason.encode()),
    lease.JobExpired: (TxKind.EXPIRY, lambda event: event.id, lambda event: event.reason.encode()),
    lease.JobFailed: (TxKind.FAILURE, lambda event: event.id, lambda event: event.reason.encode()),
    proof.ProofAccepted: (TxKind.PROOF, lambda event: event.task_id, lambda event: event.nullifier + event.digest),
}
"""CHN-001: the events that blocks are made of, whom each concerns and what it says."""

_CLAIM_KEY: Final[dict[type, Callable[[State, Any], bytes | None]]] = {
    money.Mint: lambda _, command: money.mint_key(command),
    money.Reserve: lambda _, command: money.hold_key(command),
    money.Charge: may.settlement_asked_for,
    money.Refund: may.settlement_asked_for,
    key.MakeKey: lambda _, command: key.key_claim(command),
    queue.Enqueue: lambda _, command: queue.enqueue_key(command),
    provider.Stake: lambda _, command: provider.stake_key(command),
    proof.Judge: proof.verdict_key,
    Act: lambda state, act: claim_key(state, act.command),
}


def _by_name(act: Act, decided: Decided | Refused) -> Decided | Refused:
    """SEC-001: who asked stands before what was done, in the same batch; what changed nothing needs no name."""
    if isinstance(decided, Refused) or not decided.events:
        return decided
    signed = ActDone(act.actor, act.method, len(decided.events))
    return Decided((signed, *decided.events), decided.attachments, preface=1)


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
    _APPLY[type(event)](state, event)
    if (found := TRANSACTIONS.get(type(event))) is not None:
        kind, subject, about = found
        link.include(state, kind, subject(event), about(event))


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
