"""TLS and mTLS of the gRPC API: a client without a certificate of ours is refused, nothing is sent in plain text."""

from __future__ import annotations

import socket
import ssl
import warnings
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from tests.api.grpc.grpc_server import (
    DAY_MS,
    NOW_MS,
    Channel,
    Echo,
    client_certificate,
    connected_channel,
    grpc_server,
    say,
    tls_folder,
)

from holdfast.adapters.keys.authority import CertificateFiles
from holdfast.adapters.keys.certificate import describe
from holdfast.api.grpc.auth_interceptor import PeerCertificate
from holdfast.api.grpc.server import GrpcServer
from holdfast.api.grpc.settings import GrpcSettings, why_not_open
from holdfast.core.base.errors import Unavailable

pytestmark = pytest.mark.rule("SEC-001")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    folder = tmp_path_factory.mktemp("ours")
    made = tls_folder(folder, "oak")
    client_certificate(folder, "late", NOW_MS - 10 * DAY_MS, days=2)
    return made


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return tls_folder(tmp_path_factory.mktemp("theirs"), "oak")


def pair_of(made: CertificateFiles, name: str) -> CertificateFiles:
    folder = made.ca_certificate.parent
    return CertificateFiles(folder / f"client-{name}.pem", folder / f"client-{name}.key", made.ca_certificate)


