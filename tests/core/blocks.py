"""Sealing for the tests: a proposer whose signatures are made without a key."""

from __future__ import annotations

from hashlib import sha512

from holdfast.core.chain.acts import Seal

PROPOSER = bytes(range(32))


def sign(message: bytes) -> bytes:
    return sha512(b"signed" + message).digest()


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    return public == PROPOSER and signature == sign(message)


SEAL = Seal(PROPOSER, sign)
