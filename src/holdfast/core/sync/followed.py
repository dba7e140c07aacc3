"""What a follower keeps of a blob, and what becomes of its record: notices, read-backs, pruning (SYN-002, PRU-001)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from holdfast.core.archive.decide import must_read_back
from holdfast.core.archive.messages import SIGNED, VERIFIED
from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.model import BlobStatus
from holdfast.core.chain.header import SignedHeader
from holdfast.core.policy import ArchivePolicy
from holdfast.core.sync.check_package import CheckedPackage
from holdfast.core.sync.package import BlockPackage, PackageKind
from holdfast.core.validator.model import ValidatorSet


class BytesStatus(StrEnum):
    """Where the bytes of a followed blob are."""

    HERE = "here"
    PRUNED = "pruned"
    """They were here, and went after the record was sure."""
    ABSENT = "absent"
    """They never were here: the height was synced as Archived (SYN-002)."""


class FollowedBlob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A blob of a followed block; a row that is never deleted (BLB-002)."""

    height: Height
    number: int
    block_hash: Digest
    proposer: bytes
    versioned_hash: Digest
    commitment: bytes
    proof: bytes
    """Empty where the bytes never were here: it was not checked."""
    keccak: Digest
    bytes_status: BytesStatus
    status: BlobStatus = BlobStatus.PENDING
    assurance: str = ""
    provider_id: str = ""
    locator: str = ""
    archived_by: bytes = b""
    archived_at: int = 0
    alternates: str = ""
    """Other locators with the same bytes, one a line."""
    notice: bytes = b""
    """As it was received; empty where the item was found in the archive."""
    reason: str = ""


class FollowedChain(msgspec.Struct, frozen=True):
    """How far a follower is, and who the validators are after that block."""

    head: SignedHeader
    validators: ValidatorSet


def blobs_of(checked: CheckedPackage, package: BlockPackage, encoded: Sequence[bytes]) -> list[FollowedBlob]:
    """The rows of a block that was checked; `encoded` are the notices that came with it."""
    header, is_full = checked.signed.header, package.kind is PackageKind.FULL
    blobs = list[FollowedBlob]()
    for number, leaf in enumerate(checked.leaves):
        blob = FollowedBlob(
            height=header.height,
            number=number,
            block_hash=checked.signed.hash,
            proposer=header.proposer,
            versioned_hash=leaf.versioned_hash,
            commitment=leaf.commitment,
            proof=package.sidecars[number].proof if is_full else b"",
            keccak=leaf.keccak,
            bytes_status=BytesStatus.HERE if is_full else BytesStatus.ABSENT,
        )
        archived = None if is_full else package.archived[number]
        if archived is not None:
            blob = with_notice(blob, archived.notice, encoded[number], SIGNED) or blob
        blobs.append(blob)
    return blobs


def with_notice(blob: FollowedBlob, notice: ArchiveNotice, raw: bytes, assurance: str) -> FollowedBlob | None:
    """NTC-003: the record after a notice that counts; None where it changes nothing."""
    is_archived = blob.status is BlobStatus.ARCHIVED
    if is_archived and notice.locator in (blob.locator, *blob.alternates.splitlines()):
        is_better = not blob.notice and notice.locator == blob.locator
        return msgspec.structs.replace(blob, notice=raw, archived_by=notice.archived_by) if is_better else None
    if is_archived:
        return msgspec.structs.replace(blob, alternates="\n".join([*blob.alternates.splitlines(), notice.locator]))
    return msgspec.structs.replace(
        blob,
        status=BlobStatus.ARCHIVED,
        assurance=assurance,
        provider_id=notice.provider_id,
        locator=notice.locator,
        archived_by=notice.archived_by,
        archived_at=notice.archived_at,
        notice=raw,
        reason="",
    )


def why_not_prune_followed(policy: ArchivePolicy, blobs: Sequence[FollowedBlob]) -> Refused | None:
    """PRU-001: every blob of the height has a record, and is read back unless policy says less."""
    height = blobs[0].height
    sure = sum(blob.status is BlobStatus.ARCHIVED and is_record_sure(policy, blob) for blob in blobs)
    if sure < len(blobs):
        return Refused(
            "PRU-001", f"{sure} of {len(blobs)} blobs of height {height} are archived", "wait for its archive"
        )
    return None


def is_record_sure(policy: ArchivePolicy, blob: FollowedBlob) -> bool:
    return blob.assurance == VERIFIED or not must_read_back(policy, blob.versioned_hash)
