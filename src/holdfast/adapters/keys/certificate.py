"""Reads certificates, and loads and checks the files of a TLS server (SEC-001)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization

from holdfast.adapters.keys.secret_file import read_public, read_secret
from holdfast.core.base.errors import Refused, Unavailable


class Certificate(msgspec.Struct, frozen=True):
    """The fields of a certificate that are shown and checked."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """Host names and addresses it is valid for."""
    from_ms: int
    until_ms: int
    fingerprint: str
    """SHA-256 of the certificate, lower-case hex."""
    is_ca: bool


def describe(pem: bytes, where: str = "the certificate") -> Certificate:
    """The first certificate of a PEM file; Unavailable if there is none."""
    certificate = _chain(pem, where)[0]
    return Certificate(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=_names(certificate),
        from_ms=_ms(certificate.not_valid_before_utc),
        until_ms=_ms(certificate.not_valid_after_utc),
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        is_ca=_is_ca(certificate),
    )


def describe_file(path: Path) -> Certificate:
    return describe(read_public(path), str(path))


def why_not_valid(certificate: Certificate, now_ms: int) -> Refused | None:
    """Why the certificate is not valid now; at the last moment of its validity it still is."""
    if now_ms < certificate.from_ms:
        return Refused("SEC-001", f"{certificate.subject} is not valid yet", "check the clock")
    if now_ms > certificate.until_ms:
        return Refused("SEC-001", f"{certificate.subject} has expired", "renew it")
    return None


# ------------------------------------------------------------------------------------------------ for a server


class TlsMaterial(msgspec.Struct, frozen=True):
    """The certificate and key of a server, and the CA that signs for clients, as PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def __repr__(self) -> str:
        return "TlsMaterial(…)"


class TlsFiles:
    """The files of a TLS server. They may be replaced while it runs: `load` returns the current ones."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._loaded_stats: tuple[object, ...] = ()
        self._material: TlsMaterial | None = None

    def load(self) -> TlsMaterial:
        """The same object as long as no file has changed; Unavailable if they are unsafe or do not match."""
        stats = self._stat_files()
        if self._material is None or stats != self._loaded_stats:
            self._material = self._read()
            self._loaded_stats = stats  # a file that was replaced in between is read again the next time
        return self._material

    def _stat_files(self) -> tuple[object, ...]:
        paths = [path for path in (self._certificate, self._key, self._client_ca) if path is not None]
        try:
            stats = [path.stat() for path in paths]
        except OSError as fault:
            raise Unavailable("SEC-001", f"{fault.filename}: {fault.strerror}", "check the TLS settings") from fault
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in stats)

    def _read(self) -> TlsMaterial:
        certificate, key = read_public(self._certificate), read_secret(self._key)
        leaf = _chain(certificate, str(self._certificate))[0]
        if _public(leaf.public_key()) != _public_of_private(key, self._key):
            message = f"{self._key} is not the key of {self._certificate}"
            raise Unavailable("SEC-001", message, "replace a certificate together with its key")
        client_ca = None if self._client_ca is None else read_public(self._client_ca)
        if client_ca is not None and not all(_is_ca(each) for each in _chain(client_ca, str(self._client_ca))):
            raise Unavailable(
                "SEC-001", f"{self._client_ca} is not a CA certificate", "use the one that signs for clients"
            )
        return TlsMaterial(certificate, key, client_ca)


def _chain(pem: bytes, where: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise Unavailable("SEC-001", f"{where} is not a PEM certificate", "check the TLS settings") from None


def _public_of_private(pem: bytes, path: Path) -> bytes:
    try:
        return _public(serialization.load_pem_private_key(pem, password=None).public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Unavailable("SEC-001", f"{path} does not hold a key", "use a PEM file without a passphrase") from None


def _public(key: object) -> bytes:
    format_ = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_bytes(*format_)  # type: ignore[attr-defined, no-any-return]


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
