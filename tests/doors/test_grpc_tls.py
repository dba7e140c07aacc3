"""TLS and mTLS at the gRPC door: who has no certificate of ours stays outside, nothing crosses a network readable."""

from __future__ import annotations

import socket
import ssl
import warnings
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from tests.doors.grpc_house import DAY_MS, NOW_MS, Channel, Echo, client_of, dialled, opened, say, tls_folder

from holdfast.adapters.keys.authority import Pair
from holdfast.adapters.keys.certificate import describe
from holdfast.core.refusal import Unavailable
from holdfast.doors.grpc.door import GrpcDoor
from holdfast.doors.grpc.identifying import PeerCertificate
from holdfast.doors.grpc.settings import GrpcSettings, why_not_open

pytestmark = pytest.mark.rule("SEC-001")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("ours")
    made = tls_folder(folder, "oak")
    client_of(folder, "late", NOW_MS - 10 * DAY_MS, days=2)
    return made


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return tls_folder(tmp_path_factory.mktemp("theirs"), "oak")


def pair_of(made: Pair, name: str) -> Pair:
    folder = made.authority.parent
    return Pair(folder / f"client-{name}.pem", folder / f"client-{name}.key", made.authority)


async def outside(channel: Channel) -> str:
    """A client that is not let in learns no more than that."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await say(channel, "let me in")
    return str(caught.value.code().name)


# ------------------------------------------------------------------------------------------------ TLS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_that_trusts_the_authority_is_served(ours: Pair, host: str) -> None:
    async with opened(tls=ours) as door, dialled(door, ours.authority, host=host) as channel:
        assert await say(channel, "x", "oak") == "(None, 'oak'): x"


async def test_a_client_that_trusts_another_authority_does_not_speak(ours: Pair, theirs: Pair) -> None:
    echo = Echo()
    async with opened(echo, tls=ours) as door, dialled(door, theirs.authority) as channel:
        assert await outside(channel) == "UNAVAILABLE"
    assert echo.heard == []


async def test_a_client_in_plain_text_is_not_served(ours: Pair) -> None:
    echo = Echo()
    async with opened(echo, tls=ours) as door, dialled(door) as channel:
        assert await outside(channel) == "UNAVAILABLE"
    assert echo.heard == []


async def test_old_versions_of_tls_are_not_spoken(ours: Pair) -> None:
    async with opened(tls=ours) as door:
        context = ssl.create_default_context(cafile=ours.authority)
        context.set_alpn_protocols(["h2"])
        assert _version(door, context) in ("TLSv1.2", "TLSv1.3")
        with warnings.catch_warnings(action="ignore"):  # that it is old is why it is tried
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError):
            _version(door, context)


def _version(door: GrpcDoor, context: ssl.SSLContext) -> str | None:
    with (
        socket.create_connection(("127.0.0.1", door.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        return wrapped.version()


# ------------------------------------------------------------------------------------------------ mTLS


async def test_a_client_with_a_certificate_of_ours_is_known_by_its_name(ours: Pair) -> None:
    shown = pair_of(ours, "oak")
    async with (
        opened(tls=ours, client_ca=ours.authority) as door,
        dialled(door, ours.authority, shown) as channel,
    ):
        assert await say(channel, "x", "hf") == "('oak', 'hf'): x"


@pytest.mark.parametrize("shown", ["none", "another authority's", "expired", "the server's own"])
async def test_without_a_valid_certificate_of_ours_nobody_gets_in(ours: Pair, theirs: Pair, shown: str) -> None:
    pairs = {
        "none": None,
        "another authority's": pair_of(theirs, "oak"),
        "expired": pair_of(ours, "late"),
        "the server's own": ours,
    }
    echo = Echo()
    async with (
        opened(echo, tls=ours, client_ca=ours.authority) as door,
        dialled(door, ours.authority, pairs[shown]) as channel,
    ):
        assert await outside(channel) == "UNAVAILABLE"
        async with dialled(door, ours.authority, pair_of(ours, "oak")) as good:
            assert await say(good, "x") == "('oak', None): x"
    assert echo.heard == ["x"]


async def test_who_identifies_is_given_exactly_the_certificate_that_was_shown(ours: Pair) -> None:
    seen: list[PeerCertificate | None] = []

    async def look(_: str | None, certificate: PeerCertificate | None) -> object:
        seen.append(certificate)
        return "somebody"

    shown = pair_of(ours, "oak")
    async with (
        opened(tls=ours, client_ca=ours.authority, identify=look) as door,
        dialled(door, ours.authority, shown) as channel,
    ):
        assert await say(channel, "x") == "somebody: x"
    pem = shown.certificate.read_bytes()
    assert seen == [PeerCertificate("oak", describe(pem).fingerprint, pem)]


# ------------------------------------------------------------------------------------------------ renewal


async def test_renewed_files_are_used_without_a_restart(tmp_path: Path, theirs: Pair) -> None:
    first = tls_folder(tmp_path)
    async with opened(tls=first) as door:
        old = _fingerprint(door)
        assert old == describe(first.certificate.read_bytes()).fingerprint
        first.certificate.rename(tmp_path / "old.pem")
        first.key.rename(tmp_path / "old.key")
        with capture_logs() as logs:
            assert _fingerprint(door) == old  # half replaced: the last good ones go on
        assert [line["event"] for line in logs] == ["the TLS files cannot be used"]
        second = tls_folder(tmp_path)
        new = describe(second.certificate.read_bytes()).fingerprint
        assert _fingerprint(door) == new != old
        async with dialled(door, second.authority) as channel:
            assert await say(channel, "x") == "(None, None): x"


def _fingerprint(door: GrpcDoor) -> str:
    return describe(ssl.get_server_certificate(("127.0.0.1", door.port), timeout=5).encode()).fingerprint


# ------------------------------------------------------------------------------------------------ what is not opened


FILES: dict[str, Any] = {"certificate": Path("server.pem"), "key": Path("server.key")}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_plain_text_is_fine_where_it_never_leaves_the_machine(host: str) -> None:
    assert why_not_open(GrpcSettings(host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node.example", "localhost.example", "128.0.0.1"])
def test_plain_text_on_a_network_is_refused_unless_it_is_said_twice(host: str) -> None:
    no = why_not_open(GrpcSettings(host=host))
    assert no is not None
    assert (no.rule, host in no.says) == ("SEC-001", True)
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


async def test_a_door_that_is_not_safe_does_not_open() -> None:
    with pytest.raises(Unavailable, match=r"SEC-001: grpc\.host: 0\.0\.0\.0"):
        async with opened(host="0.0.0.0"):
            pass


async def test_a_door_whose_key_others_can_read_does_not_open(tmp_path: Path) -> None:
    made = tls_folder(tmp_path)
    made.key.chmod(0o640)
    with pytest.raises(Unavailable, match=r"SEC-001: .*others may use it"):
        async with opened(tls=made):
            pass
