"""Whether bytes may be dropped (RET-001, RET-002): never before finality, never while another result needs them.

The collector has read rows and bytes; this checks what only the state knows at the time of the decision.
"""

from __future__ import annotations

from collections.abc import Container

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Digest, EventNo, Height
from holdfast.core.chain.model import final_height
from holdfast.core.proof.envelope import read_body
from holdfast.core.proof.messages import SubmitCompletion
from holdfast.core.retention.messages import (
    AuditEnded,
    BytesDeleted,
    ConfirmDeleted,
    DropHot,
    DropWarm,
    EndAudit,
    HotDropped,
    OrphanFile,
    PageRange,
    Skipped,
    Vacuum,
    Vacuumed,
    WarmCandidate,
    WarmDropped,
)
from holdfast.core.retention.model import REQUESTED_MEANWHILE, SKIPPED_MAX, HasRetention, Pass, pass_position

SUBMITTED_MEANWHILE = "the same bytes were just submitted"
NO_RESULT = EventNo(0)
"""The event of orphans, which have no result."""
_HOT_FIRST = "run the hot pass first"
_BYTES_FIRST = "run the hot and the warm pass first"


def retention_watermark(state: HasRetention) -> Height:
    """RET-001: results up to this height are candidates: old enough, and final."""
    old_enough = state.chain.head.height - state.policy.result.retain_hot_blocks
    return Height(max(0, min(old_enough, final_height(state))))


def drop_hot(state: HasRetention, command: DropHot, _now_ms: int) -> Decided | Refused:
    page, after = command.page, pass_position(state, Pass.HOT)
    if refusal := _why_not_page(state, page, Pass.HOT) or _why_not_skipped(
        state.skipped_hot, page.skipped, command.retried
    ):
        return refusal
    if page.until == after and not command.retried:
        return Decided((), repeat_of=state.last_event)
    return Decided((record_from(HotDropped, command, after=after, until=page.until, skipped=page.skipped),))


def drop_warm(state: HasRetention, command: DropWarm, _now_ms: int) -> Decided | Refused:
    page, hot_position = command.page, pass_position(state, Pass.HOT)
    if refusal := _why_not_page(state, page, Pass.WARM):
        return refusal
    if page.until > hot_position:
        return Refused("RET-002", f"results up to {hot_position} have left the store, {page.until} has not", _HOT_FIRST)
    is_loss = any(not candidate.is_archived for candidate in (*command.candidates, *command.retried))
    if is_loss and not state.policy.result.may_lose_unarchived:
        message = "some bytes are not archived"
        return Refused("RET-002", message, "configure an archive, or policy.result.may_lose_unarchived = true")
    skipped, candidates, retried = _without_submitted(state, command)
    if refusal := _why_not_skipped(state.skipped_warm, skipped, tuple(candidate.event for candidate in retried)):
        return refusal
    orphans = unreferenced(state, page.as_of, command.orphans)
    if page.until == pass_position(state, Pass.WARM) and not retried and not orphans:
        return Decided((), repeat_of=state.last_event)
    dropped = (*candidates, *retried)
    counted = [each for each in dropped if state.skipped_warm.get(each.event) != REQUESTED_MEANWHILE]
    lost = [candidate.size for candidate in counted if not candidate.is_archived]
    event = WarmDropped(
        until=page.until,
        results=len(counted),
        bytes=sum(candidate.size for candidate in counted),
        lost=len(lost),
        lost_bytes=sum(lost),
        skipped=skipped,
        retried=tuple(candidate.event for candidate in retried),
        deletable=(*_deletable(state, page, dropped), *((digest, NO_RESULT) for digest, _ in orphans)),
        orphans=len(orphans),
        orphan_bytes=sum(size for _, size in orphans),
    )
    return Decided((event,))


def confirm_deleted(state: HasRetention, command: ConfirmDeleted, _now_ms: int) -> Decided | Refused:
    """Spared bytes belong to their result again; a spared orphan has none and is found again later."""
    waiting = state.hot_deletes_pending if command.tier == Pass.HOT else state.warm_deletes_pending
    if not waiting:
        return Decided((), repeat_of=state.last_event)
    spared = tuple(
        digest for digest in command.spared if state.warm_deletes_pending.get(digest, NO_RESULT) != NO_RESULT
    )
    return Decided((BytesDeleted(command.tier, spared),))


def vacuum(state: HasRetention, command: Vacuum, _now_ms: int) -> Decided | Refused:
    page, warm_position = command.page, pass_position(state, Pass.WARM)
    if refusal := _why_not_page(state, page, Pass.RECORDS):
        return refusal
    if (
        page.until > warm_position
        or state.warm_deletes_pending
        or any(event <= page.until for event in state.skipped_warm)
    ):
        return Refused("RET-002", f"not all bytes of the results up to {page.until} are deleted", _BYTES_FIRST)
    if page.until == pass_position(state, Pass.RECORDS):
        return Decided((), repeat_of=state.last_event)
    return Decided((Vacuumed(page.until, command.tombstones),))


