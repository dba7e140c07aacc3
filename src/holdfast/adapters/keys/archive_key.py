"""The key of the network's archive (BLB-003): private bytes leave the node only encrypted with it.

ChaCha20-Poly1305 in chunks of 64 KiB. The nonce is the number of the chunk, and the associated data says whether it is
the last one: no chunk can be moved, repeated or left out. Every result has a key of its own, derived from it:
the same bytes of the same task encrypt to the same blobs again.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from holdfast.adapters.keys.secret_file import exists, read_secret, write_new
from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest, TaskId

KEY_BYTES: Final = 32
CHUNK_BYTES: Final = 65_536
TAG_BYTES: Final = 16
INFO: Final = b"holdfast.archive.v1"
KEY_ID_TAG: Final = "holdfast.archive.key.v1"
_NOT_LAST, _LAST = b"\0", b"\1"


class ArchiveKey:
    """Encrypts and decrypts the bytes of results. It shows its id alone, and it cannot be pickled."""

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.id = int.from_bytes(H(KEY_ID_TAG, secret)[:4], "big")
        """Stands in the frame of what it has encrypted."""

    @classmethod
    def load_or_create(cls, path: Path) -> ArchiveKey:
        """The key in the file; if there is none, a new one that is durable before it is used."""
        if not exists(path):
            write_new(path, secrets.token_bytes(KEY_BYTES).hex().encode() + b"\n")
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> ArchiveKey:
        try:
            secret = bytes.fromhex(read_secret(path).decode("ascii").strip())
        except ValueError:
            secret = b""
        if len(secret) != KEY_BYTES:
            raise Unavailable("SEC-001", f"{path} does not hold an archive key", "32 bytes in hexadecimal")
        return cls(secret)

    def key_of(self, task_id: TaskId, digest: Digest) -> bytes:
        """The key of one result: for whoever may read its output."""
        return HKDF(SHA256(), KEY_BYTES, salt=task_id + digest, info=INFO).derive(self._secret)

    def encrypted_size(self, size: int) -> int:
        return size + TAG_BYTES * max(1, -(-size // CHUNK_BYTES))

    def encrypt(self, task_id: TaskId, digest: Digest, raw: bytes) -> bytes:
        cipher = ChaCha20Poly1305(self.key_of(task_id, digest))
        starts = range(0, len(raw), CHUNK_BYTES) or range(1)
        return b"".join(
            cipher.encrypt(_nonce(number), raw[start : start + CHUNK_BYTES], _flag(start + CHUNK_BYTES >= len(raw)))
            for number, start in enumerate(starts)
        )

    def decrypt(self, task_id: TaskId, digest: Digest, raw: bytes) -> bytes:
        return decrypt_with(self.key_of(task_id, digest), raw)

    def decryptor(self, task_id: TaskId, digest: Digest) -> ResultDecryptor:
        return ResultDecryptor(self.key_of(task_id, digest))

    def __repr__(self) -> str:
        return f"ArchiveKey(id={self.id:08x})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an archive key stays in its process")


class ResultDecryptor:
    """Decrypts the bytes of one result part by part, with the key of that result alone (`ArchiveKey.key_of`)."""

    def __init__(self, key: bytes) -> None:
        self._cipher, self._rest, self._number = ChaCha20Poly1305(key), bytearray(), 0

    def feed(self, raw: bytes) -> bytes:
        """What is whole by now. The last chunk is known by the end alone: one stays here."""
        step, plain = CHUNK_BYTES + TAG_BYTES, bytearray()
        self._rest += raw
        while len(self._rest) > step:
            plain += self._decrypt(bytes(self._rest[:step]), is_last=False)
            del self._rest[:step]
        return bytes(plain)

    def finish(self) -> bytes:
        return self._decrypt(bytes(self._rest), is_last=True)

    def _decrypt(self, chunk: bytes, *, is_last: bool) -> bytes:
        try:
            plain = self._cipher.decrypt(_nonce(self._number), chunk, _flag(is_last))
        except InvalidTag:
            raise Corrupt("BLB-003", "the encrypted bytes were changed, or the key is another one") from None
        self._number += 1
        return plain


def decrypt_with(key: bytes, raw: bytes) -> bytes:
    """The bytes of one result; Corrupt where any bit of them was changed."""
    decryptor = ResultDecryptor(key)
    return decryptor.feed(raw) + decryptor.finish()


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _flag(is_last: bool) -> bytes:
    return _LAST if is_last else _NOT_LAST


# ------------------------------------------------------------------------------------------------ the copy elsewhere


def export_key(path: Path, target: Path) -> ArchiveKey:
    """Copy the key to a new file, read the copy, and only then note that somebody else can decrypt (BLB-003)."""
    key = ArchiveKey.load(path)
    if not write_new(target, read_secret(path)):
        raise Unavailable("BLB-003", f"{target} exists", "name a new file")
    if ArchiveKey.load(target).id != key.id:
        raise Unavailable("BLB-003", f"{target} does not hold the key", "check the disk")
    write_new(_kept(path, key), b"")
    return key


def is_key_kept(path: Path, key: ArchiveKey) -> bool:
    """Whether this key was exported once."""
    return _kept(path, key).exists()


def _kept(path: Path, key: ArchiveKey) -> Path:
    return path.with_name(f"{path.name}.{key.id:08x}.exported")
