"""Blobs in blocks: the header commits to them, an orphaned block gives them to the next one (BLB-002, CHN-001)."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.blob.blobs import content, next_blob
from tests.core.blocks import SEAL, final_after
from tests.core.core_driver import CoreDriver

from holdfast.core.base import merkle
from holdfast.core.base.canonical import decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.messages import AddBlob, BlobAdded, ReaddBlobs
from holdfast.core.blob.model import BlobContent, BlobCursor, BlobPart, BlobStatus, blob_leaf, cursor_of
from holdfast.core.chain.messages import ContinueRollback, EvictFinalTxs, RollBackBlocks
from holdfast.core.invariants import broken_invariants
from holdfast.core.policy import ArchivePolicy
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot


def core(depth: int = 3, **archive: int) -> CoreDriver:
    return CoreDriver(
        State(msgspec.structs.replace(final_after(depth), archive=msgspec.structs.replace(ArchivePolicy(), **archive)))
    )


def refused(outcome: object) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome


@pytest.mark.rule("CHN-001", "BLB-002")
def test_the_header_commits_to_the_blobs_of_its_block() -> None:
    node = core()
    node.do(next_blob(node.state, 1))
    node.do(next_blob(node.state, 2))
    node.seal()
    head = node.state.chain.head
    leaves = [blob_leaf(content(1)), blob_leaf(content(2))]
    assert (head.blob_count, head.blob_root) == (2, merkle.root(leaves))
    one = content(1)
    parts = [[part.task_id, part.result_digest, part.offset, part.length] for part in one.parts]
    assert decode(leaves[0]) == [one.versioned_hash, one.commitment, one.keccak, parts]
    assert {live.blob.block_hash for live in node.state.blob_heights[Height(1)]} == {head.hash}
    node.seal()
    assert (node.state.chain.head.blob_count, node.state.chain.head.blob_root) == (0, merkle.EMPTY_ROOT)


@pytest.mark.rule("BLB-002")
def test_a_blob_that_does_not_follow_the_cursor_is_refused_without_effect() -> None:
    node = core()
    first = next_blob(node.state, 1)
    node.do(first)
    before = digest(node.state)
    assert refused(node.ask(first)).rule == "BLB-002"
    back = AddBlob(content(2), cursor_of(node.state), cursor_of(node.state))
    assert refused(node.ask(back)).rule == "BLB-002"
    assert digest(node.state) == before
    node.do(AddBlob(content(2), cursor_of(node.state), BlobCursor(EventNo(1), 5)))


@pytest.mark.rule("BLB-002")
def test_a_full_block_refuses_by_name_and_the_next_one_takes_the_blob() -> None:
    node = core(blobs_per_block_max=2)
    for number in (1, 2):
        node.do(next_blob(node.state, number))
    third = next_blob(node.state, 3)
    assert refused(node.ask(third)).name == "BlockFull"
    node.seal()
    node.do(third)
    assert [live.blob.height for lives in node.state.blob_heights.values() for live in lives] == [1, 1, 2]


@pytest.mark.rule("BLB-001")
@pytest.mark.parametrize(
    "change",
    [
        {"commitment": bytes(47)},
        {"versioned_hash": bytes(32)},
        {"parts": ()},
        {"parts": (BlobPart(b"t" * 32, b"d" * 32, 126_970, 7),)},  # type: ignore[arg-type]
        {"parts": (BlobPart(b"t" * 32, b"d" * 32, 0, 7), BlobPart(b"t" * 32, b"d" * 32, 6, 7))},  # type: ignore[arg-type]
    ],
)
def test_a_malformed_blob_is_refused(change: dict[str, object]) -> None:
    node = core()
    bad: BlobContent = msgspec.structs.replace(content(1), **change)
    assert refused(node.ask(AddBlob(bad, BlobCursor(), BlobCursor(EventNo(1))))).rule == "BLB-001"


@pytest.mark.rule("BLB-002", "CHN-004")
@pytest.mark.parametrize("at_once_max", [512, 0])
def test_blobs_of_orphaned_blocks_are_added_again_in_their_order(at_once_max: int) -> None:
    """In one decision or in steps; the rows of the orphaned ones stay and say so."""
    node = core(depth=5)
    for number in (1, 2, 3):
        node.do(next_blob(node.state, number))
        node.do(SEAL)
    node.do(next_blob(node.state, 4))
    rows = [live.blob for lives in node.state.blob_heights.values() for live in lives]
    cursor = cursor_of(node.state)
    node.do(RollBackBlocks(Height(1), at_once_max))
    while node.state.chain.rollback is not None:
        assert refused(node.ask(ReaddBlobs())).name == "RollbackRunning"
        node.do(ContinueRollback())
    assert [row.status for row in rows] == [BlobStatus.PENDING, *[BlobStatus.ORPHANED] * 3]
    assert [row.block_hash == b"" for row in rows] == [False, False, False, True]
    assert refused(node.ask(next_blob(node.state, 5))).rule == "BLB-002"
    added = [event for event in node.do(ReaddBlobs()) if isinstance(event, BlobAdded)]
    assert [event.content for event in added] == [content(2), content(3), content(4)]
    assert [(event.height, event.number) for event in added] == [(2, 0), (2, 1), (2, 2)]
    assert cursor_of(node.state) == cursor
    assert node.state.blob_pool == []
    assert node.do(ReaddBlobs()) == ()
    node.do(SEAL)
    assert node.state.chain.head.blob_root == merkle.root([blob_leaf(content(each)) for each in (2, 3, 4)])
    assert broken_invariants(node.state) == []


@pytest.mark.rule("BLB-002", "ENG-004")
def test_a_row_keeps_the_parts_of_its_results_and_is_never_removed() -> None:
    node = core()
    node.do(AddBlob(content(1, parts=3), BlobCursor(), BlobCursor(EventNo(1))))
    node.do(RollBackBlocks(Height(0), 512)) if node.state.chain.head.height else node.seal()
    parts = node.state.touched["blob_part"]
    assert sorted(parts) == [0, 1, 2]
    node.seal(6)
    node.ask(EvictFinalTxs(node.state.last_event))
    assert list(node.state.blob_heights) == [1]  # its bytes are here: it stays in memory
    assert None not in node.state.touched["blob"].values()


@pytest.mark.rule("ENG-003")
def test_blobs_survive_a_snapshot() -> None:
    node = core()
    node.do(next_blob(node.state, 1))
    node.do(SEAL)
    node.do(next_blob(node.state, 2))
    node.do(RollBackBlocks(Height(0)))
    state, _ = restore(snapshot(node.state, JournalHead(last=node.state.last_event)), node.state.policy)
    assert digest(state) == digest(node.state)
    assert state.blob_pool == [content(1), content(2)]
