"""The gateway as a node's child: it has a key for its node, comes back when it dies, and goes when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs
from tests.loopback_ports import free_port

from holdfast import config as configuration
from holdfast.adapters.archive.make import make_provider
from holdfast.adapters.archive.settings import ProviderKind
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey
from holdfast.app.archive_workers import report_no_archive
from holdfast.app.gateway_child import GatewayChild, child_settings, ensure_token
from holdfast.config import GATEWAY_TOKEN, Config, load
from holdfast.core.base.errors import Refused
from holdfast.gateway.key_file import KeyFile
from holdfast.ports.blobs import ItemUpload
from holdfast.wire.ans104 import build_item


def own_gateway(data: Path, **settings: object) -> Config:
    wanted = {"data": data, "archive.provider": "gateway", **settings}
    loaded = load(Path(os.devnull), {}, wanted)
    assert isinstance(loaded, Config), loaded
    return loaded


@pytest.fixture
async def child(tmp_path: Path) -> AsyncIterator[GatewayChild]:
    made = GatewayChild(own_gateway(tmp_path, **{"gateway.port": free_port()}), MachineClock())
    made.start()
    yield made
    await made.stop()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


def item() -> ItemUpload:
    built = build_item(SigningKey.from_seed(bytes(32)), [(b"height", b"7")], b"data")
    assert not isinstance(built, Refused)
    return ItemUpload(built[0], built[1], "1337/7/0")


@pytest.mark.rule("ARC-004")
async def test_it_archives_comes_back_when_it_is_killed_and_is_gone_when_it_is_stopped(child: GatewayChild) -> None:
    config = child._config
    provider, upload = make_provider(config.archive, config.data), item()
    await until(lambda: is_up(config.archive.url))
    assert await provider.store(upload) is None
    killed = child.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await until(lambda: child.restarts == 1 and is_up(config.archive.url))
    assert child.process_id not in (None, killed)
    assert await provider.fetch(provider.locator_of(upload.id)) == b"data"
    await child.stop()
    assert not is_up(config.archive.url)
    assert child.restarts == 1


@pytest.mark.rule("ARC-004")
async def test_one_that_cannot_start_is_tried_again_later_and_later(tmp_path: Path) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    pauses: list[int] = []

    class Clock(MachineClock):
        async def sleep(self, ms: int) -> None:
            pauses.append(ms)
            await super().sleep(1)

    server = await asyncio.start_server(refuse, "127.0.0.1", free_port())
    port = server.sockets[0].getsockname()[1]
    made = GatewayChild(own_gateway(tmp_path, **{"gateway.port": port}), Clock())
    made.start()
    with capture_logs() as logs:
        await until(lambda: len(pauses) >= 2)
    await made.stop()
    server.close()
    assert pauses[:2] == [500, 1_000]
    assert "in use" in next(log["reason"] for log in logs if log["event"] == "gateway_ended")


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5, verify=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.rule("SEC-001")
def test_the_node_gets_one_key_and_one_that_was_revoked_stays_so(tmp_path: Path) -> None:
    keys, token_file = tmp_path / "gateway" / "keys.json", tmp_path / GATEWAY_TOKEN
    for _ in range(2):
        ensure_token(keys, token_file, 1)
    (key,) = KeyFile(keys).keys()
    assert (token_file.stat().st_mode & 0o777, token_file.read_text().count("\n")) == (0o600, 1)
    assert not isinstance(KeyFile(keys).revoke(key.id, 5), Refused)
    ensure_token(keys, token_file, 1)
    assert len(KeyFile(keys).keys()) == 1
    token_file.write_text("of another gateway")
    ensure_token(keys, token_file, 1)
    assert len(KeyFile(keys).keys()) == 2


@pytest.mark.rule("SEC-001")
def test_whatever_is_set_the_child_listens_to_its_own_machine_alone(tmp_path: Path) -> None:
    config = own_gateway(tmp_path, **{"gateway.host": "0.0.0.0", "gateway.certificate": "a", "gateway.key": "b"})
    settings = child_settings(config.gateway)
    assert (settings.host, settings.certificate, settings.key) == ("127.0.0.1", None, None)
    assert config.archive.url == "http://127.0.0.1:1247"
    assert (config.archive.provider, config.archive.token_file) == (ProviderKind.LOAD_S3, tmp_path / GATEWAY_TOKEN)


@pytest.mark.rule("ARC-004")
def test_without_its_libraries_a_node_has_no_archive_and_says_which_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Refused("BLB-001", "blobs need ckzg, which is not installed", "pip install 'holdfast[blobs]'")
    monkeypatch.setattr(configuration, "why_not_blobs", lambda: missing)
    config = own_gateway(tmp_path)
    assert (config.archive.provider, config.runs_gateway) == (ProviderKind.NONE, True)
    with capture_logs() as logs:
        report_no_archive(config)
    assert [(log["event"], log["hint"]) for log in logs] == [("archive_missing", "pip install 'holdfast[blobs]'")]


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(("network", "says"), [("development", []), ("production", ["archive_not_configured"])])
def test_a_production_node_without_an_archive_says_so(tmp_path: Path, network: str, says: list[str]) -> None:
    loaded: Any = load(Path(os.devnull), {}, {"data": tmp_path, "network": network})
    with capture_logs() as logs:
        report_no_archive(loaded)
    assert [log["event"] for log in logs] == says
