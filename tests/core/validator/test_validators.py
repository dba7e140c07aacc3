"""The set of validators: who counts at which height, who may propose, who speaks for whom later (NTC-005)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.archive.notices import address_of, notice_of
from tests.core.blob.blobs import next_blob
from tests.core.blocks import PROPOSER, SEAL, final_after, sign
from tests.core.core_driver import CoreDriver, public

from holdfast.core.archive.decide import pending_under_old_keys
from holdfast.core.archive.messages import VERIFIED, AcceptNotice, IntendUpload
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Height
from holdfast.core.blob.messages import ReaddBlobs
from holdfast.core.blob.model import BlobStatus
from holdfast.core.chain.messages import RollBackBlocks, SealBlock
from holdfast.core.chain.model import TxKind
from holdfast.core.invariants import broken_invariants
from holdfast.core.state import State
from holdfast.core.validator.decide import VALIDATORS_MAX
from holdfast.core.validator.messages import (
    AddValidator,
    ProposerSucceeded,
    RemoveValidator,
    SucceedProposer,
    ValidatorAdded,
)
from holdfast.core.validator.model import ValidatorSet, validator_set

OTHER, THIRD = public(20), public(21)


def with_blob(seals: int = 2, depth: int = 1) -> CoreDriver:
    """Block 1 has a blob, so that its proposer is the first validator."""
    node = CoreDriver(State(final_after(depth)))
    node.do(next_blob(node.state, 0))
    for _ in range(seals):
        node.do(SEAL)
    return node


def verify_any(*_: bytes) -> bool:
    return True


def name_of(outcome: Any) -> str:
    assert isinstance(outcome, Refused), outcome
    assert outcome.rule == "NTC-005"
    return outcome.name


@pytest.mark.rule("NTC-005")
def test_a_key_counts_from_the_block_after_its_transaction_until_the_one_after_it_leaves() -> None:
    node = with_blob()  # block 3 is open
    node.do(AddValidator(OTHER))
    assert node.state.chain.open.txs[-1].kind is TxKind.VALIDATOR
    validators = validator_set(node.state)
    assert [validators.is_member(OTHER, Height(each)) for each in (2, 3, 4)] == [False, False, True]
    node.do(SEAL)
    node.do(SEAL)
    node.do(RemoveValidator(OTHER))  # block 5 is open
    validators = validator_set(node.state)
    assert [validators.is_member(OTHER, Height(each)) for each in (3, 4, 5, 6)] == [False, True, True, False]
    assert broken_invariants(node.state) == []


@pytest.mark.rule("NTC-005")
def test_changes_that_make_no_sense_are_refused_and_repeats_change_nothing() -> None:
    empty = CoreDriver(State(final_after(1)))
    assert isinstance(empty.ask(AddValidator(OTHER)), Refused)  # nobody is a validator before there are blobs
    node = with_blob()
    assert name_of(node.ask(AddValidator(b"short"))) == "InvalidParams"
    assert name_of(node.ask(RemoveValidator(OTHER))) == "NotFound"
    assert "last" in str(node.ask(RemoveValidator(PROPOSER)))
    node.do(AddValidator(OTHER))
    assert node.do(AddValidator(OTHER)) == ()
    node.do(SEAL)
    node.do(RemoveValidator(OTHER))
    assert node.do(RemoveValidator(OTHER)) == ()
    assert "does not return" in str(node.ask(AddValidator(OTHER)))
    for number in range(1_000, 1_000 + VALIDATORS_MAX - 1):
        node.do(AddValidator(number.to_bytes(32, "big")))
    assert "already" in str(node.ask(AddValidator(THIRD)))


@pytest.mark.rule("NTC-005")
def test_once_there_are_blobs_only_a_validator_seals_a_block() -> None:
    free = CoreDriver(State(final_after(1)))
    free.do(SealBlock(OTHER, sign))
    free.do(SealBlock(THIRD, sign))
    node = with_blob()
    assert name_of(node.ask(SealBlock(OTHER, sign))) == "NotValidator"
    node.do(AddValidator(OTHER))
    assert name_of(node.ask(SealBlock(OTHER, sign))) == "NotValidator"  # from the next block on
    node.do(SEAL)
    node.do(SealBlock(OTHER, sign))
    assert node.state.chain.head.proposer == OTHER


@pytest.mark.rule("NTC-005", "ARC-001", "NTC-002")
def test_after_a_takeover_the_new_owner_archives_what_the_old_one_has_left() -> None:
    node = with_blob()
    intent = IntendUpload(Height(1), 0, OTHER, "file", "item")
    assert name_of(node.ask(SucceedProposer(OTHER))) == "NotValidator"  # it must already be in the set
    node.do(AddValidator(OTHER))
    node.do(SEAL)
    assert isinstance(node.ask(intent), Refused)
    assert pending_under_old_keys(node.state) == {}
    (event,) = node.do(SucceedProposer(OTHER))
    assert event == ProposerSucceeded(PROPOSER, OTHER)
    assert node.do(SucceedProposer(OTHER)) == ()
    node.do(intent)
    notice = notice_of(node.state, Height(1), archived_by=address_of(OTHER))
    node.do(AcceptNotice(notice, verify_any, address_of, VERIFIED))
    assert node.state.blob_heights[Height(1)][0].blob.status is BlobStatus.ARCHIVED


@pytest.mark.rule("NTC-002", "NTC-005")
def test_a_stranger_and_a_later_validator_archive_nothing_of_an_old_height() -> None:
    node = with_blob()
    node.do(AddValidator(OTHER))
    node.do(SEAL)
    notice = notice_of(node.state, Height(1), archived_by=address_of(OTHER))
    outcome = node.ask(AcceptNotice(notice, verify_any, address_of, VERIFIED))
    assert isinstance(outcome, Refused)
    assert outcome.name == "UnknownValidator"  # the set of the notice's height counts


@pytest.mark.rule("NTC-005")
def test_heights_that_wait_for_a_key_that_has_left_are_told() -> None:
    node = with_blob()
    node.do(AddValidator(OTHER))
    node.do(SEAL)
    node.do(RemoveValidator(PROPOSER))
    node.do(SEAL)
    assert pending_under_old_keys(node.state) == {PROPOSER: [Height(1)]}
    notice = notice_of(node.state, Height(1))  # the old key still counts for its own heights
    node.do(AcceptNotice(notice, verify_any, address_of, VERIFIED))
    assert pending_under_old_keys(node.state) == {}


@pytest.mark.rule("NTC-005", "CHN-004")
def test_a_rollback_leaves_the_set_and_puts_the_transaction_below_its_height() -> None:
    node = with_blob(depth=10)
    (added,) = node.do(AddValidator(OTHER))
    assert isinstance(added, ValidatorAdded)
    node.do(SEAL)
    node.do(RollBackBlocks(Height(1)))
    assert node.state.open_height < added.since
    assert [tx.kind for tx in node.state.chain.open.txs] == [TxKind.VALIDATOR]
    assert node.state.validators[OTHER] == added.since
    node.do(SEAL)
    assert name_of(node.ask(SealBlock(OTHER, sign))) == "NotValidator"


@pytest.mark.rule("NTC-002", "BLB-002")
def test_a_first_validator_whose_blobs_moved_to_a_lower_block_counts_there() -> None:
    node = CoreDriver(State(final_after(10)))
    node.do(SEAL)
    node.do(SEAL)
    node.do(next_blob(node.state, 0))
    node.do(SEAL)
    assert node.state.validators == {PROPOSER: 3}
    node.do(RollBackBlocks(Height(1)))

    node.do(ReaddBlobs())
    node.do(SEAL)
    assert node.state.validators == {PROPOSER: 2}


@pytest.mark.rule("NTC-005")
def test_successors_of_successors_speak_and_what_they_archived_counts_after_the_first_has_returned() -> None:
    line = ValidatorSet({b"a": Height(1)}, {}, {b"a": [b"b"], b"b": [b"c"]})
    assert [line.speaks_for(key, b"a") for key in (b"a", b"b", b"c", b"d")] == [True, True, True, False]
    circle = ValidatorSet({b"a": Height(1)}, {}, {b"a": [b"b"], b"b": [b"a"]})
    assert circle.speaks_for(b"a", b"b")
    assert circle.speaks_for(b"b", b"a")
    assert not circle.speaks_for(b"c", b"a")
    assert line.key_at(Height(1), b"c!", lambda key: key + b"!") == b"c"
    assert line.key_at(Height(0), b"c!", lambda key: key + b"!") is None
