"""Whether results may be let go (RET-001, RET-002): never what is not final, never what somebody else needs.

The collector has looked at rows and at bytes; here is asked what only the state knows at this very moment.
"""

from __future__ import annotations

from holdfast.core.chain.blocks import finalized
from holdfast.core.event import Decided
from holdfast.core.proof.acts import Submit
from holdfast.core.proof.envelope import read_body
from holdfast.core.refusal import Refused
from holdfast.core.retention.acts import (
    AuditEnded,
    BytesGone,
    DropHot,
    DropWarm,
    EndAudit,
    Held,
    HotDropped,
    Left,
    Lot,
    Stray,
    Sweep,
    Vacuum,
    Vacuumed,
    WarmDropped,
)
from holdfast.core.retention.books import KEPT_MAX, Pass, Retaining, until
from holdfast.core.values import Digest, EventNo, Height

HANDED_IN = "the same bytes are just being handed in"
NO_RESULT = EventNo(0)
"""Whose bytes strays are."""


def watermark(state: Retaining) -> Height:
    """RET-001: up to here results are candidates: old enough, and no reorg can reach them."""
    old = state.chain.head.height - state.policy.result.retain_hot_blocks
    return Height(max(0, min(old, finalized(state))))


def drop_hot(state: Retaining, command: DropHot, _now_ms: int) -> Decided | Refused:
    lot = command.lot
    if no := _why_not_lot(state, lot, Pass.HOT) or _why_not_left(state.kept_hot, lot.left, command.again):
        return no
    if lot.until == until(state, Pass.HOT) and not command.again:
        return Decided((), since=state.last_event)
    told = (command.results, command.bytes, lot.left, command.again, command.is_swept)
    return Decided((HotDropped(until(state, Pass.HOT), lot.until, *told),))


def drop_warm(state: Retaining, command: DropWarm, _now_ms: int) -> Decided | Refused:
    lot, behind = command.lot, until(state, Pass.HOT)
    if no := _why_not_lot(state, lot, Pass.WARM):
        return no
    if lot.until > behind:
        return Refused("RET-002", f"results up to {behind} have left the store, {lot.until} has not")
    if any(not held.is_archived for held in (*command.held, *command.again)) and not _may_lose(state):
        says = "some bytes are not archived"
        return Refused("RET-002", says, "configure an archive, or policy.result.may_lose_unarchived = true")
    left, going, again = _without_handed_in(state, command)
    if no := _why_not_left(state.kept_warm, left, tuple(held.event for held in again)):
        return no
    strays = not_needed(state, lot.as_of, command.strays)
    if lot.until == until(state, Pass.WARM) and not again and not strays:
        return Decided((), since=state.last_event)
    gone = (*going, *again)
    lost = [held.size for held in gone if not held.is_archived]
    told = (len(gone), sum(held.size for held in gone), len(lost), sum(lost))
    events = tuple(held.event for held in again)
    condemned = (*_condemned(state, lot, gone), *((digest, NO_RESULT) for digest, _ in strays))
    counted = (len(strays), sum(size for _, size in strays))
    return Decided((WarmDropped(lot.until, *told, left, events, condemned, *counted),))


def sweep(state: Retaining, command: Sweep, _now_ms: int) -> Decided | Refused:
    """What was spared is its result's again; a stray is nobody's, and is found once more when it is old again."""
    waiting = state.leaving if command.tier == Pass.HOT else state.condemned
    if not waiting:
        return Decided((), since=state.last_event)
    spared = tuple(digest for digest in command.spared if state.condemned.get(digest, NO_RESULT) != NO_RESULT)
    return Decided((BytesGone(command.tier, spared),))


def vacuum(state: Retaining, command: Vacuum, _now_ms: int) -> Decided | Refused:
    lot, behind = command.lot, until(state, Pass.WARM)
    if no := _why_not_lot(state, lot, Pass.INDEX):
        return no
    if lot.until > behind or state.condemned or any(event <= lot.until for event in state.kept_warm):
        return Refused("RET-002", f"not all bytes of the results up to {lot.until} are let go")
    if lot.until == until(state, Pass.INDEX):
        return Decided((), since=state.last_event)
    return Decided((Vacuumed(lot.until, command.tombstones),))