async def rejection(channel: Channel) -> str:
    """A client that is not let in learns no more than that."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await say(channel, "let me in")
    return str(caught.value.code().name)


# ------------------------------------------------------------------------------------------------ TLS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_that_trusts_the_authority_is_served(ours: CertificateFiles, host: str) -> None:
    async with grpc_server(tls=ours) as server, connected_channel(server, ours.ca_certificate, host=host) as channel:
        assert await say(channel, "x", "oak") == "(None, 'oak'): x"


async def test_a_client_that_trusts_another_authority_does_not_speak(
    ours: CertificateFiles, theirs: CertificateFiles
) -> None:
    echo = Echo()
    async with grpc_server(echo, tls=ours) as server, connected_channel(server, theirs.ca_certificate) as channel:
        assert await rejection(channel) == "UNAVAILABLE"
    assert echo.heard == []


async def test_a_client_in_plain_text_is_not_served(ours: CertificateFiles) -> None:
    echo = Echo()
    async with grpc_server(echo, tls=ours) as server, connected_channel(server) as channel:
        assert await rejection(channel) == "UNAVAILABLE"
    assert echo.heard == []


async def test_old_versions_of_tls_are_not_spoken(ours: CertificateFiles) -> None:
    async with grpc_server(tls=ours) as server:
        context = ssl.create_default_context(cafile=ours.ca_certificate)
        context.set_alpn_protocols(["h2"])
        assert _version(server, context) in ("TLSv1.2", "TLSv1.3")
        with warnings.catch_warnings(action="ignore"):  # that it is old is why it is tried
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            _version(server, context)


def _version(server: GrpcServer, context: ssl.SSLContext) -> str | None:
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        return wrapped.version()


# ------------------------------------------------------------------------------------------------ mTLS


async def test_a_client_with_a_certificate_of_ours_is_known_by_its_name(ours: CertificateFiles) -> None:
    shown = pair_of(ours, "oak")
    async with (
        grpc_server(tls=ours, client_ca=ours.ca_certificate) as server,
        connected_channel(server, ours.ca_certificate, shown) as channel,
    ):
        assert await say(channel, "x", "hf") == "('oak', 'hf'): x"


@pytest.mark.parametrize("shown", ["none", "another authority's", "expired", "the server's own"])
async def test_a_client_without_a_valid_certificate_of_ours_is_refused(
    ours: CertificateFiles, theirs: CertificateFiles, shown: str
) -> None:
    pairs = {
        "none": None,
        "another authority's": pair_of(theirs, "oak"),
        "expired": pair_of(ours, "late"),
        "the server's own": ours,
    }
    echo = Echo()
    async with (
        grpc_server(echo, tls=ours, client_ca=ours.ca_certificate) as server,
        connected_channel(server, ours.ca_certificate, pairs[shown]) as channel,
    ):
        assert await rejection(channel) == "UNAVAILABLE"
        async with connected_channel(server, ours.ca_certificate, pair_of(ours, "oak")) as good:
            assert await say(good, "x") == "('oak', None): x"
    assert echo.heard == ["x"]


async def test_authentication_gets_exactly_the_certificate_that_was_presented(ours: CertificateFiles) -> None:
    seen: list[PeerCertificate | None] = []

    async def look(_: str | None, certificate: PeerCertificate | None) -> object:
        seen.append(certificate)
        return "somebody"

    shown = pair_of(ours, "oak")
    async with (
        grpc_server(tls=ours, client_ca=ours.ca_certificate, authenticate=look) as server,
        connected_channel(server, ours.ca_certificate, shown) as channel,
    ):
        assert await say(channel, "x") == "somebody: x"
    pem = shown.certificate.read_bytes()
    assert seen == [PeerCertificate("oak", describe(pem).fingerprint, pem)]


# ------------------------------------------------------------------------------------------------ renewal


async def test_renewed_files_are_used_without_a_restart(tmp_path: Path, theirs: CertificateFiles) -> None:
    first = tls_folder(tmp_path)
    async with grpc_server(tls=first) as server:
        old = _fingerprint(server)
        assert old == describe(first.certificate.read_bytes()).fingerprint
        first.certificate.rename(tmp_path / "old.pem")
        first.key.rename(tmp_path / "old.key")
        with capture_logs() as logs:
            assert _fingerprint(server) == old  # half replaced: the last good ones go on
        assert [line["event"] for line in logs] == ["tls_reload_failed"]
        second = tls_folder(tmp_path)
        new = describe(second.certificate.read_bytes()).fingerprint
        assert _fingerprint(server) == new != old
        async with connected_channel(server, second.ca_certificate) as channel:
            assert await say(channel, "x") == "(None, None): x"


def _fingerprint(server: GrpcServer) -> str:
    return describe(ssl.get_server_certificate(("127.0.0.1", server.port), timeout=5).encode()).fingerprint


# ------------------------------------------------------------------------------------------------ what is not opened


FILES: dict[str, Any] = {"certificate": Path("server.pem"), "key": Path("server.key")}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_plain_text_is_fine_where_it_never_leaves_the_machine(host: str) -> None:
    assert why_not_open(GrpcSettings(host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node.example", "localhost.example", "128.0.0.1"])
def test_plain_text_on_a_network_is_refused_unless_it_is_allowed(host: str) -> None:
    no = why_not_open(GrpcSettings(host=host))
    assert no is not None
    assert (no.rule, host in no.message) == ("SEC-001", True)
    assert why_not_open(GrpcSettings(host=host, allow_plain=True)) is None
    assert why_not_open(GrpcSettings(host=host, **FILES)) is None


@pytest.mark.parametrize(
    "told",
    [
        {"certificate": Path("server.pem")},
        {"key": Path("server.key")},
        {"client_ca": Path("ca.pem")},
        {"client_ca": Path("ca.pem"), "host": "0.0.0.0", "allow_plain": True},
    ],
)
def test_half_a_tls_setting_is_refused(told: dict[str, object]) -> None:
    no = why_not_open(GrpcSettings(**told))  # type: ignore[arg-type]
    assert no is not None
    assert no.rule == "SEC-001"


async def test_a_server_with_unsafe_settings_does_not_open() -> None:
    with pytest.raises(Unavailable, match=r"SEC-001: grpc\.host: 0\.0\.0\.0"):
        async with grpc_server(host="0.0.0.0"):
            pass


async def test_a_server_whose_key_others_can_read_does_not_open(tmp_path: Path) -> None:
    made = tls_folder(tmp_path)
    made.key.chmod(0o640)
    with pytest.raises(Unavailable, match=r"SEC-001: .*others may use it"):
        async with grpc_server(tls=made):
            pass
