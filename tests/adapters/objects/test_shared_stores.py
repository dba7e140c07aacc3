"""What several nodes share: outputs, blobs and journal segments in one object store (TIER-001)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.simulation.kzg import work_of

from holdfast.adapters.blobs.blob_objects import BlobObjects
from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.adapters.objects.object_files import ObjectFiles
from holdfast.adapters.objects.remote_store import RemoteObjects
from holdfast.adapters.warm_shared import SharedWarmStore
from holdfast.adapters.warm_store import path_of
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, Height
from holdfast.core.blob.framing import BLOB_BYTES, versioned_hash
from holdfast.core.result import result_digest
from holdfast.ports.blobs import PackName
from holdfast.ports.objects import Objects

LARGE = os.urandom(300_000)
SMALL = {result_digest(raw): raw for raw in (b"one", b"two", b"three")}


@pytest.fixture(params=["local", "seaweedfs"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "local":
        return LocalObjects(tmp_path / "shared")
    server: Any = request.getfixturevalue("seaweedfs")
    return RemoteObjects(server.bucket(), endpoint=server.endpoint, config=server.config)


async def keep(store: SharedWarmStore, raw: bytes) -> Digest:
    incoming = await store.receive((result_digest(raw), len(raw)))
    await incoming.write(raw)
    return (await incoming.keep())[0]


@pytest.mark.rule("TIER-001", "ENG-006")
async def test_what_one_node_receives_another_node_reads(objects: Objects, tmp_path: Path) -> None:
    one, two = (SharedWarmStore(tmp_path / name, objects) for name in ("one", "two"))
    digest = await keep(one, LARGE)
    await one.put_many(SMALL)
    for store in (one, two):
        assert (await store.size(digest), await store.read(digest)) == (len(LARGE), LARGE)
        opened = await store.open_output(digest)
        assert opened is not None
        assert (opened.size, await opened.read(100, 50)) == (len(LARGE), LARGE[100:150])
        await opened.close()
        for small, raw in SMALL.items():
            assert await store.read(small) == raw
        sizes = {each: len(raw) for each, raw in SMALL.items()}
        assert await store.verify([digest, *SMALL]) == {digest: len(LARGE), **sizes}
    assert await two.usage() == len(LARGE) + sum(map(len, SMALL.values()))
    assert list((tmp_path / "two" / "incoming").iterdir()) == []


@pytest.mark.rule("TIER-001", "RET-002")
async def test_swept_bytes_are_gone_everywhere_and_requested_ones_stay(objects: Objects, tmp_path: Path) -> None:
    one, two = (SharedWarmStore(tmp_path / name, objects) for name in ("one", "two"))
    digest, other = await keep(one, LARGE), await keep(one, LARGE[1:])
    await two.size(other)  # a completion relies on it, on the node that sweeps
    assert await two.sweep([digest, other]) == [other]
    assert (await two.read(digest), await two.size(digest)) == (None, None)
    assert await two.read(other) == LARGE[1:]
    await two.delete(other)
    assert [each async for each in objects.list("warm")] == []


@pytest.mark.rule("TIER-001")
async def test_bytes_count_as_held_when_the_store_has_them(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    store = SharedWarmStore(tmp_path / "one", objects)
    objects.fail_before = {"put_once"}
    with pytest.raises(Unavailable):
        await keep(store, LARGE)
    with pytest.raises(Unavailable):
        await store.size(result_digest(LARGE))  # only this folder has them: it cannot say that they are held
    objects.fail_before = set()
    assert await store.size(result_digest(LARGE)) == len(LARGE)
    assert len(objects.stored) == 1


@pytest.mark.rule("TIER-001")
async def test_other_bytes_in_the_store_are_never_served_and_a_damaged_copy_is_not_needed(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    one, two = (SharedWarmStore(tmp_path / name, objects) for name in ("one", "two"))
    digest = await keep(one, LARGE)
    path_of(tmp_path / "one", digest).write_bytes(b"damaged")
    assert await one.read(digest) == LARGE  # from the store
    (key,) = objects.stored
    objects.stored[key] = b"other bytes"
    for read in (two.read, two.open_output):
        with pytest.raises(Corrupt, match="other bytes"):
            await read(digest)
    assert await two.verify([digest]) == {}


@pytest.mark.rule("BLB-002")
async def test_blobs_are_loose_then_packed_and_read_by_any_node(objects: Objects) -> None:
    raws = [bytes([number]) * BLOB_BYTES for number in range(3)]
    works = [work_of(raw) for raw in raws]
    hashes = [(versioned_hash(work.commitment), work.keccak) for work in works]
    one, two, pack = BlobObjects(objects), BlobObjects(objects), PackName(Height(7), b"\7" * 32)
    for raw, (hash_, _) in zip(raws, hashes, strict=True):
        await one.put(hash_, raw)
    assert await two.read(pack, 1, *hashes[1]) == raws[1]
    await one.write_pack(pack, hashes)
    await one.write_pack(pack, hashes)
    assert await two.packs() == [pack]
    assert [await two.read(pack, number, *each) for number, each in enumerate(hashes)] == raws
    assert [each.key async for each in objects.list("blobs/undecided")] == []
    with pytest.raises(Corrupt, match="is not what was stored"):
        await two.read(pack, 1, hashes[1][0], hashes[0][1])
    await one.put(hashes[0][0], raws[0])
    assert (await two.delete_loose([hashes[0][0]]), await two.delete_loose([])) == (0, 1)
    assert await two.usage() == 3 * BLOB_BYTES
    assert (await two.delete_pack(pack), await two.delete_pack(pack)) == (True, False)
    assert await one.read(pack, 0, *hashes[0]) is None
    with pytest.raises(Unavailable, match="is missing"):
        await one.write_pack(pack, hashes)


@pytest.mark.rule("ENG-004")
async def test_segments_are_whole_files_by_name(objects: Objects) -> None:
    one, two = ObjectFiles(objects, "archive"), ObjectFiles(objects, "archive")
    names = ["000000000001-000000000005.events-1-9.seg", "000000000006-000000000007.events-10-12.seg"]
    for name in reversed(names):
        await one.replace(name, name.encode())
    assert await two.names() == names
    assert [await two.read(name) for name in names] == [name.encode() for name in names]
    await two.delete(names[0])
    assert (await one.names(), await one.read(names[0])) == (names[1:], None)
