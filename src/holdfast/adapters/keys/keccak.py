"""Keccak-256 as Ethereum uses it: SHA-3 before its padding was changed, which `hashlib` does not have everywhere.

A library computes it where one is installed, as the extra `blobs` does. Without it only short messages are quick: a
few kilobytes take milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

from holdfast.core.archive.notice import ADDRESS_BYTES

RATE: Final = 136
DIGEST_BYTES: Final = 32
_MASK: Final = (1 << 64) - 1
_ROUNDS: Final = 24


LONG: Final = 4_096
"""Longer messages are hashed by the library; for short ones importing it would take longer."""
_MODULE: Final = "Crypto.Hash.keccak"


@lru_cache(maxsize=1_024)
def address_of(public: bytes) -> bytes:
    """The address of a public key, as notices name their signers (NTC-001)."""
    return keccak_256(public)[:ADDRESS_BYTES]


def keccak_256(message: bytes) -> bytes:
    hash_ = _library() if len(message) > LONG or _MODULE in sys.modules else None
    return (hash_ or keccak_in_python)(message)


@cache
def _library() -> Callable[[bytes], bytes] | None:
    try:
        from Crypto.Hash import keccak  # noqa: PLC0415
    except ImportError:
        return None
    return lambda message: keccak.new(digest_bits=8 * DIGEST_BYTES, data=message).digest()


def keccak_in_python(message: bytes) -> bytes:
    padded = bytearray(message) + b"\x01" + bytes(RATE - 1 - len(message) % RATE)
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for start in range(0, len(padded), RATE):
        for lane in range(RATE // 8):
            at = start + 8 * lane
            lanes[lane % 5][lane // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        lanes = _permute(lanes)
    return b"".join(lanes[lane % 5][lane // 5].to_bytes(8, "little") for lane in range(DIGEST_BYTES // 8))


def _permute(a: list[list[int]]) -> list[list[int]]:
    """Keccak-f[1600]; a[x][y] is a lane. Its constants come from the same small shift register as in FIPS 202."""
    register = 1
    for _ in range(_ROUNDS):
        parity = [a[x][0] ^ a[x][1] ^ a[x][2] ^ a[x][3] ^ a[x][4] for x in range(5)]
        mixed = [parity[(x + 4) % 5] ^ _rotate(parity[(x + 1) % 5], 1) for x in range(5)]
        a = [[a[x][y] ^ mixed[x] for y in range(5)] for x in range(5)]
        x, y, current = 1, 0, a[1][0]
        for step in range(_ROUNDS):
            x, y = y, (2 * x + 3 * y) % 5
            current, a[x][y] = a[x][y], _rotate(current, (step + 1) * (step + 2) // 2)
        a = [[a[x][y] ^ (~a[(x + 1) % 5][y] & a[(x + 2) % 5][y]) for y in range(5)] for x in range(5)]
        for bit in range(7):
            register = ((register << 1) ^ ((register >> 7) * 0x71)) % 256
            if register & 2:
                a[0][0] ^= 1 << ((1 << bit) - 1)
    return a


def _rotate(lane: int, count: int) -> int:
    count %= 64
    return ((lane << count) | (lane >> (64 - count))) & _MASK if count else lane