def end_audit(state: HasRetention, command: EndAudit, _now_ms: int) -> Decided | Refused:
    if command.until > pass_position(state, Pass.RECORDS):
        return Refused(
            "RET-002", f"the result of event {command.until} has no tombstone yet", "run the records pass first"
        )
    if command.until <= pass_position(state, Pass.AUDIT):
        return Decided((), repeat_of=state.last_event)
    return Decided((AuditEnded(command.until, command.events),))


def check_not_being_deleted(state: HasRetention, command: SubmitCompletion) -> Refused | None:
    """RCV-001: a completion cannot rely on bytes that are about to be deleted; the provider sends them again."""
    body = read_body(command.envelope.body)
    if isinstance(body, Refused) or body.output_digest not in state.warm_deletes_pending:
        return None
    message = "the node is deleting an older copy of these bytes"
    return Refused("RCV-001", message, "send the output again, then complete")


# ------------------------------------------------------------------------------------------------ what a page must be


def _why_not_page(state: HasRetention, page: PageRange, pass_: Pass) -> Refused | None:
    highest = retention_watermark(state)
    if page.watermark > highest:
        message = f"results up to height {highest} are candidates, these are up to {page.watermark}"
        return Refused("RET-001", message, "they are too young, or a reorg could still reach them")
    if page.as_of < state.recent_digests.complete_after:
        return Refused("RET-002", f"the rows are as of event {page.as_of}: too old", "read them again")
    if page.until < (position := pass_position(state, pass_)):
        return Refused("RET-003", f"this pass is at event {position} already", "go on from there")
    return None


def _why_not_skipped(
    skipped_before: dict[EventNo, str], skipped: tuple[Skipped, ...], retried: tuple[EventNo, ...]
) -> Refused | None:
    if any(event not in skipped_before for event in retried):
        return Refused("RET-003", "a result that was not skipped cannot be retried", "retry only what was skipped")
    if skipped and len(skipped_before) + len(skipped) - len(retried) > SKIPPED_MAX:
        return Refused("RET-003", f"{SKIPPED_MAX} results are skipped already", "`holdfast gc status` shows why")
    return None


# ------------------------------------------------------------------------------------------------ who needs the bytes


def unreferenced(state: HasRetention, as_of: EventNo, orphans: tuple[OrphanFile, ...]) -> tuple[OrphanFile, ...]:
    """RET-002: of bytes that no row needs as of that event, those that nothing needs since."""
    if not orphans:
        return ()
    needed = _submitted_digests(state) | _result_digests(state, {digest for digest, _ in orphans})
    needed, event_of = needed | state.warm_deletes_pending.keys(), state.recent_digests.event_of
    return tuple((digest, size) for digest, size in orphans if digest not in needed and event_of(digest) <= as_of)


def _without_submitted(
    state: HasRetention, command: DropWarm
) -> tuple[tuple[Skipped, ...], tuple[WarmCandidate, ...], tuple[WarmCandidate, ...]]:
    """Bytes of a submission stay until its verdict; results with the same bytes are skipped until then."""
    waiting = _submitted_digests(state)
    skipped = tuple((held.event, SUBMITTED_MEANWHILE) for held in command.candidates if held.digest in waiting)
    candidates = tuple(held for held in command.candidates if held.digest not in waiting)
    retried = tuple(held for held in command.retried if held.digest not in waiting)
    return (*command.page.skipped, *skipped), candidates, retried


def _submitted_digests(state: HasRetention) -> set[Digest]:
    """The digests that wait for a verdict, and those of votes (LEA-009)."""
    leases = state.leases.by_id
    waiting = {leases[id_].submitted for id_ in state.submissions if id_ in leases}
    final, jobs = final_height(state), state.queue.jobs
    waiting |= {
        vote.digest
        for id_, quorum in state.quorums.items()
        if not 0 < (jobs[id_].settled_height or 0) <= final
        for vote in quorum.votes
    }
    return {digest for digest in waiting if digest is not None}


def _result_digests(state: HasRetention, among: Container[Digest]) -> set[Digest]:
    """Those of these digests that results have which a reorg can still unlink; no set of all digests is made."""
    final = final_height(state)
    return {
        result.result_digest
        for result in state.results.values()
        if result.result_digest in among and not 0 < result.height_resolved <= final
    }


def _deletable(
    state: HasRetention, page: PageRange, dropped: tuple[WarmCandidate, ...]
) -> tuple[tuple[Digest, EventNo], ...]:
    """Bytes that several results share are deletable when the last of them is dropped."""
    unshared = {held.digest: held.event for held in dropped if not held.is_shared}
    if not unshared:
        return ()
    needed = _result_digests(state, unshared)
    needed |= {held.digest for held in dropped if held.is_shared}
    event_of = state.recent_digests.event_of
    return tuple(
        (digest, event) for digest, event in unshared.items() if digest not in needed and event_of(digest) <= page.as_of
    )
