"""What becomes of a follower's records: pruning needs every blob, notices make records and alternates (PRU-001)."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.archive.messages import SIGNED, VERIFIED
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.model import BlobStatus
from holdfast.core.policy import ArchivePolicy, ReadBack
from holdfast.core.sync.followed import BytesStatus, FollowedBlob, why_not_prune_followed

BLOB = FollowedBlob(
    height=Height(1),
    number=0,
    block_hash=Digest(bytes(32)),
    proposer=bytes(32),
    versioned_hash=Digest(b"\1" * 31 + b"\xff"),
    commitment=bytes(48),
    proof=bytes(48),
    keccak=Digest(bytes(32)),
    bytes_status=BytesStatus.HERE,
)
GOOD = msgspec.structs.replace(BLOB, status=BlobStatus.ARCHIVED, assurance=VERIFIED)


@pytest.mark.rule("PRU-001", "SYN-002")
@pytest.mark.parametrize(
    "bad",
    [
        BLOB,
        msgspec.structs.replace(GOOD, assurance=SIGNED),
        msgspec.structs.replace(GOOD, status=BlobStatus.SUSPECT),
    ],
    ids=["pending", "signed", "suspect"],
)
def test_bytes_go_only_when_every_blob_of_the_height_has_a_sure_record(bad: FollowedBlob) -> None:
    policy = ArchivePolicy()
    assert why_not_prune_followed(policy, [GOOD, GOOD]) is None
    for blobs in ([GOOD, bad], [bad, GOOD], [bad]):
        refusal = why_not_prune_followed(policy, blobs)
        assert refusal is not None
        assert refusal.rule == "PRU-001"


@pytest.mark.rule("ARC-004", "PRU-001")
@pytest.mark.parametrize("changed", [{"read_back": ReadBack.NEVER}, {"trust_receipts": True}])
def test_policy_may_say_that_a_signature_is_enough_but_never_that_no_record_is(changed: dict[str, object]) -> None:
    policy = msgspec.structs.replace(ArchivePolicy(), **changed)
    assert why_not_prune_followed(policy, [msgspec.structs.replace(GOOD, assurance=SIGNED)]) is None
    assert why_not_prune_followed(policy, [BLOB]) is not None
