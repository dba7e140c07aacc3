"""What a certificate says of itself, and what a TLS server needs, read from files and checked (SEC-001)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization

from holdfast.adapters.keys.secretfile import read_public, read_secret
from holdfast.core.refusal import Refused, Unavailable


class Certificate(msgspec.Struct, frozen=True):
    """For whom, by whom, from when until when."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """Host names and addresses it is good for."""
    from_ms: int
    until_ms: int
    fingerprint: str
    """SHA-256 of the certificate, lower-case hex."""
    is_authority: bool


def describe(pem: bytes, where: str = "the certificate") -> Certificate:
    """What the first certificate of a PEM file says; Unavailable where there is none."""
    found = _chain(pem, where)[0]
    return Certificate(
        subject=found.subject.rfc4514_string(),
        issuer=found.issuer.rfc4514_string(),
        names=_names(found),
        from_ms=_ms(found.not_valid_before_utc),
        until_ms=_ms(found.not_valid_after_utc),
        fingerprint=found.fingerprint(hashes.SHA256()).hex(),
        is_authority=_is_authority(found),
    )


def describe_file(path: Path) -> Certificate:
    return describe(read_public(path), str(path))


def why_not_valid(certificate: Certificate, now_ms: int) -> Refused | None:
    """The last moment of its validity is still good."""
    if now_ms < certificate.from_ms:
        return Refused("SEC-001", f"{certificate.subject} is not valid yet", "check the clock")
    if now_ms > certificate.until_ms:
        return Refused("SEC-001", f"{certificate.subject} has expired", "renew it")
    return None


# ------------------------------------------------------------------------------------------------ for a server


class Material(msgspec.Struct, frozen=True):
    """What a server shows and checks, as PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def __repr__(self) -> str:
        return "Material(…)"


class TlsFiles:
    """The files of a TLS server. They may be replaced while it runs: who loads again gets what is there now."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._seen: tuple[object, ...] = ()
        self._material: Material | None = None

    def load(self) -> Material:
        """The same object as long as no file has changed; Unavailable where they are unsafe or do not fit."""
        seen = self._look()
        if self._material is None or seen != self._seen:
            self._material = self._read()
            self._seen = seen  # what was replaced between looking and reading is read again the next time
        return self._material

    def _look(self) -> tuple[object, ...]:
        paths = [path for path in (self._certificate, self._key, self._client_ca) if path is not None]
        try:
            found = [path.stat() for path in paths]
        except OSError as fault:
            raise Unavailable("SEC-001", f"{fault.filename}: {fault.strerror}", "check the TLS settings") from fault
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def _read(self) -> Material:
        certificate, key = read_public(self._certificate), read_secret(self._key)
        leaf = _chain(certificate, str(self._certificate))[0]
        if _public(leaf.public_key()) != _public_of_secret(key, self._key):
            says = f"{self._key} is not the key of {self._certificate}"
            raise Unavailable("SEC-001", says, "a certificate and its key are replaced together")
        client_ca = None if self._client_ca is None else read_public(self._client_ca)
        if client_ca is not None and not all(_is_authority(each) for each in _chain(client_ca, str(self._client_ca))):
            raise Unavailable("SEC-001", f"{self._client_ca} is no authority", "name the file that signs for clients")
        return Material(certificate, key, client_ca)


def _chain(pem: bytes, where: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise Unavailable("SEC-001", f"{where} is no PEM certificate", "check the TLS settings") from None


def _public_of_secret(pem: bytes, path: Path) -> bytes:
    try:
        return _public(serialization.load_pem_private_key(pem, password=None).public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Unavailable("SEC-001", f"{path} holds no key", "a PEM file without a passphrase is expected") from None


def _public(key: object) -> bytes:
    format_ = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_bytes(*format_)  # type: ignore[attr-defined, no-any-return]


def _names(found: x509.Certificate) -> tuple[str, ...]:
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def _is_authority(found: x509.Certificate) -> bool:
    try:
        return bool(found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
