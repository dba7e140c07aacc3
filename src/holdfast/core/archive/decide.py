"""Whether an upload is due, a notice counts, and bytes may go (ARC-001 … PRU-001)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.archive.check_notice import BlobFacts, NoticeGround, why_not_notice
from holdfast.core.archive.confirm import why_not_quorum
from holdfast.core.archive.messages import (
    SIGNED,
    VERIFIED,
    AcceptNotice,
    ArchiveLost,
    BlobArchived,
    BlobsPruned,
    BlobsRecalled,
    IntendUpload,
    PruneBlobs,
    RecallBlobs,
    RecordUploadFailure,
    ReportLost,
    RetryUploads,
    UploadFailed,
    UploadIntended,
    UploadsRetried,
)
from holdfast.core.archive.notice import notice_root
from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.model import Blob, BlobStatus, HasBlobs, LiveBlob, all_blobs, live_blob
from holdfast.core.chain.model import final_height
from holdfast.core.policy import ArchivePolicy, ReadBack
from holdfast.core.validator.model import validator_set

RETRY_TAG: Final = "holdfast.archive.retry.v1"
REASON_MAX: Final = 300
_ARCHIVE_FIRST: Final = "wait for the archive: `holdfast archive status` shows what waits and what is stalled"
SAMPLED_PER_256: Final = 16
"""How many of 256 blobs are read back where policy says `sampled`: chosen by their hash, the same on every node."""


def intend_upload(state: HasBlobs, command: IntendUpload, now_ms: int) -> Decided | Refused:
    """ARC-001, ARC-002: the proposer of a final height or its successor, and stored before anything is sent."""
    blob = _blob_of(state, command.height, command.number)
    if isinstance(blob, Refused):
        return blob
    if command.height > final_height(state):
        return Refused("ARC-001", f"height {command.height} is not final", "its blobs are archived when it is")
    if not validator_set(state).speaks_for(command.proposer, blob.proposer):
        return Refused("ARC-001", f"another node has proposed height {command.height}", "its proposer archives it")
    if (blob.item_id, blob.provider_id) == (command.item_id, command.provider_id):
        return Decided((), repeat_of=state.last_event)
    intended = UploadIntended(
        command.height, command.number, command.provider_id, command.item_id, archived_at=now_ms // 1_000
    )
    return Decided((intended,))


def record_failure(state: HasBlobs, command: RecordUploadFailure, now_ms: int) -> Decided | Refused:
    """ARC-003: the next attempt later and later; after the last one the upload is stalled, never dropped."""
    blob = _blob_of(state, command.height, command.number)
    if isinstance(blob, Refused):
        return blob
    policy = state.policy.archive
    attempts = policy.attempts_max if command.is_refused else blob.attempts + 1
    delay_ms = retry_delay_ms(policy, blob.versioned_hash, attempts)
    reason = command.reason[:REASON_MAX]
    return Decided((UploadFailed(command.height, command.number, attempts, now_ms + delay_ms, reason),))


def retry_delay_ms(policy: ArchivePolicy, versioned_hash: Digest, attempts: int) -> int:
    """Exponential, with the upper half drawn from the blob's hash: what failed together does not return together."""
    if attempts >= policy.attempts_max:
        return policy.stalled_retry_ms
    delay_ms = min(policy.retry_cap_ms, policy.retry_base_ms << min(attempts - 1, 40))
    drawn = int.from_bytes(H(RETRY_TAG, versioned_hash, attempts)[:8], "big")
    return delay_ms // 2 + drawn % (delay_ms - delay_ms // 2 + 1)


def is_stalled(policy: ArchivePolicy, blob: Blob) -> bool:
    return is_unarchived(blob) and blob.attempts >= policy.attempts_max


def is_unarchived(blob: Blob) -> bool:
    return blob.status in (BlobStatus.PENDING, BlobStatus.SUSPECT)


def retry_uploads(state: HasBlobs, command: RetryUploads, _now_ms: int) -> Decided | Refused:
    failed = [live.blob for live in all_blobs(state) if live.blob.attempts and is_unarchived(live.blob)]
    if not any(command.height in (0, blob.height) for blob in failed):
        return Decided((), repeat_of=state.last_event)
    return Decided((UploadsRetried(command.height),))


