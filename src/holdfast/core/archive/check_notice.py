"""Whether a notice counts (NTC-002): the checks in their order, each with a refusal of its own.

An owner checks against its state, a follower against what it has stored: both are a `NoticeGround`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeVar

from holdfast.core.archive.notice import EMBEDDED_ROUND, ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height, VerifySignature
from holdfast.core.blob.model import Blob, HasBlobs, live_blob
from holdfast.core.chain.model import final_height
from holdfast.core.validator.model import AddressOf, ValidatorSet, validator_set

NOT_DECIDED: Final = "NotDecided"
CONFLICTS: Final = frozenset({"CommitmentMismatch", "HashMismatch", "KeccakMismatch"})
"""A validator has signed what is not so: somebody must be told (NTC-003)."""


class BlobFacts(Protocol):
    """What a block says of a blob, and who has proposed it."""

    @property
    def proposer(self) -> bytes: ...
    @property
    def commitment(self) -> bytes: ...
    @property
    def versioned_hash(self) -> Digest: ...
    @property
    def keccak(self) -> Digest: ...


B_co = TypeVar("B_co", bound=BlobFacts, covariant=True)


class NoticeGround(Protocol[B_co]):
    """What a notice is checked against."""

    @property
    def chain_id(self) -> int: ...
    @property
    def validators(self) -> ValidatorSet: ...
    @property
    def final_height(self) -> Height: ...
    def blob_at(self, height: Height, number: int) -> B_co | None: ...


class CheckedNotice(NamedTuple):
    """A notice that counts: who has signed it."""

    signer: bytes


def why_not_notice(
    ground: NoticeGround[BlobFacts], notice: ArchiveNotice, verify: VerifySignature, address_of: AddressOf
) -> CheckedNotice | Refused:
    """The signer of a notice that counts, or the first check that it fails."""
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
    blob = ground.blob_at(notice.height, notice.blob_index)
    if blob is None:
        return _refuse(f"height {notice.height} has no blob {notice.blob_index} whose bytes are here", "NotFound")
    for is_met, message, name in (
        (ground.validators.speaks_for(key, blob.proposer), "another validator has proposed this height", "NotProposer"),
        (blob.commitment == notice.kzg_commitment, "another commitment", "CommitmentMismatch"),
        (notice.version == 0 or blob.versioned_hash == notice.versioned_hash, "another hash", "HashMismatch"),
        (blob.keccak == notice.blob_keccak, "our bytes have another Keccak-256", "KeccakMismatch"),
    ):
        if not is_met:
            return _refuse(f"blob {notice.blob_index} of height {notice.height}: {message}", name)
    return CheckedNotice(key)


class StateGround(NamedTuple):
    """An owner's state, as notices are checked against it."""

    state: HasBlobs

    @property
    def chain_id(self) -> int:
        return self.state.policy.chain_id

    @property
    def validators(self) -> ValidatorSet:
        return validator_set(self.state)

    @property
    def final_height(self) -> Height:
        return final_height(self.state)

    def blob_at(self, height: Height, number: int) -> Blob | None:
        live = live_blob(self.state, height, number)
        return None if live is None else live.blob


def _refuse(message: str, name: str) -> Refused:
    return Refused("NTC-002", message, "compare the chain and the validators of both nodes", name)