def end_audit(state: Retaining, command: EndAudit, _now_ms: int) -> Decided | Refused:
    if command.until > until(state, Pass.INDEX):
        return Refused("RET-002", f"no tombstone stands for the result of event {command.until} yet")
    if command.until <= until(state, Pass.AUDIT):
        return Decided((), since=state.last_event)
    return Decided((AuditEnded(command.until, command.events),))


def why_not_hold(state: Retaining, command: Submit) -> Refused | None:
    """RCV-001: bytes that are about to be deleted are not held. Whoever sends them again holds them anew."""
    if not state.condemned:
        return None
    body = read_body(command.envelope.body)
    if isinstance(body, Refused) or body.output_digest not in state.condemned:
        return None
    says = "the node is just letting go of an older copy of these bytes"
    return Refused("RCV-001", says, "send the output again, then complete")


# ------------------------------------------------------------------------------------------------ what a lot must be


def _why_not_lot(state: Retaining, lot: Lot, pass_: Pass) -> Refused | None:
    highest = watermark(state)
    if lot.watermark > highest:
        says = f"results up to height {highest} are candidates, these are up to {lot.watermark}"
        return Refused("RET-001", says, "they are too young, or a reorg could still reach them")
    if lot.as_of < state.recent.floor:
        return Refused("RET-002", f"the rows are as of event {lot.as_of}: too long ago", "look again")
    if lot.until < (behind := until(state, pass_)):
        return Refused("RET-003", f"this pass has come to event {behind} already")
    return None


def _why_not_left(kept: dict[EventNo, str], left: tuple[Left, ...], again: tuple[EventNo, ...]) -> Refused | None:
    if any(event not in kept for event in again):
        return Refused("RET-003", "a result that was not left behind cannot be taken up again")
    if left and len(kept) + len(left) - len(again) > KEPT_MAX:
        return Refused("RET-003", f"{KEPT_MAX} results are left behind already", "find out why, holdfast gc run says")
    return None


def _may_lose(state: Retaining) -> bool:
    return state.policy.result.may_lose_unarchived


# ------------------------------------------------------------------------------------------------ who needs the bytes


def not_needed(state: Retaining, as_of: EventNo, strays: tuple[Stray, ...]) -> tuple[Stray, ...]:
    """RET-002: of bytes that no row as of that event needs, those that nobody has come to need since."""
    if not strays:
        return ()
    needed, recent = _handed_in(state) | _in_memory(state) | state.condemned.keys(), state.recent.events
    return tuple(
        (digest, size) for digest, size in strays if digest not in needed and recent.get(digest, NO_RESULT) <= as_of
    )


def _without_handed_in(
    state: Retaining, command: DropWarm
) -> tuple[tuple[Left, ...], tuple[Held, ...], tuple[Held, ...]]:
    """Bytes that a completion relies on stay until its verdict; their results wait with them."""
    waiting = _handed_in(state)
    if not waiting:
        return command.lot.left, command.held, command.again
    left = tuple((held.event, HANDED_IN) for held in command.held if held.digest in waiting)
    going = tuple(held for held in command.held if held.digest not in waiting)
    again = tuple(held for held in command.again if held.digest not in waiting)
    return (*command.lot.left, *left), going, again


def _handed_in(state: Retaining) -> set[Digest]:
    """What waits for a verdict, and what was voted for until the others have voted (LEA-009)."""
    leases = state.leases.by_id
    waiting = {leases[id_].submitted for id_ in state.submissions if id_ in leases}
    waiting |= {vote.digest for quorum in state.quorums.values() for vote in quorum.votes}
    return {digest for digest in waiting if digest is not None}


def _in_memory(state: Retaining) -> set[Digest]:
    return {result.result_digest for result in state.results.values()}


def _condemned(state: Retaining, lot: Lot, gone: tuple[Held, ...]) -> tuple[tuple[Digest, EventNo], ...]:
    """Of several results with the same bytes the last one lets go of them."""
    wanted = {held.digest: held.event for held in gone if not held.is_shared}
    if not wanted:
        return ()
    needed = _in_memory(state)
    needed |= {held.digest for held in gone if held.is_shared}
    recent = state.recent.events
    return tuple(
        (digest, event)
        for digest, event in wanted.items()
        if digest not in needed and recent.get(digest, EventNo(0)) <= lot.as_of
    )
