"""Durable before it answers: every cut between two writes is repaired, and no fault of the index loses an item."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.gateway.running_gateway import Gateway, gateway
from tests.gateway.test_upload import signed

from holdfast.adapters.postgres.connect import Database
from holdfast.adapters.postgres.item_index import PostgresItemIndex
from holdfast.adapters.sqlite.item_index import SqliteItemIndex
from holdfast.core.base.errors import Unavailable
from holdfast.gateway.maintenance import add_waiting


async def crash(running: Gateway) -> None:
    """The index is closed as after a crash: not complete."""
    running.server.repaired.clear()


class FailingIndex:
    """Lets `add` fail, before or after it had its effect."""

    def __init__(self, index: Any) -> None:
        self._index, self.is_down, self.is_after = index, False, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    async def add(self, *args: Any) -> None:
        if self.is_down and not self.is_after:
            raise Unavailable("ENG-002", "the index is down")
        await self._index.add(*args)
        if self.is_down:
            raise Unavailable("ENG-002", "the index is down")


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("writes", range(4))
async def test_an_upload_that_was_cut_at_any_write_is_not_seen_and_succeeds_when_it_is_sent_again(
    tmp_path: Path, writes: int
) -> None:
    objects = SimulatedObjects()
    id_, raw = signed(b"data", (b"k", b"v"))
    async with gateway(tmp_path, objects) as running:
        objects.puts_left = writes
        answer = await running.upload(raw, signed="true")
        assert answer.status_code == (500 if writes < 3 else 200)
        objects.puts_left = None
        seen = await running.http.get(f"/resolve/{id_}")
        assert (seen.status_code, seen.content == b"data") == ((404, False) if writes < 3 else (200, True))
        await crash(running)
    async with gateway(tmp_path, objects, token=running.token) as running:
        assert (await running.find({"k": "v"})).json()["count"] == (1 if writes == 3 else 0)
        assert (await running.upload(raw, signed="true")).json()["dataitem_id"] == id_
        assert (await running.http.get(f"/binary/{id_}")).content == raw
        assert (await running.find({"k": "v"})).json()["count"] == 1


@pytest.mark.rule("ARC-004")
async def test_an_answer_of_the_store_that_is_lost_loses_no_item(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    async with gateway(tmp_path, objects) as running:
        objects.fail_after = {"put_once"}
        assert (await running.upload(b"x")).status_code == 500
        objects.fail_after = set()
        answer = await running.upload(b"x")
        assert answer.status_code == 200
        assert (await running.http.get(f"/resolve/{answer.json()['dataitem_id']}")).content == b"x"


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("is_after", [False, True])
async def test_an_index_that_fails_loses_no_item_and_gets_it_later(tmp_path: Path, is_after: bool) -> None:
    async with gateway(tmp_path) as running:
        failing = FailingIndex(running.store.index)
        running.store.index = failing
        failing.is_down, failing.is_after = True, is_after
        id_, raw = signed(b"data", (b"k", b"v"))
        answer = await running.upload(raw, signed="true")
        assert (answer.status_code, answer.json()) == (500, {"error": "failed to store file: the index is down"})
        assert (await running.http.get(f"/resolve/{id_}")).content == b"data"
        assert await add_waiting(running.store) == 1
        failing.is_down = False
        assert await add_waiting(running.store) == 0
        assert (await running.find({"k": "v"})).json()["count"] == 1


@pytest.mark.rule("ARC-004")
async def test_what_the_index_missed_is_added_at_the_next_start(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        failing = FailingIndex(running.store.index)
        running.store.index, failing.is_down = failing, True
        id_, raw = signed(b"data", (b"k", b"v"))
        await running.upload(raw, signed="true")
        await running.upload(raw, path="/upload/private", signed="true", x_bucket_name="mine", x_folder_name="f")
    async with gateway(tmp_path, token=running.token) as running:
        assert (await running.find({"k": "v"})).json()["items"][0]["dataitem_id"] == id_
        registry = await running.http.get("/registry/mine", headers={"authorization": f"Bearer {running.token}"})
        assert [entry["dataitem_id"] for entry in registry.json()["entries"]] == [f"f/{id_}.ans104"]


@pytest.mark.rule("ARC-004")
async def test_an_index_that_is_lost_is_made_again_from_the_store(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        for number in range(5):
            await running.upload(b"%d" % number, tags=[{"key": "k", "value": "v"}])
        before = (await running.find({"k": "v"}, full_metadata=True)).json()
        stats = (await running.http.get("/stats")).json()
    for file in tmp_path.glob("index.db*"):
        file.unlink()
    async with gateway(tmp_path, token=running.token) as running:
        assert (await running.find({"k": "v"}, full_metadata=True)).json() == before
        assert (await running.http.get("/stats")).json() == stats


@pytest.mark.rule("ARC-004")
async def test_after_a_clean_stop_the_store_is_not_listed(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    async with gateway(tmp_path, objects) as running:
        await running.upload(b"x")
    objects.calls.clear()
    async with gateway(tmp_path, objects, token=running.token):
        assert objects.calls["list"] == 0


@pytest.mark.rule("ARC-004")
async def test_many_uploads_of_one_item_at_once_store_it_once(tmp_path: Path) -> None:
    id_, raw = signed(b"x" * 300_000, (b"k", b"v"))
    async with gateway(tmp_path) as running:
        answers = await asyncio.gather(*(running.upload(raw, signed="true") for _ in range(8)))
        assert {answer.json()["dataitem_id"] for answer in answers} == {id_}
        assert len(await running.stored()) == 3
        assert (await running.http.get("/stats")).json()["total_dataitems_count"] == 1
        assert running.spooled() == []


@pytest.mark.rule("ARC-004")
async def test_two_gateways_do_not_share_a_folder(tmp_path: Path) -> None:
    async with gateway(tmp_path):
        with pytest.raises(Unavailable, match="another gateway uses"):
            async with gateway(tmp_path):
                pass


@pytest.mark.rule("ARC-004")
async def test_reads_need_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(tmp_path) as running:
        id_ = (await running.upload(b"x")).json()["dataitem_id"]

        async def fail(*_: object) -> None:
            raise Unavailable("ENG-002", "the index is down")

        for name in ("get", "find", "totals"):
            monkeypatch.setattr(SqliteItemIndex, name, fail)
        assert (await running.http.get(f"/resolve/{id_}")).content == b"x"
        assert (await running.http.get("/stats")).json() == {"total_dataitems_count": 0, "total_dataitems_size": 0}
        answer = await running.find({"k": "v"})
        assert (answer.status_code, answer.json()) == (500, {"error": "failed to query tags: the index is down"})


@pytest.mark.rule("ARC-004")
async def test_the_index_may_be_on_postgres(tmp_path: Path, postgres: Any) -> None:
    database = Database(*postgres.address())
    id_, raw = signed(b"data", (b"k", b"v\0\xff"), (b"long", b"x" * 3_000))
    async with gateway(tmp_path, index=PostgresItemIndex(database, query_ms=5_000)) as running:
        assert (await running.upload(raw, signed="true")).status_code == 200
        await running.upload(raw, path="/upload/private", signed="true", x_bucket_name="mine", x_dataitem_name="n'")
        await running.store.index.clear()
        await crash(running)
    index = PostgresItemIndex(database, query_ms=5_000)
    async with gateway(tmp_path, index=index, token=running.token) as running:
        assert (await running.find({"long": "x" * 3_000}, full_metadata=True)).json()["items"][0]["dataitem_id"] == id_
        assert (await running.http.get("/stats")).json()["total_dataitems_count"] == 1
        assert [entry.name for entry in await index.entries("mine")] == ["n'"]


@pytest.mark.rule("ARC-004")
async def test_what_was_being_spooled_when_the_process_died_is_removed_at_the_next_start(tmp_path: Path) -> None:
    async with gateway(tmp_path) as running:
        pass
    (tmp_path / "spool" / "0123.tmp").write_bytes(b"half an upload")
    async with gateway(tmp_path, token=running.token) as running:
        assert running.spooled() == []
