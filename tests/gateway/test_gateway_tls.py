"""TLS: the gateway refuses to be reachable without it, and serves with it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.gateway.running_gateway import gateway
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.base.errors import Unavailable


@pytest.mark.rule("SEC-001")
async def test_off_the_loopback_address_it_needs_tls(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no TLS"):
        async with gateway(tmp_path, host="0.0.0.0"):
            pass


@pytest.mark.rule("SEC-001")
async def test_it_serves_with_tls(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["tls", "server", "localhost", "--data", str(tmp_path)])
    assert made.exit_code == 0, made.output
    certificate, key, ca = (tmp_path / "keys" / name for name in ("server.pem", "server.key", "ca.pem"))
    settings: dict[str, Any] = {"host": "localhost", "certificate": certificate, "key": key}
    async with gateway(tmp_path / "g", SimulatedObjects(), **settings) as running:
        assert running.server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(ca))
        async with httpx.AsyncClient(base_url=running.server.url, verify=trusted) as http:
            assert (await http.get("/health")).text == "sidecar running"
        async with httpx.AsyncClient(base_url=running.server.url) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get("/health")
