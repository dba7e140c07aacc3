"""A small certificate authority in a folder: makes the certificates with which a node and its clients know each other.

    ca.pem  ca.key          signs, lives long
    server.pem  server.key  the node, for the names under which it is reached
    client-oak.pem …        one provider or operator each (SEC-001)

Nothing is ever overwritten. To renew the server's certificate, move it and its key away and make it again: the
authority stays, so clients need nothing new.
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

from holdfast.adapters.keys.secretfile import exists, read_public, read_secret, write_new
from holdfast.core.refusal import Refused, Unavailable

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
DAYS: Final = 397
AUTHORITY_DAYS: Final = 3_650
SKEW: Final = timedelta(hours=1)
"""Clocks differ: a new certificate is valid a little before it was made."""
_HOST: Final = re.compile(r"(?:\*\.)?(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*")
_CLIENT: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_PUBLIC: Final = 0o644
_USES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class Pair(msgspec.Struct, frozen=True):
    """Where a certificate, its key and the authority's certificate are."""

    certificate: Path
    key: Path
    authority: Path


class _Authority(msgspec.Struct, frozen=True):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_tls(folder: Path, now_ms: int, names: Sequence[str] = LOCAL_NAMES, days: int = DAYS) -> Pair | Refused:
    """An authority, where there is none yet, and the node's certificate for these host names and addresses."""
    bad = [name for name in names if not (_is_address(name) or _HOST.fullmatch(name))]
    if bad or not names:
        return _invalid(f"names: not a host name or address: {', '.join(map(repr, bad))}" if bad else "names: none")
    return _issue(folder, "server", "server", [_alternative(name) for name in names], days, now_ms)


def make_client_certificate(folder: Path, name: str, now_ms: int, days: int = DAYS) -> Pair | Refused:
    """A certificate by which a client is known under this name."""
    if not _CLIENT.fullmatch(name):
        return _invalid(f"name: {name!r:.80} is not 1–63 of a-z 0-9 . -")
    if not exists(folder / "ca.pem"):
        return _invalid(f"{folder} has no authority", "make one first, with the node's own certificate")
    return _issue(folder, f"client-{name}", name, [], days, now_ms)


# ------------------------------------------------------------------------------------------------ signing


def _issue(
    folder: Path, stem: str, name: str, alternatives: list[x509.GeneralName], days: int, now_ms: int
) -> Pair | Refused:
    pair = Pair(folder / f"{stem}.pem", folder / f"{stem}.key", folder / "ca.pem")
    if not 1 <= days <= AUTHORITY_DAYS:
        return _invalid(f"days: {days} is not in 1 … {AUTHORITY_DAYS}")
    if taken := [path for path in (pair.certificate, pair.key) if exists(path)]:
        return _taken(taken[0])
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
    builder = builder.add_extension(_signed_by(authority.key), critical=False)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _store(pair, key, builder.sign(authority.key, hashes.SHA256())) or pair


def _authority(folder: Path, now: datetime) -> _Authority | Refused:
    """The one in the folder; a new one where there is nothing of it."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    there = [path for path in (certificate, key) if exists(path)]
    if not there:
        if no := _make_authority(certificate, key, now):
            return no
    elif len(there) == 1:
        return _invalid(f"{there[0]} is there without its other half", "restore that, or use another folder")
    found = _read_authority(certificate, key)
    if found is None:
        raise Unavailable("SEC-001", f"{folder} holds no authority of ours", "use another folder")
    if now >= found.certificate.not_valid_after_utc:
        return _invalid(f"the authority in {folder} has expired", "make a new one in another folder")
    return found


def _read_authority(certificate: Path, key: Path) -> _Authority | None:
    try:
        found = x509.load_pem_x509_certificate(read_public(certificate))
        secret = serialization.load_pem_private_key(read_secret(key), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    is_pair = isinstance(secret, ec.EllipticCurvePrivateKey) and secret.public_key() == found.public_key()
    return _Authority(found, secret) if is_pair else None  # type: ignore[arg-type]


def _make_authority(certificate: Path, key: Path, now: datetime) -> Refused | None:
    secret = ec.generate_private_key(ec.SECP256R1())
    # The serial number keeps authorities apart that were made for several nodes.
    name = _named(f"Holdfast authority {x509.random_serial_number() >> 96:016x}")
    builder = _certificate("", secret, name, now, now + timedelta(days=AUTHORITY_DAYS)).subject_name(name)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_only_signs(), critical=True)
    return _store(Pair(certificate, key, certificate), secret, builder.sign(secret, hashes.SHA256()))


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer_name=issuer, public_key=key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - SKEW).not_valid_after(until)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.subject_name(_named(name)) if name else builder


def _store(pair: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Refused | None:
    """The key first: a certificate that is there can be used."""
    format_ = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for path, raw, mode in (
        (pair.key, key.private_bytes(*format_), 0o600),
        (pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), _PUBLIC),
    ):
        if not write_new(path, raw, mode):
            return _taken(path)
    return None


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed_by(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _only_signs() -> x509.KeyUsage:
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


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(name)) if _is_address(name) else x509.DNSName(name)


def _taken(path: Path) -> Refused:
    return Refused("SEC-001", f"{path} is there already", "nothing is overwritten: move it away first")


def _invalid(says: str, hint: str = "") -> Refused:
    return Refused("SEC-001", says, hint, "InvalidParams")
