"""Confirmations of notices (NTC-004), pruning by quorum, and records that are recalled after the archive lost them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from tests.core.archive.notices import address_of, notice_of
from tests.core.blob.blobs import next_blob
from tests.core.blocks import SEAL, final_after, verify
from tests.core.core_driver import CoreDriver, public

from holdfast.core.archive.confirm import ack_root, missing_validators
from holdfast.core.archive.messages import (
    VERIFIED,
    AcceptNotice,
    ConfirmNotice,
    PruneBlobs,
    RecallBlobs,
    ReportLost,
)
from holdfast.core.archive.notice import notice_root
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height
from holdfast.core.blob.model import BlobStatus, LiveBlob, place_of
from holdfast.core.chain.messages import EvictFinalTxs
from holdfast.core.invariants import broken_invariants
from holdfast.core.policy import ArchivePolicy
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.core.validator.messages import AddValidator, RemoveValidator

OTHERS = (public(20), public(21), public(22))


def archived(blobs: int = 1, others: int = 3, **archive: Any) -> tuple[CoreDriver, Height]:
    """A height with blobs that are archived while some other validators have not confirmed it."""
    node = CoreDriver(State(msgspec.structs.replace(final_after(1), archive=ArchivePolicy(**archive))))
    node.do(next_blob(node.state, 0))
    node.do(SEAL)
    for key in OTHERS[:others]:
        node.do(AddValidator(key))
    node.do(SEAL)
    for number in range(1, blobs + 1):
        node.do(next_blob(node.state, number))
    node.do(SEAL)
    height = node.state.chain.head.height
    node.do(SEAL)
    for number in range(blobs):
        node.do(AcceptNotice(notice_of(node.state, height, number), verify, address_of, VERIFIED))
    return node, height


def confirm(node: CoreDriver, height: Height, key: bytes, number: int = 0, **changed: Any) -> Any:
    root = notice_root(notice_of(node.state, height, number))
    command = ConfirmNotice(height, number, root, key, b"good", lambda *_: True)
    return node.ask(msgspec.structs.replace(command, **changed))


@pytest.mark.rule("NTC-004")
def test_a_notice_waits_until_every_validator_has_confirmed_it() -> None:
    node, height = archived()
    place = place_of(height, 0)
    waiting = node.state.notices_unconfirmed[place]
    assert missing_validators(node.state, waiting) == list(OTHERS)
    for key in OTHERS[:2]:
        confirm(node, height, key)
        assert place in node.state.notices_unconfirmed
    assert confirm(node, height, OTHERS[0]) == ()  # again is no change
    confirm(node, height, OTHERS[2])
    assert node.state.notices_unconfirmed == {}
    assert confirm(node, height, OTHERS[2]) == ()


@pytest.mark.rule("NTC-004")
def test_a_confirmation_is_the_signature_of_a_validator_under_this_notice() -> None:
    node, height = archived()
    seen = list[tuple[bytes, bytes, bytes]]()

    def check(*told: bytes) -> bool:
        seen.append(told)  # type: ignore[arg-type]
        return False

    before = digest(node.state)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("UnknownValidator", {"key": public(30)}),
        ("RootMismatch", {"root": bytes(32)}),
        ("BadSignature", {"verify": check}),
    ]
    for name, changed in cases:
        outcome = confirm(node, height, **{"key": OTHERS[0], **changed})
        assert isinstance(outcome, Refused)
        assert (outcome.rule, outcome.name) == ("NTC-004", name)
    assert digest(node.state) == before
    root = notice_root(notice_of(node.state, height))
    assert seen == [(OTHERS[0], sha256(b"HoldfastNoticeAckV1" + root).digest(), b"good")]
    assert ack_root(root) == seen[0][1]


@pytest.mark.rule("NTC-004")
def test_a_lone_validator_waits_for_nobody_and_one_that_leaves_is_not_waited_for() -> None:
    alone, _ = archived(others=0)
    assert alone.state.notices_unconfirmed == {}
    node, height = archived(others=1)
    node.do(RemoveValidator(OTHERS[0]))
    node.do(SEAL)
    assert missing_validators(node.state, node.state.notices_unconfirmed[place_of(height, 0)]) == []


@pytest.mark.rule("NTC-004")
def test_what_waits_for_confirmations_is_bounded_once_bytes_are_gone() -> None:
    node, height = archived(blobs=3, notices_waiting_max=2)
    assert len(node.state.notices_unconfirmed) == 3  # their bytes are here
    node.do(PruneBlobs(height))
    node.do(next_blob(node.state, 9))
    node.do(SEAL)
    node.do(SEAL)
    latest = Height(node.state.chain.head.height - 1)
    node.do(AcceptNotice(notice_of(node.state, latest), verify, address_of, VERIFIED))
    kept = list(node.state.notices_unconfirmed)
    assert place_of(height, 0) not in kept
    assert kept[-1] == place_of(latest, 0)


@pytest.mark.rule("PRU-001", "NTC-004")
def test_with_a_quorum_bytes_stay_until_two_thirds_have_confirmed_every_blob() -> None:
    node, height = archived(blobs=2, prune_quorum=True)
    for number in range(2):
        assert isinstance(node.ask(PruneBlobs(height)), Refused)
        confirm(node, height, OTHERS[0], number)  # with the signer 2 of 4
        refused = node.ask(PruneBlobs(height))
        assert isinstance(refused, Refused)
        assert "2 of 4" in refused.message
        confirm(node, height, OTHERS[1], number)
    node.do(PruneBlobs(height))


@pytest.mark.rule("PRU-001")
def test_a_blob_that_was_lost_after_pruning_is_suspect_and_in_memory_again_in_its_order() -> None:
    node, height = archived(others=0)
    lives = tuple(node.state.blob_heights[height])
    recall = RecallBlobs(lives, (0,), "gone", are_here=True)
    assert isinstance(node.ask(recall), Refused)  # its bytes are here: ReportLost does it
    node.do(PruneBlobs(height))
    lives = tuple(node.state.blob_heights[height])
    node.do(next_blob(node.state, 9))
    node.do(SEAL)
    node.do(EvictFinalTxs(node.state.last_event))
    assert height not in node.state.blob_heights
    node.do(msgspec.structs.replace(recall, lives=lives))
    blob = node.state.blob_heights[height][0].blob
    assert (blob.status, blob.is_pruned, blob.reason) == (BlobStatus.SUSPECT, 0, "gone")
    assert isinstance(node.ask(PruneBlobs(height)), Refused)  # never pruned while it is suspect
    assert list(node.state.blob_heights) == sorted(node.state.blob_heights)
    assert broken_invariants(node.state) == []
    node.do(AcceptNotice(notice_of(node.state, height), verify, address_of, VERIFIED))
    node.do(PruneBlobs(height))


@pytest.mark.rule("PRU-001")
def test_a_blob_that_nobody_has_any_more_is_suspect_and_stays_pruned() -> None:
    node, height = archived(others=0)
    node.do(PruneBlobs(height))
    lives = tuple(node.state.blob_heights[height])
    node.do(RecallBlobs(lives, (0,), "gone", are_here=False))
    blob = node.state.blob_heights[height][0].blob
    assert (blob.status, blob.is_pruned) == (BlobStatus.SUSPECT, 1)
    assert node.do(ReportLost(height, 0, "again")) == ()


@pytest.mark.rule("PRU-001")
def test_rows_that_were_read_a_moment_ago_do_not_undo_a_record_that_was_mended_since() -> None:
    node, height = archived(others=0)
    node.do(PruneBlobs(height))
    node.do(RecallBlobs(tuple(node.state.blob_heights[height]), (0,), "gone", are_here=False))
    read = tuple(
        LiveBlob(msgspec.structs.replace(live.blob), live.parts, live.changed)
        for live in node.state.blob_heights[height]
    )
    node.do(AcceptNotice(notice_of(node.state, height), verify, address_of, VERIFIED))
    node.do(RecallBlobs(read, (), "another blob of the height", are_here=False))
    assert node.state.blob_heights[height][0].blob.status is BlobStatus.ARCHIVED
