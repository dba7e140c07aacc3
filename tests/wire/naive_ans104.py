"""ANS-104 and Ed25519 (RFC 8032) read a second time, naively: slow, and with nothing but hashlib."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
Point = tuple[int, int]


def add(a: Point, b: Point) -> Point:
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, P - 2, P)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, P - 2, P)
    return x % P, y % P


def times(number: int, point: Point) -> Point:
    total = (0, 1)
    while number:
        if number & 1:
            total = add(total, point)
        point, number = add(point, point), number >> 1
    return total


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE: Point = (15112221349535400772501151409588531511454012693041857206046113283949847762202, BASE_Y)


def packed(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def sign(seed: bytes, message: bytes) -> tuple[bytes, bytes]:
    """Public key and signature."""
    hashed = hashlib.sha512(seed).digest()
    secret = int.from_bytes(hashed[:32], "little") & ((1 << 254) - 8) | 1 << 254
    public = packed(times(secret, BASE))
    nonce = int.from_bytes(hashlib.sha512(hashed[32:] + message).digest(), "little") % L
    r = packed(times(nonce, BASE))
    challenge = int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % L
    return public, r + ((nonce + challenge * secret) % L).to_bytes(32, "little")


def deep(value: bytes | list[bytes]) -> bytes:
    if isinstance(value, bytes):
        return h(h(b"blob" + str(len(value)).encode()) + h(value))
    total = h(b"list" + str(len(value)).encode())
    for child in value:
        total = h(total + deep(child))
    return total


def h(raw: bytes) -> bytes:
    return hashlib.sha384(raw).digest()


def varint(number: int) -> bytes:
    rest = number * 2
    return bytes([rest]) if rest < 128 else bytes([rest % 128 + 128]) + bytes([rest // 128])


def avro(tags: list[list[str]]) -> bytes:
    texts = [text.encode() for pair in tags for text in pair]
    body = b"".join(varint(len(text)) + text for text in texts)
    return varint(len(tags)) + body + b"\0" if tags else b""


def answer(seed: bytes, tags: list[list[str]], data: bytes) -> dict[str, Any]:
    public, raw = sign(seed, b"")[0], avro(tags)
    message = deep([b"dataitem", b"1", b"2", public, b"", b"", raw, data])
    _, signature = sign(seed, message)
    item = b"\2\0" + signature + public + b"\0\0"
    item += len(tags).to_bytes(8, "little") + len(raw).to_bytes(8, "little") + raw + data
    id_ = base64.urlsafe_b64encode(hashlib.sha256(signature).digest()).decode().rstrip("=")
    return {"id": id_, "owner": public.hex(), "length": len(item)}
