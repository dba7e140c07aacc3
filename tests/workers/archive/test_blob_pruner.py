"""Pruning: bytes go when every blob of a final height is verifiably archived, and never before (PRU-001, PRU-002)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import pytest
from tests.simulation.journal import Fault
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.adapters.keys.keccak import address_of
from holdfast.adapters.keys.signing import verify
from holdfast.core.archive.messages import AcceptNotice
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.result import result_digest
from holdfast.core.retention.model import Pass
from holdfast.ports.blobs import ItemUpload, PackName

LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(), tmp_path)
    await node.open_with_provider()
    yield node
    await node.kill()


async def archived(node: ArchiveNode, output: bytes = LARGE) -> TaskId:
    task = await node.resolve(output, seals=1)
    await node.pack_final()
    await node.archiver.run_once()
    return task


@pytest.mark.rule("PRU-001", "RET-002", "RES-004")
async def test_archived_bytes_leave_the_node_and_come_back_from_the_archive(node: ArchiveNode) -> None:
    task = await archived(node)
    await node.pruner.run_once()
    assert node.packs == []
    await node.engine.wait_tables()
    digest = result_digest(LARGE)
    assert list(await node.recorded.holds([(digest, len(LARGE))])) == [digest]
    await node.pass_days(2)
    await node.collector.resume_deletes()
    await node.collector.run_passes()
    assert digest not in node.blobs.held  # pass 2 relies on the archive
    assert await node.read_archived(task, LARGE) == LARGE
    node.provider.lie = lambda raw: raw[:-1] + b"\1"
    with pytest.raises(Corrupt, match="other bytes"):
        await node.read_archived(task, LARGE)
    node.provider.lie = lambda _: None
    with pytest.raises(Unavailable, match="not in the archive"):
        await node.read_archived(task, LARGE)


@pytest.mark.rule("NTC-003", "BLB-001", "RES-009")
async def test_where_the_first_locator_lies_or_has_nothing_the_bytes_come_from_an_alternate(node: ArchiveNode) -> None:
    task = await archived(node, b"out")
    blob, items = node.lives[0].blob, node.folder / "archived" / "items"
    first = items / f"{blob.item_id}.ans104"
    (items / "copy.ans104").write_bytes(first.read_bytes())
    notice = node.archiver._sign(blob, "file:test/items/copy.ans104")
    await node.engine.submit(AcceptNotice(notice, verify, address_of))
    await node.pruner.run_once()
    await node.engine.wait_tables()
    assert node.packs == []
    raw = bytearray(first.read_bytes())
    raw[90 - BLOB_BYTES] ^= 1  # within the frame
    first.write_bytes(raw)
    assert await node.read_archived(task, b"out") == b"out"
    first.unlink()
    assert await node.read_archived(task, b"out") == b"out"


@pytest.mark.rule("RET-002", "BLB-001")
async def test_a_result_is_held_by_the_archive_when_its_last_part_is_archived(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(blobs_per_block_max=2), tmp_path)
    await node.open_with_provider()
    wanted = [(result_digest(LARGE), len(LARGE))]
    await node.resolve(LARGE, seals=1)
    await node.pack(seals=3)
    await node.archiver.run_once()
    await node.engine.wait_tables()
    assert {live.blob.assurance for live in node.lives} == {"verified"}  # two of its four blobs
    assert await node.recorded.holds(wanted) == {}
    await node.pack_final()
    await node.engine.wait_tables()
    assert await node.recorded.holds(wanted) == {}  # all are in blobs, two of these in no archive
    await node.archiver.run_once()
    await node.engine.wait_tables()
    assert list(await node.recorded.holds(wanted)) == [result_digest(LARGE)]
    await node.kill()


@pytest.mark.rule("PRU-001", "BLB-002")
async def test_bytes_that_were_archived_before_they_were_packed_leave_the_node_too(node: ArchiveNode) -> None:
    """Archiver and pruner may be faster than the packer."""
    await node.resolve(LARGE, seals=1)
    await node.pack(seals=1 + node.engine.policy.chain.finality_depth)
    await node.archiver.run_once()
    assert await node.files.usage() > len(LARGE)
    await node.pruner.run_once()
    assert await node.files.usage() == 0
    await node.packer.run_once()
    assert (node.packs, await node.files.usage()) == ([], 0)


@pytest.mark.rule("PRU-001")
async def test_a_pack_that_is_written_while_its_height_is_pruned_does_not_stay(node: ArchiveNode) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack(seals=1 + node.engine.policy.chain.finality_depth)
    await node.archiver.run_once()
    write_pack = node.files.write_pack

    async def write_after_prune(pack: PackName, blobs: Sequence[tuple[Digest, Digest]]) -> None:
        raws = [await node.files.read(pack, number, *hashes) for number, hashes in enumerate(blobs)]
        await node.pruner.run_once()
        for (versioned_hash, _), raw in zip(blobs, raws, strict=True):
            await node.files.put(versioned_hash, raw or b"")  # it had read them before
        await write_pack(pack, blobs)

    node.files.write_pack = write_after_prune  # type: ignore[method-assign]
    await node.packer.write_packs()
    assert (node.packs, await node.files.usage()) == ([], 0)


@pytest.mark.rule("PRU-001", "BLB-003")
async def test_nothing_is_deleted_while_the_archive_key_is_only_here(node: ArchiveNode) -> None:
    node.is_key_kept = False
    await archived(node)
    await node.pruner.run_once()
    await node.pass_days(2)
    await node.collector.resume_deletes()
    await node.collector.run_passes()
    assert len(node.packs) == 1
    assert result_digest(LARGE) in node.blobs.held
    node.is_key_kept = True
    await node.pruner.run_once()
    assert node.packs == []


@pytest.mark.rule("PRU-001")
async def test_one_unarchived_blob_keeps_its_whole_height(node: ArchiveNode) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    stored = node.provider.store

    async def store_three(item: ItemUpload) -> Refused | None:
        if item.place.endswith("/3"):
            raise Unavailable("ARC-003", "simulated: full")
        return await stored(item)

    node.provider.store = store_three  # type: ignore[method-assign]
    await node.archiver.run_once()
    height = node.lives[0].blob.height
    refusal = await node.pruner.prune(height)
    assert refusal is not None
    assert refusal.message == f"3 of 4 blobs of height {height} are archived"
    assert len(node.packs) == 1
    last = node.engine.undurable_state
    assert Pass.WARM not in last.retention_progress


@pytest.mark.rule("PRU-001")
async def test_bytes_are_kept_for_as_many_blocks_as_policy_says(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(retain_blocks=6), tmp_path)
    await node.open_with_provider()
    await archived(node)
    await node.pruner.run_once()
    assert len(node.packs) == 1
    await node.seal(6)
    await node.pruner.run_once()
    assert node.packs == []
    await node.kill()


@pytest.mark.rule("PRU-001")
async def test_bytes_stay_until_the_flag_is_durable_whoever_has_set_it(node: ArchiveNode) -> None:
    await archived(node)
    height, deleted, delete = node.lives[0].blob.height, list[object](), node.files.delete_pack

    async def note(pack: PackName, blobs: Collection[Digest] = ()) -> bool:
        deleted.append(pack)
        return await delete(pack, blobs)

    node.files.delete_pack = note  # type: ignore[method-assign]
    node.world.disk.faults = [Fault.HANG]
    node.world.disk.release.clear()
    asked = [asyncio.create_task(node.pruner.prune(height))]
    while not node.lives[0].blob.is_pruned:
        await asyncio.sleep(0)
    asked.append(asyncio.create_task(node.pruner.prune(height)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert deleted == [], "the flag is in memory alone"
    node.world.disk.release.set()
    assert await asyncio.gather(*asked) == [None, None]
    assert node.packs == []


@pytest.mark.rule("PRU-001")
async def test_a_pruner_that_dies_after_the_flag_deletes_at_its_next_start(node: ArchiveNode) -> None:
    await archived(node)

    async def die(*_: object) -> bool:
        raise Unavailable("BLB-002", "simulated: killed")

    delete, node.files.delete_pack = node.files.delete_pack, die  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable):
        await node.pruner.run_once()
    await node.seal(20)
    assert node.lives == []  # it has left memory: the tables have it
    node.files.delete_pack = delete  # type: ignore[method-assign]
    await node.kill()
    await node.open()
    assert len(node.packs) == 1
    await node.pruner.run_once()
    assert node.packs == []


@pytest.mark.rule("PRU-002")
async def test_pruning_what_is_gone_is_allowed_and_counted(node: ArchiveNode) -> None:
    await archived(node)
    (pack,) = (node.folder / "blobs" / "packs").iterdir()
    pack.unlink()
    await node.pruner.run_once()
    assert node.archiver.metrics.prune_failures == 1
    assert all(live.blob.is_pruned for live in node.lives)
    assert await node.pruner.prune(node.lives[0].blob.height) is None


@pytest.mark.rule("NTC-002")
async def test_bytes_that_changed_on_the_disk_are_not_deleted(node: ArchiveNode) -> None:
    await archived(node)
    (pack,) = (node.folder / "blobs" / "packs").iterdir()
    raw = bytearray(pack.read_bytes())
    raw[9] ^= 1
    pack.write_bytes(raw)
    await node.pruner.run_once()
    assert len(node.packs) == 1
    assert node.archiver.metrics.prune_failures == 1


@pytest.mark.rule("RET-002")
async def test_an_empty_output_needs_no_archive_to_leave_the_disk(node: ArchiveNode) -> None:
    await node.resolve(b"", seals=1)
    await archived(node)
    await node.let_go()
    state = node.engine.undurable_state
    assert (state.skipped_warm, state.retention_progress[Pass.WARM].results) == ({}, 2)
