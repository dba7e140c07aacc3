"""The archive in core: who may upload what, which notices count and why others do not, when bytes may go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.archive.notices import address_of, notice_of
from tests.core.blob.blobs import next_blob
from tests.core.blocks import PROPOSER, SEAL, final_after, sign, verify
from tests.core.core_driver import CoreDriver

from holdfast.core.archive.decide import retry_delay_ms
from holdfast.core.archive.messages import (
    SIGNED,
    VERIFIED,
    AcceptNotice,
    BlobArchived,
    IntendUpload,
    PruneBlobs,
    RecordUploadFailure,
    ReportLost,
    RetryUploads,
    UploadFailed,
    UploadIntended,
)
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.chain.messages import EvictFinalTxs
from holdfast.core.invariants import broken_invariants
from holdfast.core.policy import ArchivePolicy, ReadBack
from holdfast.core.state import State
from holdfast.core.state_digest import digest

ONE = Height(1)


def sealed(blobs: int = 1, depth: int = 1, seals: int = 2, **archive: Any) -> CoreDriver:
    """Block 1 has blobs, and is final unless `seals` are too few."""
    policy = msgspec.structs.replace(final_after(depth), archive=ArchivePolicy(**archive))
    node = CoreDriver(State(policy))
    for number in range(blobs):
        node.do(next_blob(node.state, number))
    for _ in range(seals):
        node.do(SEAL)
    return node


def blob(node: CoreDriver, number: int = 0) -> Blob:
    return node.state.blob_heights[ONE][number].blob


def accept(node: CoreDriver, notice: ArchiveNotice, assurance: str = VERIFIED) -> Any:
    return node.ask(AcceptNotice(notice, verify, address_of, assurance))


def name_of(outcome: object) -> str:
    assert isinstance(outcome, Refused), outcome
    assert outcome.rule == "NTC-002"
    return outcome.name


# ------------------------------------------------------------------------------------------------ uploads


@pytest.mark.rule("ARC-001", "ARC-002")
def test_only_the_proposer_of_a_final_height_intends_and_once() -> None:
    node = sealed(seals=1)
    intent = IntendUpload(ONE, 0, PROPOSER, "file", "item")
    for refused in (
        intent,
        msgspec.structs.replace(intent, number=1),
        msgspec.structs.replace(intent, height=Height(9)),
    ):
        outcome = node.ask(refused)
        assert isinstance(outcome, Refused)
        assert outcome.rule == "ARC-001"
    node.do(SEAL)
    stranger = node.ask(msgspec.structs.replace(intent, proposer=bytes(32)))
    assert isinstance(stranger, Refused)
    (event,) = node.do(intent)
    assert isinstance(event, UploadIntended)
    assert event.archived_at == node.now_ms // 1_000
    node.now_ms += 60_000
    assert node.do(intent) == ()  # the same again keeps its time
    assert blob(node).archived_at == event.archived_at


@pytest.mark.rule("ARC-003")
def test_delays_double_up_to_the_cap_with_jitter_and_then_it_is_stalled() -> None:
    policy = ArchivePolicy(retry_base_ms=1_000, retry_cap_ms=8_000, attempts_max=6, stalled_retry_ms=100_000)
    drawn = [[retry_delay_ms(policy, Digest(bytes([each]) * 32), n) for each in range(40)] for n in range(1, 7)]
    for delays, full in zip(drawn, (1_000, 2_000, 4_000, 8_000, 8_000), strict=False):
        assert full // 2 <= min(delays) < max(delays) <= full
        assert len(set(delays)) > 20
    assert set(drawn[-1]) == {100_000}


@pytest.mark.rule("ARC-003")
def test_a_failed_upload_is_kept_and_a_retry_by_hand_is_due_at_once() -> None:
    node = sealed(attempts_max=2, stalled_retry_ms=10**6)
    (first,) = node.do(RecordUploadFailure(ONE, 0, "away" * 200))
    (second,) = node.do(RecordUploadFailure(ONE, 0, "away"))
    assert isinstance(first, UploadFailed)
    assert isinstance(second, UploadFailed)
    assert (first.attempts, second.attempts, len(first.reason)) == (1, 2, 300)
    assert second.retry_ms == node.now_ms + 10**6
    assert node.do(RetryUploads(Height(2))) == ()
    node.do(RetryUploads(ONE))
    assert (blob(node).attempts, blob(node).retry_ms, blob(node).status) == (0, 0, BlobStatus.PENDING)
    node.do(RecordUploadFailure(ONE, 0, "unknown key", is_refused=True))
    assert blob(node).attempts == 2  # stalled at once


# ------------------------------------------------------------------------------------------------ notices


@pytest.mark.rule("NTC-001", "NTC-002")
@pytest.mark.parametrize("version", [0, 1])
def test_a_good_notice_is_recorded(version: int) -> None:
    node = sealed()
    (event,) = accept(node, notice_of(node.state, ONE, version=version))
    assert isinstance(event, BlobArchived)
    record = blob(node)
    assert (record.status, record.assurance, record.provider_id) == (BlobStatus.ARCHIVED, VERIFIED, "file")
    assert (record.archived_by, record.archived_at) == (address_of(PROPOSER), 1_700_000_000)


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("UnknownValidator", {"archived_by": bytes(20)}),
    ("ChainMismatch", {"chain_id": 7}),
    ("NotDecided", {"height": 9}),
    ("WrongRound", {"round": 1}),
    ("NotFound", {"blob_index": 1}),
    ("CommitmentMismatch", {"kzg_commitment": bytes(48)}),
    ("HashMismatch", {"versioned_hash": bytes(32)}),
    ("KeccakMismatch", {"blob_keccak": bytes(32)}),
]


@pytest.mark.rule("NTC-002")
@pytest.mark.parametrize(("name", "change"), REFUSALS)
def test_a_bad_notice_has_a_refusal_of_its_own_and_no_effect(name: str, change: dict[str, Any]) -> None:
    node = sealed()
    before = digest(node.state)
    assert name_of(accept(node, notice_of(node.state, ONE, **change))) == name
    assert digest(node.state) == before


@pytest.mark.rule("NTC-002")
@pytest.mark.parametrize("at", range(len(REFUSALS)))
def test_the_checks_are_made_in_their_order(at: int) -> None:
    """With this fault and all later ones, the first is the one that is told."""
    node = sealed()
    changes: dict[str, Any] = {}
    for _, change in reversed(REFUSALS[at:]):
        changes |= change
    assert name_of(accept(node, notice_of(node.state, ONE, **changes))) == REFUSALS[at][0]


@pytest.mark.rule("NTC-002")
def test_a_forged_signature_and_a_validator_that_did_not_propose_are_refused() -> None:
    node = sealed()
    good = notice_of(node.state, ONE)
    assert name_of(accept(node, msgspec.structs.replace(good, signature=bytes(64)))) == "BadSignature"
    other = b"\7" * 32
    node.state.validators[other] = ONE
    theirs = notice_of(node.state, ONE, archived_by=address_of(other))

    def anyone(_: bytes, message: bytes, signature: bytes) -> bool:
        return signature == sign(message)

    outcome = node.ask(AcceptNotice(theirs, anyone, address_of))
    assert name_of(outcome) == "NotProposer"
    node.state.validators[other] = Height(2)  # it was no validator at that height
    assert name_of(node.ask(AcceptNotice(theirs, anyone, address_of))) == "UnknownValidator"
    assert theirs.signature == sign(notice_root(theirs))


@pytest.mark.rule("NTC-003")
def test_the_same_again_is_no_change_and_another_locator_is_an_alternate() -> None:
    node = sealed()
    first = notice_of(node.state, ONE)
    accept(node, first)
    assert accept(node, first) == ()
    other = notice_of(node.state, ONE, locator="load-s3://other")
    accept(node, other)
    assert accept(node, other) == ()
    assert (blob(node).locator, blob(node).alternates) == (first.locator, "load-s3://other")
    wrong = notice_of(node.state, ONE, locator="load-s3://third", blob_keccak=bytes(32))
    assert name_of(accept(node, wrong)) == "KeccakMismatch"


# ------------------------------------------------------------------------------------------------ pruning


@pytest.mark.rule("PRU-001")
def test_bytes_go_when_every_blob_of_a_final_height_is_archived_for_sure() -> None:
    node = sealed(blobs=2)
    for assurance in (SIGNED, VERIFIED):
        for number in (0, 1):
            outcome = node.ask(PruneBlobs(ONE))
            assert isinstance(outcome, Refused)
            accept(node, notice_of(node.state, ONE, number), assurance)
    node.do(PruneBlobs(ONE))
    assert all(live.blob.is_pruned for live in node.state.blob_heights[ONE])
    assert node.do(PruneBlobs(ONE)) == ()  # PRU-002
    assert broken_invariants(node.state) == []
    node.do(SEAL)
    node.do(SEAL)
    node.do(EvictFinalTxs(node.state.last_event))
    assert node.state.blob_heights == {}
    assert node.do(PruneBlobs(ONE)) == ()


@pytest.mark.rule("PRU-001")
@pytest.mark.parametrize(("retain", "head"), [(3, 3), (3, 4)])
def test_bytes_stay_for_as_many_blocks_as_policy_says(retain: int, head: int) -> None:
    node = sealed(seals=head, retain_blocks=retain)
    accept(node, notice_of(node.state, ONE))
    assert isinstance(node.ask(PruneBlobs(ONE)), Refused) == (head - 1 < retain)


@pytest.mark.rule("ARC-004", "PRU-001")
@pytest.mark.parametrize("policy", [{"read_back": ReadBack.NEVER}, {"trust_receipts": True}])
def test_policy_may_let_a_signature_be_enough(policy: dict[str, Any]) -> None:
    node = sealed(**policy)
    accept(node, notice_of(node.state, ONE), SIGNED)
    node.do(PruneBlobs(ONE))


@pytest.mark.rule("PRU-001")
def test_what_the_archive_lost_is_suspect_not_pruned_and_archived_again() -> None:
    node = sealed()
    accept(node, notice_of(node.state, ONE))
    node.do(ReportLost(ONE, 0, "gone"))
    assert (blob(node).status, blob(node).item_id) == (BlobStatus.SUSPECT, "")
    assert isinstance(node.ask(PruneBlobs(ONE)), Refused)
    assert node.do(ReportLost(ONE, 0, "gone")) == ()
    accept(node, notice_of(node.state, ONE))
    node.do(PruneBlobs(ONE))
