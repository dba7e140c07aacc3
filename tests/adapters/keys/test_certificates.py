"""A folder's certificate authority, the certificates it issues, how they are described, and a TLS server's files."""

from __future__ import annotations

import hashlib
import os
import ssl
import stat
from pathlib import Path

import pytest

from holdfast.adapters.keys.authority import LOCAL_NAMES, CertificateFiles, make_client_certificate, make_tls
from holdfast.adapters.keys.certificate import TlsFiles, describe, describe_file, why_not_valid
from holdfast.core.base.errors import Refused, Unavailable

pytestmark = pytest.mark.rule("SEC-001")
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def made(outcome: CertificateFiles | Refused) -> CertificateFiles:
    assert isinstance(outcome, CertificateFiles), outcome
    return outcome


def no(outcome: CertificateFiles | Refused) -> Refused:
    assert isinstance(outcome, Refused)
    assert outcome.rule == "SEC-001"
    return outcome


@pytest.fixture
def pair(tmp_path: Path) -> CertificateFiles:
    return made(make_tls(tmp_path / "tls", NOW_MS))


# ------------------------------------------------------------------------------------------------ making


def test_keys_are_for_their_user_alone_and_nothing_else_is_left_behind(pair: CertificateFiles) -> None:
    made(make_client_certificate(pair.key.parent, "oak", NOW_MS))
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in pair.key.parent.iterdir()}
    stems = ("ca", "server", "client-oak")
    assert modes == {f"{stem}.key": 0o600 for stem in stems} | {f"{stem}.pem": 0o644 for stem in stems}


def test_a_certificate_says_for_whom_by_whom_and_until_when(pair: CertificateFiles) -> None:
    server, authority = describe_file(pair.certificate), describe_file(pair.ca_certificate)
    assert server.names == LOCAL_NAMES
    assert (server.subject, server.issuer) == ("CN=server", authority.subject)
    assert (server.from_ms, server.until_ms) == (NOW_MS - HOUR_MS, NOW_MS + 397 * DAY_MS)
    assert (server.is_ca, authority.is_ca) == (False, True)
    der = ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
    assert server.fingerprint == hashlib.sha256(der).hexdigest()


def test_names_and_days_are_what_was_asked_for(tmp_path: Path) -> None:
    found = describe_file(made(make_tls(tmp_path, NOW_MS, ["node.example", "*.example", "10.0.0.7"], 1)).certificate)
    assert found.names == ("node.example", "*.example", "10.0.0.7")
    assert found.until_ms == NOW_MS + DAY_MS


def test_a_certificate_is_valid_up_to_and_including_its_last_moment(pair: CertificateFiles) -> None:
    found = describe_file(pair.certificate)
    assert why_not_valid(found, found.from_ms) is None
    assert why_not_valid(found, found.until_ms) is None
    for moment, says in ((found.from_ms - 1, "not valid yet"), (found.until_ms + 1, "has expired")):
        why = why_not_valid(found, moment)
        assert why is not None
        assert says in why.message


def test_nothing_is_overwritten(pair: CertificateFiles) -> None:
    folder = pair.key.parent
    made(make_client_certificate(folder, "oak", NOW_MS))
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    assert "already exists" in no(make_tls(folder, NOW_MS)).message
    assert "already exists" in no(make_client_certificate(folder, "oak", NOW_MS)).message
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before


@pytest.mark.parametrize("gone", ["server.pem", "server.key"])
def test_half_a_pair_is_not_completed_behind_the_operators_back(pair: CertificateFiles, gone: str) -> None:
    (pair.key.parent / gone).unlink()
    assert "already exists" in no(make_tls(pair.key.parent, NOW_MS)).message


def test_a_name_that_a_dead_link_has_is_taken_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "server.pem").symlink_to("gone")
    assert "already exists" in no(make_tls(tmp_path, NOW_MS)).message
    assert [entry.name for entry in tmp_path.iterdir()] == ["server.pem"]


def test_a_server_certificate_is_renewed_by_the_same_authority(pair: CertificateFiles) -> None:
    authority, old = pair.ca_certificate.read_bytes(), describe_file(pair.certificate)
    pair.certificate.unlink()
    pair.key.unlink()
    renewed = describe_file(made(make_tls(pair.key.parent, NOW_MS + DAY_MS)).certificate)
    assert pair.ca_certificate.read_bytes() == authority
    assert (renewed.issuer, renewed.fingerprint == old.fingerprint) == (old.issuer, False)


@pytest.mark.parametrize("gone", ["ca.pem", "ca.key"])
def test_half_an_authority_signs_nothing_and_is_not_replaced(pair: CertificateFiles, gone: str) -> None:
    folder = pair.key.parent
    (folder / gone).unlink()
    for stem in ("server.pem", "server.key"):
        (folder / stem).unlink()
    no(make_tls(folder, NOW_MS))
    no(make_client_certificate(folder, "oak", NOW_MS))
    assert len(list(folder.iterdir())) == 1


