"""Certificates of the HTTP door that are renewed while it is open (SEC-001)."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs
from tests.api.grpc.grpc_server import client_certificate, tls_folder
from tests.api.http.http_node import HttpNode, http_node

from holdfast.adapters.keys.authority import CertificateFiles
from holdfast.adapters.keys.certificate import describe

pytestmark = pytest.mark.rule("SEC-001")
WITHIN_S = 30.0


async def fingerprint(house: HttpNode) -> str:
    """Of what a new connection is shown; it says no name."""
    port = int(house.url.rpartition(":")[2])
    shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port), timeout=WITHIN_S)
    return describe(shown.encode()).fingerprint


async def test_renewed_files_are_used_without_a_restart(tmp_path: Path) -> None:
    first = tls_folder(tmp_path)
    async with http_node(certificate=first.certificate, key=first.key) as house:
        old = await fingerprint(house)
        assert old == describe(first.certificate.read_bytes()).fingerprint
        first.certificate.rename(tmp_path / "old.pem")
        first.key.rename(tmp_path / "old.key")
        with capture_logs() as logs:
            assert [await fingerprint(house) for _ in range(3)] == [old] * 3  # half replaced: the last good ones go on
        assert [line["event"] for line in logs] == ["tls_reload_failed"], "and it is said once"
        second = tls_folder(tmp_path)
        new = describe(second.certificate.read_bytes()).fingerprint
        assert await fingerprint(house) == new != old
        trusting = ssl.create_default_context(cafile=str(second.ca_certificate))
        async with httpx.AsyncClient(base_url=house.url, verify=trusting, timeout=WITHIN_S) as client:
            assert (await client.get("/healthz")).status_code == 200


async def test_a_connection_that_is_open_stays_open(tmp_path: Path) -> None:
    first = tls_folder(tmp_path)
    trusting = ssl.create_default_context(cafile=str(first.ca_certificate))
    async with (
        http_node(certificate=first.certificate, key=first.key) as house,
        httpx.AsyncClient(base_url=house.url, verify=trusting, timeout=WITHIN_S) as client,
    ):
        assert (await client.get("/healthz")).status_code == 200
        first.certificate.unlink()
        first.key.unlink()
        tls_folder(tmp_path)
        await fingerprint(house)
        assert (await client.get("/healthz")).status_code == 200


async def test_another_authority_for_clients_shuts_out_those_of_the_one_before(tmp_path: Path) -> None:
    ours, theirs = tls_folder(tmp_path / "ours"), tls_folder(tmp_path / "theirs")
    before, after = client_certificate(tmp_path / "ours", "oak"), client_certificate(tmp_path / "theirs", "ash")
    authority = tmp_path / "clients.pem"
    shutil.copy(ours.ca_certificate, authority)
    async with http_node(certificate=ours.certificate, key=ours.key, client_ca=authority) as house:
        assert [await is_admitted(house, ours, each) for each in (before, after)] == [True, False]
        shutil.copy(theirs.ca_certificate, authority)
        assert [await is_admitted(house, ours, each) for each in (before, after, None)] == [False, True, False]


async def is_admitted(house: HttpNode, ours: CertificateFiles, shown: CertificateFiles | None) -> bool:
    context = ssl.create_default_context(cafile=str(ours.ca_certificate))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    try:
        async with httpx.AsyncClient(base_url=house.url, verify=context, timeout=WITHIN_S) as client:
            return (await client.get("/healthz")).status_code == 200
    except httpx.TransportError:
        return False
