"""The node's Ed25519 key: made once, kept in a file for its user alone, used to sign, and never shown (SEC-001)."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from holdfast.adapters.keys.secretfile import exists, read_secret, write_new
from holdfast.core.refusal import Unavailable


class SigningKey:
    """A private key that signs. Nothing of it but the public half can be printed, compared or pickled."""

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
        """The key that 32 bytes stand for."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """The key in a PEM file (PKCS#8, not encrypted); Unavailable where it is unsafe or is none."""
        raw = read_secret(path)
        try:
            key = serialization.load_pem_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            # Without the cause: what a parser says about a secret is not for logs.
            raise Unavailable("SEC-001", f"{path} holds no Ed25519 key", "a PEM file without a passphrase is expected")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> SigningKey:
        """The key in the file, made and durable before it is used where there is none yet."""
        if not exists(path):
            write_new(path, cls.generate()._pem())  # where another process was faster, its key counts
        return cls.load(path)

    def _pem(self) -> bytes:
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Did the holder of this public key sign exactly this message? Malformed keys and signatures never did."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
