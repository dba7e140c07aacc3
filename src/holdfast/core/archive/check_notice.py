"""Whether a notice counts (NTC-002): the checks in their order, each with a refusal of its own.

An owner checks against its state, a follower against what it has stored or what came with a block.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.archive.notice import EMBEDDED_ROUND, ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height, VerifySignature
from holdfast.core.validator.model import AddressOf, ValidatorSet

NOT_DECIDED: Final = "NotDecided"
CONFLICTS: Final = frozenset({"CommitmentMismatch", "HashMismatch", "KeccakMismatch"})
"""A validator has signed what is not so: somebody must be told (NTC-003)."""


class BlobFacts(msgspec.Struct, frozen=True, gc=False):
    """What a block says of a blob, and who has proposed it."""

    proposer: bytes
    commitment: bytes
    versioned_hash: Digest
    keccak: Digest


class NoticeGround(msgspec.Struct, frozen=True):
    """What a notice is checked against."""

    chain_id: int
    validators: ValidatorSet
    final_height: Height
    blob: BlobFacts | None
    """The one that the notice is about; None where there is none."""


def why_not_notice(
    ground: NoticeGround, notice: ArchiveNotice, verify: VerifySignature, address_of: AddressOf
) -> bytes | Refused:
    """The key that has signed a notice that counts, or the first check that it fails."""
    key = ground.validators.key_at(notice.height, notice.archived_by, address_of)
    if key is None:
        return _refuse(f"{notice.archived_by.hex()} is no validator at height {notice.height}", "UnknownValidator")
    if notice.version == 1 and notice.chain_id != ground.chain_id:
        return _refuse(f"the notice is of chain {notice.chain_id}", "ChainMismatch")
    if not verify(key, notice_root(notice), notice.signature):
        return _refuse("signature verification failed", "BadSignature")
    if notice.height > ground.final_height:
        return _refuse(f"height {notice.height} is not final", NOT_DECIDED)
    if notice.round != EMBEDDED_ROUND:
        return _refuse(f"height {notice.height} was decided in round {EMBEDDED_ROUND}", "WrongRound")
    if (blob := ground.blob) is None:
        return _refuse(f"height {notice.height} has no blob {notice.blob_index} whose bytes are here", "NotFound")
    for is_met, message, name in (
        (ground.validators.speaks_for(key, blob.proposer), "another validator has proposed this height", "NotProposer"),
        (blob.commitment == notice.kzg_commitment, "another commitment", "CommitmentMismatch"),
        (notice.version == 0 or blob.versioned_hash == notice.versioned_hash, "another hash", "HashMismatch"),
        (blob.keccak == notice.blob_keccak, "our bytes have another Keccak-256", "KeccakMismatch"),
    ):
        if not is_met:
            return _refuse(f"blob {notice.blob_index} of height {notice.height}: {message}", name)
    return key


def _refuse(message: str, name: str) -> Refused:
    return Refused("NTC-002", message, "compare the chain and the validators of both nodes", name)
