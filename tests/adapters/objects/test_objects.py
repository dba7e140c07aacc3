"""What an object store means, on every store: a folder, SeaweedFS, and the one in memory that other tests use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.counts import counts
from tests.loopback_ports import free_port

from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.adapters.objects.remote_store import CONDITIONAL_MAX, RemoteObjects
from holdfast.core.base.errors import Unavailable
from holdfast.ports.objects import Objects, StoredObject

STORES = ["local", "simulated", "seaweedfs"]


def make(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Objects:
    if store == "local":
        return LocalObjects(tmp_path / "objects")
    if store == "simulated":
        return SimulatedObjects()
    server: Any = request.getfixturevalue("seaweedfs")
    return RemoteObjects(f"{server.bucket()}/folder", endpoint=server.endpoint, config=server.config)


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return make(request.param, tmp_path, request)


async def keys(objects: Objects, folder: str, after: str = "") -> list[str]:
    return [each.key async for each in objects.list(folder, after)]


@pytest.mark.rule("ARC-004")
async def test_an_object_is_written_once_and_its_first_bytes_stay(objects: Objects) -> None:
    assert await objects.put_once("a/b", b"first") is True
    assert await objects.put_once("a/b", b"second") is False
    assert await objects.read("a/b") == b"first"
    await objects.replace("a/b", b"third")
    assert (await objects.read("a/b"), await objects.size("a/b")) == (b"third", 5)


@pytest.mark.rule("ARC-004")
async def test_of_many_writers_one_succeeds(objects: Objects) -> None:
    answers = await asyncio.gather(*(objects.put_once("race", b"%d" % number) for number in range(counts(3, 8))))
    winner = answers.index(True)
    assert answers.count(True) == 1
    assert await objects.read("race") == b"%d" % winner


@pytest.mark.rule("ARC-004")
async def test_ranges_are_read_and_end_where_the_object_ends(objects: Objects) -> None:
    await objects.put_once("k", bytes(range(100)))
    assert await objects.read("k", 10, 5) == bytes(range(10, 15))
    assert await objects.read("k", 95, 50) == bytes(range(95, 100))
    assert await objects.read("k", 95) == bytes(range(95, 100))
    assert await objects.read("k", 0, 0) == b""
    assert await objects.read("k", 99, 1) == b"\x63"


@pytest.mark.rule("ARC-004")
async def test_what_is_not_there_is_none_and_deleting_it_is_no_fault(objects: Objects) -> None:
    await objects.put_once("a/b", b"")
    for key in ("x", "a", "a/b/c", "a/c"):
        assert (await objects.size(key), await objects.read(key), await objects.read(key, 1, 2)) == (None, None, None)
        await objects.delete(key)
    assert (await objects.size("a/b"), await objects.read("a/b")) == (0, b"")
    await objects.delete("a/b")
    assert await objects.size("a/b") is None
    assert await objects.put_once("a/b", b"again") is True


@pytest.mark.rule("ARC-004")
async def test_a_listing_is_in_the_order_of_keys_and_goes_on_after_any_of_them(objects: Objects) -> None:
    names = ["data/aa/b", "data/aa/c/d", "data/ab/0", "data/BB/z", "data/__/x", "data/0-/y", "other/x", "data-2/x"]
    for name in names:
        await objects.put_once(name, name.encode())
    below = sorted(name for name in names if name.startswith("data/"))
    assert [each async for each in objects.list("data")] == [StoredObject(name, len(name)) for name in below]
    for at, name in enumerate(below):
        assert await keys(objects, "data", name) == below[at + 1 :]
    assert await keys(objects, "data", "data/aa/bb") == [name for name in below if name > "data/aa/bb"]
    assert await keys(objects, "missing") == []


@pytest.mark.rule("ARC-004")
async def test_a_file_is_stored_and_may_be_deleted_afterwards(objects: Objects, tmp_path: Path) -> None:
    for size in (0, 1_000, CONDITIONAL_MAX, CONDITIONAL_MAX + 1):
        file, raw = tmp_path / "spooled", os.urandom(min(size, 4096)) * (size // 4096 + 1)
        file.write_bytes(raw[:size])
        assert await objects.put_once(f"f/{size}", file) is True
        assert await objects.put_once(f"f/{size}", file) is False
        file.unlink()
        assert await objects.size(f"f/{size}") == size
        assert await objects.read(f"f/{size}", max(0, size - 10)) == raw[:size][-10:]


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    "key", ["", "/", "/a", "a/", "a//b", "..", "a/../b", ".a", "a/.b", "a\\b", "a b", "a\nb", "ä", "a\0b", "k" * 600]
)
async def test_a_key_that_is_none_is_refused_by_every_operation(key: str, tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    calls: list[Callable[[], Any]] = [
        lambda: objects.put_once(key, b""),
        lambda: objects.replace(key, b""),
        lambda: objects.size(key),
        lambda: objects.read(key),
        lambda: objects.delete(key),
        lambda: keys(objects, key),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="cannot be the key"):
            await call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("ARC-004")
async def test_many_objects_are_listed_page_by_page(objects: Objects, tmp_path: Path, monkeypatch: Any) -> None:
    if isinstance(objects, LocalObjects):
        monkeypatch.setattr("holdfast.adapters.objects.local_folder.NAMES_MAX", 7)
    for page in ("holdfast.adapters.objects.local_folder", "holdfast.adapters.objects.remote_store"):
        monkeypatch.setattr(f"{page}.LIST_PAGE", 5)
    names = [f"n/{number:03}" for number in range(counts(40, 400))]
    await asyncio.gather(*(objects.put_once(name, b"x") for name in names))
    assert await keys(objects, "n") == names
    assert await keys(objects, "n", names[20]) == names[21:]


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_a_store_that_cannot_be_reached_is_unavailable_and_shows_no_secret(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    objects = RemoteObjects(
        "s3://nowhere",
        endpoint=endpoint,
        config={"access_key_id": "k", "secret_access_key": "hush-hush"},
        retries=0,
    )
    with pytest.raises(Unavailable) as caught:
        await objects.put_once("a", b"")
    assert caught.value.rule == "ARC-004"
    assert "hush-hush" not in str(caught.value)


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("url", ["file:///tmp/x", "memory://", "nowhere", "http://127.0.0.1/"])
def test_only_remote_stores_are_left_to_obstore(url: str) -> None:
    with pytest.raises(Unavailable, match="is no remote store"):
        RemoteObjects(url)
