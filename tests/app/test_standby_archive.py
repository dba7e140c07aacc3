"""A standby and archived outputs: fetched like the owner does, checked, for keys, within its own budget (RES-009)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.http.http_node import HttpNode, http_server, name_of
from tests.simulation.journal import SimulatedJournal
from tests.simulation.kzg import SimulatedKzg
from tests.workers.archive.archive_node import KEY, ArchiveNode, archive_policy

from holdfast.adapters.archive.settings import ArchiveSettings, ProviderKind
from holdfast.adapters.keys.secret_file import write_new
from holdfast.api.node_access import NodeAccess
from holdfast.app import standby_archive
from holdfast.app.archive_workers import ARCHIVE_KEY, fetched_folder
from holdfast.app.standby_archive import StandbyArchive
from holdfast.config import Config
from holdfast.core.base.values import TaskId
from holdfast.core.key.model import Role
from holdfast.core.result import result_digest
from holdfast.engine.follower import Follower

pytestmark = pytest.mark.rule("RES-009", "ENG-006")
LARGE = bytes(range(256)) * 1_500


class StandbyRun:
    """An owner that has let its outputs go, and a standby that follows its journal."""

    def __init__(self, owner: ArchiveNode, http: HttpNode, config: Config) -> None:
        self.owner, self.http, self.config = owner, http, config

    async def get(self, task: TaskId, token: str | None) -> Any:
        async with self.http.client(token) as client:
            return await client.get(f"/v1/outputs/{task.hex()}")


async def cold(owner: ArchiveNode, output: bytes, *, is_public: bool = False) -> TaskId:
    task = await (owner.resolve_public if is_public else owner.resolve)(output, seals=1)
    await owner.pack_final()
    await owner.let_go()
    return task


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StandbyRun]:
    monkeypatch.setattr(standby_archive, "KzgPool", lambda _: SimulatedKzg())
    owner = ArchiveNode(archive_policy(), tmp_path / "owner")
    await owner.open_with_provider()
    (tmp_path / "owner" / "archived").mkdir(parents=True)
    (tmp_path / "owner" / "archived" / "store-id").write_bytes(b"test")  # as its locators name the folder
    archive = ArchiveSettings(
        provider=ProviderKind.FILE, url=str(tmp_path / "owner" / "archived"), fetch_bytes_per_hour=len(LARGE) // 2
    )
    config = msgspec.structs.replace(Config(), data=tmp_path / "standby", node="standby", archive=archive)
    world = owner.world
    follower = Follower(SimulatedJournal(world.disk), world.tables, world.files, world.clock, world.policy)
    await follower.load()
    following = asyncio.create_task(follower.run())
    access = NodeAccess(follower, owner.engine.submit)
    access.blob_files = owner.files
    archived = access.archived = StandbyArchive(config, follower)
    async with http_server(access, world) as server:
        yield StandbyRun(owner, HttpNode(world, owner.engine, access, server), config)
    await archived.close()
    following.cancel()
    await owner.kill()


async def caught_up(run: StandbyRun) -> None:
    while run.http.access.source.replication_status().tip.number < run.owner.engine.durable_head.number:
        await asyncio.sleep(0)


def give_key(run: StandbyRun) -> None:
    (run.config.data / "keys").mkdir(parents=True)
    write_new(run.config.data / ARCHIVE_KEY, KEY._secret.hex().encode())


async def test_a_standby_fetches_what_the_owner_has_let_go_for_keys_and_within_a_budget(run: StandbyRun) -> None:
    tasks = [await cold(run.owner, LARGE), await cold(run.owner, LARGE[1:], is_public=True)]
    token = await run.http.token(Role.REQUESTER)
    await caught_up(run)
    give_key(run)
    assert (await run.get(tasks[1], None)).status_code == 410
    answer = await run.get(tasks[0], token)
    assert (answer.status_code, answer.content) == (200, LARGE)
    proof = (await run.http.call("da.proveShares", token, task_id=tasks[0].hex(), start=3)).json()["result"]
    assert bytes.fromhex(proof["da"]["shares"][0])[-64:] in LARGE
    refused = await run.get(tasks[1], token)
    assert (refused.status_code, name_of(refused)) == (429, "RateLimited")
    assert [file.name for file in fetched_folder(run.config).iterdir()] == [result_digest(LARGE).hex()]


@pytest.mark.rule("BLB-003", "SRV-001", "RES-004")
async def test_without_the_key_or_before_a_lie_a_standby_gives_no_byte_and_blobs_are_gone(run: StandbyRun) -> None:
    task, token = await cold(run.owner, LARGE), await run.http.token(Role.REQUESTER)
    await caught_up(run)
    answer = await run.get(task, token)
    assert (answer.status_code, "all nodes of a network share one archive key" in answer.text) == (503, True)
    parts = (await run.http.call("blob.getParts", token, task_id=task.hex())).json()["result"]["parts"]
    async with run.http.client(token) as client:
        gone = await client.get(f"/eth/v1/beacon/blobs/{parts[0]['blob']['height']}")
    assert (gone.status_code, gone.json()["locators"]) == (410, [part["blob"]["locator"] for part in parts])
    give_key(run)
    run.http.access.archived = StandbyArchive(run.config, run.http.access.source)  # with its whole budget
    for item in (run.owner.folder / "archived" / "items").iterdir():
        item.write_bytes(item.read_bytes()[:-1] + b"\1")
    lie = await run.get(task, token)
    assert (lie.status_code, LARGE[:32] in lie.content) == (500, False)
    assert list(fetched_folder(run.config).iterdir()) == []
