"""The rules read a second time, naively, with nothing but hashlib: what the real code is compared with.

Written from the specification, not from the code; it imports nothing of Holdfast. `python -m tests.core.naive
tests/vectors/compute.json` fills in the outputs of the vectors whose inputs stand there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.core.match import naive_match
from tests.wire import naive_ans104

N = 10**9

# ------------------------------------------------------------------------------------------------ CAN-001, CAN-002


def h(tag: str, *fields: bytes | int) -> bytes:
    hashed = hashlib.sha3_256()
    for field in (tag.encode(), *fields):
        raw = field.to_bytes(8, "big") if isinstance(field, int) else field
        hashed.update(len(raw).to_bytes(4, "big"))
        hashed.update(raw)
    return hashed.digest()


def cbor(value: Any) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -value - 1)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(cbor(item) for item in value)
    if isinstance(value, dict):
        pairs = sorted((cbor(key), cbor(item)) for key, item in value.items())
        return head(5, len(value)) + b"".join(key + item for key, item in pairs)
    raise TypeError(value)


def head(major: int, n: int) -> bytes:
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if n < 24:
            return bytes([major * 32 + n])
        if n < 256**size:
            return bytes([major * 32 + info]) + n.to_bytes(size, "big")
    raise ValueError(n)


# ------------------------------------------------------------------------------------------------ formulas


def words(seed: bytes) -> Iterator[int]:
    counter = 0
    while True:
        block = h("AICF|match", seed, counter)
        for at in (0, 8, 16, 24):
            yield int.from_bytes(block[at : at + 8], "big")
        counter += 1


def draw(n: int, stream: Iterator[int]) -> int:
    while True:
        word = next(stream)
        if word < 2**64 - (2**64 % n):
            return word % n


def shuffle(providers: list[bytes], stream: Iterator[int]) -> list[bytes]:
    order = sorted(providers)
    for i in range(len(order) - 1, 0, -1):
        j = draw(i + 1, stream)
        order[i], order[j] = order[j], order[i]
    return order


def priority(max_fee: int, size_bytes: int, tier: str, enqueue_ts_ms: int, policy: dict[str, int]) -> int:
    p = {"w_fee": 550, "w_age": 250, "w_size": 100, "w_tier": 100}
    p |= {"fee_ref": 1_000_000, "age_ref_ms": 3_600_000, "size_ref": 65_536}
    p |= policy
    fee = min(max_fee, p["fee_ref"]) * N // p["fee_ref"]
    size = p["size_ref"] * N // (p["size_ref"] + size_bytes)
    points = {"FREE": 0, "PRO": 300_000_000, "PREMIUM": 600_000_000}[tier]
    born = enqueue_ts_ms * N // p["age_ref_ms"]
    return p["w_fee"] * fee + p["w_size"] * size + p["w_tier"] * points - p["w_age"] * born


def backoff(kind: str, failure: int, u: int) -> int:
    d = {"AI": 5_000, "QUANTUM": 2_000, "COMPUTE": 5_000}[kind]
    for _ in range(min(failure, 100)):  # a hundred doublings are beyond any cap
        d *= 2
    d = min(900_000, d)
    return d + (d * ((2 * u + 1) - 2**64)) // (10 * 2**64)


def jitter(job_id: bytes, failure: int) -> int:
    return int.from_bytes(h("AICF|retry", job_id, failure)[:8], "big")


def nmt(leaves: list[tuple[bytes, bytes]]) -> bytes:
    """The root of the namespaced tree over (namespace, data), by the split of the specification."""
    if len(leaves) == 1:
        ((ns, data),) = leaves
        return ns + ns + hashlib.sha256(b"\0" + ns + data).digest()
    size, k = len(leaves[0][0]), split(len(leaves))
    left, right = nmt(leaves[:k]), nmt(leaves[k:])
    lowest = min(left[:size], right[:size])
    highest = max(left[size : 2 * size], right[size : 2 * size])
    return lowest + highest + hashlib.sha256(b"\1" + left + right).digest()


def da_commitment(namespace: bytes, raw: bytes) -> tuple[bytes, bytes]:
    padded = raw + bytes(-len(raw) % 512)
    root = nmt([(namespace, padded[at : at + 512]) for at in range(0, len(padded), 512)])
    return h("holdfast.da.v1", namespace, root, 512, len(raw)), root


X = bytes.fromhex


def notice_root(version: int, fields: dict[str, Any]) -> bytes:
    """proto3 by hand: (field, its bytes with their key), in the order of the numbers."""

    def varint(n: int) -> bytes:
        return bytes([n]) if n < 128 else bytes([n % 128 + 128]) + varint(n // 128)

    def number(key: int, n: int) -> bytes:
        return varint(key * 8) + varint(n if n >= 0 else n + 2**64) if n else b""

    def string(key: int, raw: bytes) -> bytes:
        return varint(key * 8 + 2) + varint(len(raw)) + raw if raw else b""

    f = fields
    body = number(1, f["height"]) + number(2, f["round"]) + number(3, f["blob_index"])
    body += string(4, X(f["kzg_commitment"])) + string(5, X(f["blob_keccak"]))
    body += string(6, f["provider_id"].encode()) + string(7, f["locator"].encode())
    body += string(8, string(1, X(f["archived_by"]))) + number(9, f["archived_at"])
    if version:
        body += number(10, f["chain_id"]) + string(11, X(f["versioned_hash"]))
    return hashlib.sha256(b"ArchiveNoticeV%d" % version + body).digest()


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "task-id": lambda chain_id, height, tx_hash, caller, payload: {
        "task_id": h("animica.cap.task_id.v1", chain_id, height, X(tx_hash), X(caller), cbor(payload)).hex()
    },
    "seed": lambda chain_id, epoch_id, block_height, beacon: {
        "seed": h("AICF|match", chain_id, epoch_id, block_height, X(beacon)).hex()
    },
    "shuffle": lambda seed, providers: {
        "order": [one.hex() for one in shuffle([X(one) for one in providers], words(X(seed)))]
    },
    "lease-id": lambda job_id, provider_id, attempt, seed: {
        "lease_id": h("AICF|lease", X(job_id), X(provider_id), attempt, X(seed)).hex()
    },
    "priority": lambda max_fee, size_bytes, tier, enqueue_ts_ms, policy=None: {
        "key": priority(max_fee, size_bytes, tier, enqueue_ts_ms, policy or {})
    },
    "backoff": lambda kind, job_id, failure: {"delay_ms": backoff(kind, failure, jitter(X(job_id), failure))},
    "match": lambda **world: dict(naive_match.answer(**world)),
    "result-digest": lambda bytes: {"result_digest": h("animica.cap.result.v1", X(bytes)).hex()},
    "nullifier": lambda type, window, body: {
        "nullifier": h("animica.proof.nullifier.v1", type, window, cbor(body)).hex()
    },
    "da-commitment": lambda namespace, bytes: dict(
        zip(("da_commitment", "root"), (one.hex() for one in da_commitment(X(namespace), X(bytes))), strict=True)
    ),
    "notice-root": lambda version, **fields: {"root": notice_root(version, fields).hex()},
    "dataitem-id": lambda seed, tags, bytes: naive_ans104.answer(X(seed), tags, X(bytes)),
}
"""What `holdfast compute NAME` must print for the fields it reads."""

# ------------------------------------------------------------------------------------------------ RFC 6962 §2.1


def merkle_root(leaves: list[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = split(len(leaves))
    return hashlib.sha256(b"\1" + merkle_root(leaves[:k]) + merkle_root(leaves[k:])).digest()


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def sibling_sides(index: int, size: int) -> str:
    """On which side the siblings lie, from the leaf upwards: the shape that a proof can show."""
    if size == 1:
        return ""
    k = split(size)
    return sibling_sides(index, k) + "R" if index < k else sibling_sides(index - k, size - k) + "L"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    vectors = json.loads(page.read_text("utf-8"))
    for vector in vectors:
        vector["output"] = ANSWERS[vector["name"]](**vector["input"])
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors)
    page.write_text(f"[\n{lines}\n]\n", "utf-8")
