"""A small certificate authority in a folder: it issues the certificates of a node and of its clients.

    ca.pem  ca.key          the authority, valid for ten years
    server.pem  server.key  the node, for the names under which it is reached
    client-oak.pem …        one per provider or operator (SEC-001)

Nothing is ever overwritten. To renew the server's certificate, move it and its key away and issue it again: the
authority stays, so clients need no new files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.adapters.keys.secret_file import exists, read_public, read_secret, write_new
from holdfast.core.base.errors import Refused, Unavailable

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
DAYS: Final = 397
AUTHORITY_DAYS: Final = 3_650
SKEW: Final = timedelta(hours=1)
"""Clocks differ: a new certificate is valid from a little before its creation."""
_HOST: Final = re.compile(r"(?:\*\.)?(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*")
_CLIENT: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_PUBLIC: Final = 0o644
_USES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class CertificateFiles(msgspec.Struct, frozen=True):
    """The paths of a certificate, its key and the authority's certificate."""

    certificate: Path
    key: Path
    ca_certificate: Path


class _Authority(msgspec.Struct, frozen=True):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_tls(
    folder: Path, now_ms: int, names: Sequence[str] = LOCAL_NAMES, days: int = DAYS
) -> CertificateFiles | Refused:
    """Issue the node's certificate for these host names and addresses; create the authority if there is none."""
    bad = [name for name in names if not (_is_address(name) or _HOST.fullmatch(name))]
    if bad or not names:
        return _invalid(f"names: not a host name or address: {', '.join(map(repr, bad))}" if bad else "names: none")
    return _issue(folder, "server", "server", [_alternative_name(name) for name in names], days, now_ms)


def make_client_certificate(folder: Path, name: str, now_ms: int, days: int = DAYS) -> CertificateFiles | Refused:
    """Issue a certificate that authenticates a client under this name."""
    if not _CLIENT.fullmatch(name):
        return _invalid(f"name: {name!r:.80} is not 1–63 of a-z 0-9 . -")
    if not exists(folder / "ca.pem"):
        return _invalid(f"{folder} has no authority", "create one first, with the node's own certificate")
    return _issue(folder, f"client-{name}", name, [], days, now_ms)


# ------------------------------------------------------------------------------------------------ signing


def _issue(
    folder: Path, stem: str, name: str, alternatives: list[x509.GeneralName], days: int, now_ms: int
) -> CertificateFiles | Refused:
    pair = CertificateFiles(folder / f"{stem}.pem", folder / f"{stem}.key", folder / "ca.pem")
    if not 1 <= days <= AUTHORITY_DAYS:
        return _invalid(f"days: {days} is not in 1 … {AUTHORITY_DAYS}")
    if existing := [path for path in (pair.certificate, pair.key) if exists(path)]:
        return _already_exists(existing[0])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    authority = _authority(folder, now)
    if isinstance(authority, Refused):
        return authority
    key = ec.generate_private_key(ec.SECP256R1())
    use = "server" if alternatives else "client"
    until = min(now + timedelta(days=days), authority.certificate.not_valid_after_utc)
    builder = _certificate(name, key, authority.certificate.subject, now, until)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([_USES[use]]), critical=False)
    builder = builder.add_extension(_authority_key_id(authority.key), critical=False)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _store(pair, key, builder.sign(authority.key, hashes.SHA256())) or pair


def _authority(folder: Path, now: datetime) -> _Authority | Refused:
    """The authority in the folder; a new one if the folder has neither of its files."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    existing = [path for path in (certificate, key) if exists(path)]
    if not existing:
        if refusal := _make_authority(certificate, key, now):
            return refusal
    elif len(existing) == 1:
        missing = key if existing[0] == certificate else certificate
        return _invalid(f"{existing[0]} exists without {missing.name}", "restore that file, or use another folder")
    authority = _read_authority(certificate, key)
    if authority is None:
        raise Unavailable("SEC-001", f"{folder} does not hold an authority of Holdfast", "use another folder")
    if now >= authority.certificate.not_valid_after_utc:
        return _invalid(f"the authority in {folder} has expired", "create a new one in another folder")
    return authority


def _read_authority(certificate: Path, key: Path) -> _Authority | None:
    try:
        issuer = x509.load_pem_x509_certificate(read_public(certificate))
        secret = serialization.load_pem_private_key(read_secret(key), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    is_pair = isinstance(secret, ec.EllipticCurvePrivateKey) and secret.public_key() == issuer.public_key()
    return _Authority(issuer, secret) if is_pair else None  # type: ignore[arg-type]


def _make_authority(certificate: Path, key: Path, now: datetime) -> Refused | None:
    secret = ec.generate_private_key(ec.SECP256R1())
    # The serial number distinguishes the authorities of several nodes.
    name = _common_name(f"Holdfast authority {x509.random_serial_number() >> 96:016x}")
    builder = _certificate("", secret, name, now, now + timedelta(days=AUTHORITY_DAYS)).subject_name(name)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_ca_key_usage(), critical=True)
    return _store(CertificateFiles(certificate, key, certificate), secret, builder.sign(secret, hashes.SHA256()))


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer_name=issuer, public_key=key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - SKEW).not_valid_after(until)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.subject_name(_common_name(name)) if name else builder


def _store(pair: CertificateFiles, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Refused | None:
    """The key first, so that a certificate that exists can be used."""
    format_ = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for path, raw, mode in (
        (pair.key, key.private_bytes(*format_), 0o600),
        (pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), _PUBLIC),
    ):
        if not write_new(path, raw, mode):
            return _already_exists(path)
    return None


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _authority_key_id(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _ca_key_usage() -> x509.KeyUsage:
    unused = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    return x509.KeyUsage(**unused, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _alternative_name(name: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(name)) if _is_address(name) else x509.DNSName(name)


def _already_exists(path: Path) -> Refused:
    return Refused("SEC-001", f"{path} already exists", "nothing is overwritten: move it away first")


def _invalid(message: str, hint: str = "") -> Refused:
    return Refused("SEC-001", message, hint, "InvalidParams")
