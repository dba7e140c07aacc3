"""check, scrub, reindex, stats and keys: by hand on the command line, and by the gateway itself in the background."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.gateway.running_gateway import Gateway, gateway
from tests.gateway.test_upload import signed
from typer.testing import CliRunner

from holdfast.adapters.keys.item_signatures import is_signed_by_owner
from holdfast.cli import app
from holdfast.gateway.key_file import LOOK_MS, KeyFile
from holdfast.gateway.maintenance import Report, ScrubFile, check_store, scrub
from holdfast.gateway.records import data_key, item_key


def cli(folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["gateway", *words, "--data", str(folder)])
    return done.exit_code, done.stdout


async def no_pause(_: int) -> None:
    return None


async def three_items(running: Gateway) -> list[str]:
    return [(await running.upload(b"%d" % number * 1000)).json()["dataitem_id"] for number in range(3)]


def objects_found(report: Report) -> set[str]:
    return {finding.object for finding in report.findings}


@pytest.mark.rule("ARC-004")
async def test_a_scrub_finds_what_is_missing_and_what_is_damaged(running: Gateway, objects: SimulatedObjects) -> None:
    whole, damaged, missing = await three_items(running)
    clean = await scrub(running.store, is_signed_by_owner, Report(), no_pause)
    assert (clean.uploads, clean.findings, clean.is_whole) == (3, [], True)
    objects.damage(data_key(damaged), 500)
    del objects.stored[data_key(missing)]
    found = await scrub(running.store, is_signed_by_owner, Report(), no_pause)
    assert objects_found(found) == {data_key(damaged), data_key(missing)}
    assert objects_found(await check_store(running.store)) == {data_key(missing)}
    objects.damage(item_key(whole), 3)
    assert item_key(whole) in objects_found(await check_store(running.store))
    del objects.stored[item_key(whole)]
    assert item_key(whole) in objects_found(await scrub(running.store, is_signed_by_owner, Report(), no_pause))


@pytest.mark.rule("ARC-004")
async def test_a_scrub_verifies_signatures_not_only_hashes(running: Gateway, objects: SimulatedObjects) -> None:
    """Somebody who can write to the store makes records whose hashes fit."""
    id_, raw = signed(b"data", (b"k", b"v"))
    await running.upload(raw, signed="true")
    other, raw_other = signed(b"else", (b"k", b"v"))
    await running.upload(raw_other, signed="true")
    objects.stored[data_key(id_)], objects.stored[item_key(id_)] = b"else", objects.stored[item_key(other)]
    assert objects_found(await scrub(running.store, is_signed_by_owner, Report(), no_pause)) == {item_key(id_)}


@pytest.mark.rule("ARC-004")
async def test_a_scrub_that_was_interrupted_goes_on_where_it_was(running: Gateway, tmp_path: Path) -> None:
    await three_items(running)
    file = ScrubFile(tmp_path / "scrub.json")
    report = file.load()

    async def interrupt(_: int) -> None:
        file.save(report)
        if report.uploads == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await scrub(running.store, is_signed_by_owner, report, interrupt)
    resumed = file.load()
    assert (resumed.uploads, resumed.is_whole) == (2, False)
    seen: list[str] = []

    async def watch(_: int) -> None:
        seen.append(resumed.after)

    await scrub(running.store, is_signed_by_owner, resumed, watch)
    assert (resumed.uploads, len(seen)) == (3, 1)


@pytest.mark.rule("ARC-004")
async def test_a_scrub_adds_to_the_index_what_it_does_not_have(running: Gateway) -> None:
    await three_items(running)
    await running.store.index.clear()
    assert len((await check_store(running.store)).findings) == 3
    report = await scrub(running.store, is_signed_by_owner, Report(), no_pause)
    assert (report.added, report.findings) == (3, [])
    assert (await running.http.get("/stats")).json()["total_dataitems_count"] == 3


@pytest.mark.rule("ARC-004")
async def test_the_gateway_scrubs_by_itself(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    async with gateway(tmp_path, objects) as running:
        ids = await three_items(running)
    objects.damage(data_key(ids[1]))
    from holdfast.adapters.clock import MachineClock
    from holdfast.gateway.server import GatewayServer
    from holdfast.gateway.settings import GatewaySettings

    class FastClock(MachineClock):
        async def sleep(self, ms: int) -> None:
            await asyncio.sleep(0 if ms < 3_600_000 else 3_600)

    server = GatewayServer(GatewaySettings(port=0), tmp_path, _reopened(running, tmp_path), FastClock())
    await server.open()
    try:
        for _ in range(1_000):
            if (report := ScrubFile(tmp_path / "scrub.json").load()).is_whole:
                break
            await asyncio.sleep(0.01)
        assert (report.uploads, objects_found(report)) == (3, {data_key(ids[1])})
    finally:
        await server.close()


def _reopened(running: Gateway, folder: Path) -> Any:
    from holdfast.adapters.sqlite.item_index import SqliteItemIndex
    from holdfast.gateway.item_store import ItemStore

    index = SqliteItemIndex(folder / "index.db", query_ms=5_000, monotonic_ms=lambda: 0)
    return ItemStore(running.store.objects, index)


# ------------------------------------------------------------------------------------------------ the command line


@pytest.mark.rule("ARC-004")
async def test_the_command_line_checks_beside_a_gateway_that_runs_and_rebuilds_without_one(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    async with gateway(folder) as running:
        ids = await three_items(running)
        for words in (("check",), ("scrub",)):
            code, out = await asyncio.to_thread(cli, tmp_path, *words)
            assert (code, out) == (0, "✔ gateway      3 uploads, 0 faults\n")
        code, out = await asyncio.to_thread(cli, tmp_path, "stats", "--json")
        assert json.loads(out)["total_dataitems_count"] == 3
        code, _ = await asyncio.to_thread(cli, tmp_path, "reindex")
        assert code != 0  # the index is in use
    for file in folder.glob("index.db*"):
        file.unlink()
    code, out = await asyncio.to_thread(cli, tmp_path, "reindex")
    assert (code, out) == (0, "3 uploads in the index\n")
    (folder / "objects" / data_key(ids[0])).write_bytes(b"damaged")
    code, out = await asyncio.to_thread(cli, tmp_path, "scrub", "--json")
    assert (code, json.loads(out)["findings"][0]["object"]) == (1, data_key(ids[0]))


@pytest.mark.rule("SEC-001")
def test_keys_are_created_listed_and_revoked_and_only_hashes_are_stored(tmp_path: Path) -> None:
    code, token = cli(tmp_path, "key", "create", "--label", "archiver", "--quota-bytes", "5")
    assert (code, token.startswith("load_acc_")) == (0, True)
    file = tmp_path / "gateway" / "keys.json"
    assert token.strip().split("_", 3)[3] not in file.read_text("utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (listed,) = json.loads(cli(tmp_path, "key", "list", "--json")[1])
    assert (listed["label"], listed["quota_bytes"], listed["revoked_ms"]) == ("archiver", 5, None)
    assert "secret" not in listed
    keys = KeyFile(file)
    key = keys.authenticate(token.strip())
    assert key is not None
    assert cli(tmp_path, "key", "revoke", key.id[:6], "--yes") == (0, f"key {key.id} is revoked\n")
    revoked = keys.authenticate(token.strip())
    assert revoked is not None
    assert revoked.revoked_ms is not None
    assert cli(tmp_path, "key", "revoke", "nobody")[0] != 0
    assert "revoked" in cli(tmp_path, "key", "list")[1]
    (tmp_path / "token").write_text("x", "utf-8")
    assert cli(tmp_path, "key", "create", "--output", str(tmp_path / "token"))[0] != 0
    assert cli(tmp_path, "key", "create", "--output", str(tmp_path / "new")) == (0, "")
    assert keys.authenticate((tmp_path / "new").read_text("utf-8").strip()) is not None


@pytest.mark.rule("SEC-001")
def test_a_gateway_looks_at_the_file_a_few_times_a_second(tmp_path: Path) -> None:
    now_ms = [0]
    ours, theirs = KeyFile(tmp_path / "keys.json", lambda: now_ms[0]), KeyFile(tmp_path / "keys.json")
    key, token = theirs.create(1, "", is_admin=False, quota_bytes=None, quota_items=None)
    assert ours.authenticate(token) == key
    theirs.revoke(key.id, 2)
    assert ours.authenticate(token) == key
    now_ms[0] = LOOK_MS
    seen = ours.authenticate(token)
    assert seen is not None
    assert seen.revoked_ms == 2


@pytest.mark.rule("OBS-001", "SEC-001")
async def test_metrics_count_requests_uploads_and_bytes(tmp_path: Path) -> None:
    async with gateway(tmp_path, public_metrics=False) as running:
        await running.upload(b"x" * 100)
        await running.upload(b"x", token="bad")
        assert (await running.http.get("/metrics")).status_code == 401
        admin = {"authorization": f"Bearer {running.new_token(is_admin=True)}"}
        page = (await running.http.get("/metrics", headers=admin)).text
        for line in (
            'gateway_requests_total{route="/upload",status="200"} 1.0',
            'gateway_requests_total{route="/upload",status="401"} 1.0',
            'gateway_uploads_total{kind="raw"} 1.0',
            "gateway_received_bytes_total 100.0",
            "gateway_items 1.0",
            "gateway_index_waiting 0.0",
        ):
            assert line in page.splitlines(), line