def test_an_authority_signs_for_no_longer_than_it_lives(pair: CertificateFiles) -> None:
    folder, until_ms = pair.key.parent, describe_file(pair.ca_certificate).until_ms
    late = made(make_client_certificate(folder, "late", until_ms - DAY_MS, days=30))
    assert describe_file(late.certificate).until_ms == until_ms
    assert "has expired" in no(make_client_certificate(folder, "later", until_ms)).message


def test_an_authority_whose_key_others_can_read_signs_nothing(pair: CertificateFiles) -> None:
    (pair.key.parent / "ca.key").chmod(0o644)
    with pytest.raises(Unavailable, match=r"SEC-001: .*others may use it"):
        make_client_certificate(pair.key.parent, "oak", NOW_MS)


def test_a_key_that_is_not_the_authoritys_signs_nothing(pair: CertificateFiles) -> None:
    (pair.key.parent / "ca.key").write_bytes(pair.key.read_bytes())
    with pytest.raises(Unavailable, match=r"SEC-001: .*does not hold an authority of Holdfast"):
        make_client_certificate(pair.key.parent, "oak", NOW_MS)


@pytest.mark.parametrize("names", [[], [""], ["a b"], ["ok", "-x"], ["x" * 64], ["a..b"], ["http://x"], ["x\n"]])
def test_a_name_that_is_none_is_refused_and_nothing_is_made(tmp_path: Path, names: list[str]) -> None:
    assert no(make_tls(tmp_path, NOW_MS, names)).message.startswith("names:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../oak", "Oak", "oak/x", ".oak", "x" * 64, "oak\n"])
def test_a_client_name_that_could_be_a_path_is_refused(pair: CertificateFiles, name: str) -> None:
    before = sorted(pair.key.parent.iterdir())
    assert no(make_client_certificate(pair.key.parent, name, NOW_MS)).message.startswith("name:")
    assert sorted(pair.key.parent.iterdir()) == before


def test_a_client_needs_an_authority_that_is_there(tmp_path: Path) -> None:
    assert "no authority" in no(make_client_certificate(tmp_path, "oak", NOW_MS)).message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("days", "is_good"), [(0, False), (1, True), (3_650, True), (3_651, False)])
def test_days_have_a_limit(tmp_path: Path, days: int, is_good: bool) -> None:
    assert isinstance(make_tls(tmp_path, NOW_MS, days=days), CertificateFiles) is is_good
    assert bool(list(tmp_path.iterdir())) is is_good


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("raw", [b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x.pem"
    path.write_bytes(raw)
    with pytest.raises(Unavailable, match=r"SEC-001: .*is not a PEM certificate"):
        describe_file(path)
    with pytest.raises(Unavailable, match=r"SEC-001: .*cannot be read"):
        describe_file(tmp_path / "none.pem")


def test_files_are_read_again_only_when_one_has_changed(pair: CertificateFiles) -> None:
    files = TlsFiles(pair.certificate, pair.key, pair.ca_certificate)
    first = files.load()
    assert files.load() is first
    assert (first.certificate, first.client_ca) == (pair.certificate.read_bytes(), pair.ca_certificate.read_bytes())
    stamp = pair.certificate.stat()
    os.utime(pair.certificate, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    assert files.load() is not first


def test_the_material_of_a_server_does_not_show_its_key(pair: CertificateFiles) -> None:
    material = TlsFiles(pair.certificate, pair.key).load()
    assert repr(material) == "TlsMaterial(…)"
    assert material.client_ca is None


def test_files_that_do_not_fit_are_refused(pair: CertificateFiles, tmp_path: Path) -> None:
    other = made(make_tls(tmp_path / "other", NOW_MS))
    cases = {
        "is not the key of": TlsFiles(pair.certificate, other.key),
        "is not a PEM certificate": TlsFiles(pair.key, pair.key),
        "is not a CA certificate": TlsFiles(pair.certificate, pair.key, pair.certificate),
        "No such file": TlsFiles(pair.certificate, tmp_path / "none.key"),
    }
    for says, files in cases.items():
        with pytest.raises(Unavailable, match=f"SEC-001: .*{says}"):
            files.load()


def test_a_key_that_cannot_be_read_is_refused_without_telling_what_is_in_it(pair: CertificateFiles) -> None:
    pair.key.write_bytes(b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
    with pytest.raises(Unavailable, match=r"SEC-001: .*does not hold a key") as caught:
        TlsFiles(pair.certificate, pair.key).load()
    assert "c2VjcmV0" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_first_certificate_of_a_chain_is_described(pair: CertificateFiles) -> None:
    chain = pair.certificate.read_bytes() + pair.ca_certificate.read_bytes()
    assert describe(chain) == describe_file(pair.certificate)