def accept_notice(state: HasBlobs, command: AcceptNotice, _now_ms: int) -> Decided | Refused:
    """NTC-002, NTC-003: the same again is no change, another locator of the same bytes is an alternate."""
    notice = command.notice
    live = live_blob(state, notice.height, notice.blob_index)
    facts = None if live is None else record_from(BlobFacts, live.blob)
    ground = NoticeGround(state.policy.chain_id, validator_set(state), final_height(state), facts)
    signer = why_not_notice(ground, notice, command.verify, command.address_of)
    if isinstance(signer, Refused):
        return signer
    assert live is not None, "else it is refused"
    blob = live.blob
    is_archived = blob.status is BlobStatus.ARCHIVED
    is_known = notice.locator in (blob.locator, *blob.alternates.splitlines())
    is_better = command.assurance == VERIFIED and blob.assurance == SIGNED
    if is_archived and is_known and not is_better:
        return Decided((), repeat_of=state.last_event)
    archived = record_from(
        BlobArchived,
        notice,
        number=notice.blob_index,
        assurance=command.assurance,
        is_alternate=is_archived and not is_known,
        root=notice_root(notice),
        signer=signer,
    )
    return Decided((archived,))


def prune_blobs(state: HasBlobs, command: PruneBlobs, _now_ms: int) -> Decided | Refused:
    blobs = state.blob_heights.get(command.height)
    if blobs is None or blobs[0].blob.is_pruned:  # PRU-002: allowed
        return Decided((), repeat_of=state.last_event)
    return why_not_prune(state, command.height) or Decided((BlobsPruned(command.height),))


def why_not_prune(state: HasBlobs, height: Height) -> Refused | None:
    """PRU-001: all blobs of a final height are archived, and `retain_blocks` have passed."""
    policy, blobs = state.policy.archive, [live.blob for live in state.blob_heights[height]]
    if height > final_height(state):
        return Refused("PRU-001", f"height {height} is not final", "wait until it is final")
    if state.chain.head.height - height < policy.retain_blocks:
        return Refused("PRU-001", f"height {height} is kept for {policy.retain_blocks} blocks", "choose a lower height")
    archived = sum(blob.status is BlobStatus.ARCHIVED and is_sure(policy, blob) for blob in blobs)
    if archived < len(blobs):
        return Refused("PRU-001", f"{archived} of {len(blobs)} blobs of height {height} are archived", _ARCHIVE_FIRST)
    return why_not_quorum(state, height) if policy.prune_quorum else None


def is_sure(policy: ArchivePolicy, blob: Blob) -> bool:
    """ARC-004: whether a record is enough to delete the bytes: read back, unless policy says less."""
    return blob.assurance == VERIFIED or not must_read_back(policy, blob.versioned_hash)


def must_read_back(policy: ArchivePolicy, versioned_hash: Digest) -> bool:
    if policy.trust_receipts or policy.read_back is ReadBack.NEVER:
        return False
    return policy.read_back is ReadBack.ALWAYS or versioned_hash[-1] < SAMPLED_PER_256


def report_lost(state: HasBlobs, command: ReportLost, _now_ms: int) -> Decided | Refused:
    blob = _blob_of(state, command.height, command.number)
    if isinstance(blob, Refused):
        return blob
    if blob.status is not BlobStatus.ARCHIVED:
        return Decided((), repeat_of=state.last_event)
    return Decided((ArchiveLost(command.height, command.number, command.reason[:REASON_MAX]),))


def recall_blobs(state: HasBlobs, command: RecallBlobs, _now_ms: int) -> Decided | Refused:
    """PRU-001: what the archive lost after its bytes were deleted here is suspect, with its bytes if it can."""
    lives, height = command.lives, command.lives[0].blob.height
    if (known := state.blob_heights.get(height)) and not known[0].blob.is_pruned:
        return Refused("ARC-004", f"the bytes of height {height} are here", "report what was lost instead")
    if height > final_height(state) or not all(live.blob.is_pruned for live in lives):
        return Refused("ARC-004", f"the bytes of height {height} were not deleted", name="InvalidParams")
    newest = known or lives  # memory is never behind the tables
    stored = tuple(LiveBlob(msgspec.structs.replace(live.blob), live.parts, live.changed) for live in newest)
    return Decided((BlobsRecalled(height, stored, command.lost, command.reason[:REASON_MAX], command.are_here),))


def pending_under_old_keys(state: HasBlobs) -> dict[bytes, list[Height]]:
    """NTC-005: heights that wait for a proposer that is no validator any more, and has no successor."""
    validators, pending = validator_set(state), dict[bytes, list[Height]]()
    current = validators.at(state.open_height)
    for height, lives in state.blob_heights.items():
        proposer = lives[0].blob.proposer
        if not proposer or any(validators.speaks_for(key, proposer) for key in current):
            continue
        if any(is_unarchived(live.blob) and not live.blob.is_pruned for live in lives):
            pending.setdefault(proposer, []).append(height)
    return pending


def _blob_of(state: HasBlobs, height: Height, number: int) -> Blob | Refused:
    live = live_blob(state, height, number)
    if live is None:
        return Refused("ARC-001", f"height {height} has no blob {number} whose bytes are here", name="NotFound")
    return live.blob
