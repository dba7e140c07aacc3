"""Ed25519 signing keys: created once, stored in a private file, and never shown (SEC-001)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from holdfast.adapters.keys.secret_file import exists, read_secret, write_new
from holdfast.core.base.errors import Unavailable


class SigningKey:
    """A private key that signs. It shows only its public key, and it cannot be pickled."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        """32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """64 bytes, the same for the same message."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key stays in its process")

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """The key of a 32-byte seed."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """The key in a PEM file (PKCS#8, not encrypted); Unavailable if the file is unsafe or holds something else."""
        raw = read_secret(path)
        try:
            key = serialization.load_pem_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            # Without the cause: a parser's message may quote the secret.
            raise Unavailable("SEC-001", f"{path} does not hold an Ed25519 key", "use a PEM file without a passphrase")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> SigningKey:
        """The key in the file; if there is none, a new one that is durable before it is used."""
        if not exists(path):
            write_new(path, cls.generate()._pem())  # if another process was faster, its key counts
        return cls.load(path)

    def _pem(self) -> bytes:
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is that of this message and key; malformed keys and signatures are invalid."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def verify_all(signed: Iterable[tuple[bytes, bytes, bytes]]) -> list[bool]:
    """Of each key, message and signature, whether it is good: one call for many, in a process of their own."""
    return [verify(*each) for each in signed]
