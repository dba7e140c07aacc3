"""The packer: every result is in blobs of later blocks, once, whatever dies in between (BLB-001, BLB-002, BLB-003)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.simulation.journal import Fault
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.framing import PAYLOAD_BYTES
from holdfast.core.blob.model import cursor_of
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.engine.outcome import EngineStatus

LARGE = bytes(range(256)) * 1_500
"""Four blobs."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(), tmp_path)
    await node.open_with_provider()
    yield node
    await node.kill()


@pytest.mark.rule("BLB-001", "BLB-002", "BLB-003")
async def test_results_are_in_blobs_of_a_later_block_private_ones_encrypted(node: ArchiveNode) -> None:
    first, second = await node.resolve(b"small"), await node.resolve_public(LARGE, seals=1)
    third = await node.resolve(b"another", seals=1)
    await node.pack()
    assert await node.unpacked() == {first: (True, b"small"), second: (False, LARGE), third: (True, b"another")}
    assert {live.blob.height for live in node.lives} == {node.engine.undurable_state.chain.head.height}
    assert node.engine.undurable_state.chain.head.blob_count == len(node.lives) == 5
    stored = b"".join([await node.raw_blob(live) for live in node.lives])
    assert b"small" not in stored
    assert b"another" not in stored


@pytest.mark.rule("BLB-002")
async def test_a_blob_waits_for_more_results_but_not_for_ever(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(blob_wait_blocks=3), tmp_path)
    await node.open_with_provider()
    await node.resolve(b"one", seals=1)
    await node.pack()
    await node.resolve(b"two", seals=1)
    await node.pack()
    assert node.lives == []
    await node.pack()
    assert [len(live.parts) for live in node.lives] == [2]
    await node.kill()


@pytest.mark.rule("BLB-002")
async def test_a_large_result_spans_blocks_and_no_kzg_work_is_done_twice(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(blobs_per_block_max=2), tmp_path)
    await node.open_with_provider()
    task = await node.resolve(LARGE, seals=1)
    heights = []
    for _ in range(3):
        await node.pack()
        heights.append(len(node.lives))
    assert heights == [2, 4, 4]
    assert await node.unpacked() == {task: (True, LARGE)}
    assert node.kzg.commits == 4
    await node.kill()


@pytest.mark.rule("BLB-002")
async def test_empty_and_lost_results_are_in_no_blob_and_hold_nothing_up(node: ArchiveNode) -> None:
    await node.resolve(b"", seals=0)
    await node.resolve(b"lost", seals=0)
    node.blobs.held = {key: raw for key, raw in node.blobs.held.items() if raw != b"lost"}
    kept = await node.resolve(b"kept", seals=1)
    await node.pack()
    assert await node.unpacked() == {kept: (True, b"kept")}
    assert node.packer.missing == 1


@pytest.mark.rule("BLB-002", "CHN-004")
async def test_a_rollback_keeps_the_bytes_and_adds_them_again_without_kzg(node: ArchiveNode) -> None:
    task = await node.resolve(LARGE, seals=1)
    await node.pack()
    before, cursor = node.kzg.commits, cursor_of(node.engine.undurable_state)
    head = node.engine.undurable_state.chain.head.height
    await node.engine.submit(RollBackBlocks(Height(head - 1)))
    assert node.lives == []
    await node.pack()
    assert await node.unpacked() == {task: (True, LARGE)}
    assert node.engine.undurable_state.chain.head.blob_count == 4
    assert (node.kzg.commits, cursor_of(node.engine.undurable_state)) == (before, cursor)


@pytest.mark.rule("BLB-002", "ENG-003")
async def test_a_packer_that_is_killed_packs_the_rest_and_cleans_up(node: ArchiveNode) -> None:
    task = await node.resolve(LARGE, seals=1)
    await node.pack()
    await node.files.put(Digest(b"\x01" * 32), b"of no block")
    other = await node.resolve(b"later", seals=1)
    await node.kill()
    await node.open()
    await node.pack()
    assert await node.unpacked() == {task: (True, LARGE), other: (True, b"later")}
    assert not (node.folder / "blobs" / "undecided" / ("01" * 32)).exists()


@pytest.mark.rule("BLB-002")
async def test_blobs_of_a_final_block_are_one_pack(node: ArchiveNode) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack(seals=2)
    await node.packer.run_once()
    folder = node.folder / "blobs"
    assert not (folder / "packs").exists()  # it can still be rolled back
    await node.seal()
    await node.packer.run_once()
    (pack,) = (folder / "packs").iterdir()
    blob = node.lives[0].blob
    assert pack.name == f"{blob.height}-{blob.block_hash.hex()}"
    assert list((folder / "undecided").iterdir()) == []
    assert len(await node.raw_blob(node.lives[-1])) == 131_072


@pytest.mark.rule("BLB-001")
async def test_a_blob_that_is_just_full_does_not_wait(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(blob_wait_blocks=30), tmp_path)
    await node.open_with_provider()
    await node.resolve_public(bytes(PAYLOAD_BYTES - 78), seals=1)
    await node.pack()
    assert len(node.lives) == 1
    await node.kill()


@pytest.mark.rule("BLB-002", "ENG-002")
async def test_blobs_of_a_block_whose_seal_was_lost_are_in_the_block_that_follows_it(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(depth=0), tmp_path)
    await node.open_with_provider()
    task = await node.resolve(LARGE, seals=1)
    await node.packer.run_once()
    node.world.disk.faults = [Fault.HANG_THEN_FAIL]
    node.world.disk.release.clear()
    before = node.engine.undurable_state.chain.head
    sealing = asyncio.create_task(node.seal())
    while node.engine.undurable_state.chain.head is before:
        await asyncio.sleep(0)
    packing = asyncio.create_task(node.packer.run_once())
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.packs == [], "the block is final in memory alone"
    node.world.disk.release.set()
    for task_ in (sealing, packing):
        with pytest.raises(Unavailable):
            await task_
    while node.engine.status is not EngineStatus.RUNNING:
        await asyncio.sleep(0)
    await node.seal(2)
    await node.packer.run_once()
    assert await node.unpacked() == {task: (True, LARGE)}
    await node.kill()
