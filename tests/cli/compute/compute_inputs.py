"""What the tests of `holdfast compute` share: a good input for every name, and how to ask and to read complaints."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from holdfast.cli import app

JOB: dict[str, Any] = {
    "job_id": "01",
    "kind": "AI",
    "max_fee": 10,
    "size_bytes": 5,
    "tier": "FREE",
    "enqueue_ts_ms": 1_000,
    "units": 1,
    "requirements": {"model": "oak"},
}
PROVIDER: dict[str, Any] = {
    "provider_id": "02",
    "status": "ACTIVE",
    "health_ppm": 1_000_000,
    "stake": 10_000,
    "region": "eu",
    "capabilities": {"AI": {"models": ["oak"]}},
    "leases_active": 0,
    "leases_max": 1,
    "units_used": {},
    "units_max": {"AI": 1},
}

GOOD: dict[str, dict[str, Any]] = {
    "task-id": {"chain_id": 1, "height": 2, "tx_hash": "00", "caller": "aa", "payload": {"a": 1}},
    "seed": {"chain_id": 1, "epoch_id": 2, "block_height": 3, "beacon": "00"},
    "shuffle": {"seed": "00", "providers": ["aa", "bb", "cc"]},
    "lease-id": {"job_id": "00", "provider_id": "01", "attempt": 0, "seed": "02"},
    "priority": {"max_fee": 1, "size_bytes": 2, "tier": "PRO", "enqueue_ts_ms": 3},
    "backoff": {"kind": "AI", "job_id": "00", "failure": 0},
    "match": {
        "seed": "00",
        "counter": 0,
        "policy": {"order": "shuffle", "interleave_every": 20},
        "jobs": [JOB],
        "providers": [PROVIDER],
    },
    "result-digest": {"bytes": "00"},
    "nullifier": {"type": 1, "window": 0, "body": {"a": 1}},
    "da-commitment": {"namespace": "0001020304050607", "bytes": "00"},
    "notice-root": {
        "version": 1,
        "height": 7,
        "round": 0,
        "blob_index": 0,
        "kzg_commitment": "01" * 48,
        "blob_keccak": "02" * 32,
        "provider_id": "file",
        "locator": "file:store/items/a",
        "archived_by": "03" * 20,
        "archived_at": 1_700_000_000,
        "chain_id": 1_337,
        "versioned_hash": "04" * 32,
    },
    "dataitem-id": {"seed": "07" * 32, "tags": [["a", "b"]], "bytes": "00"},
}


def compute(name: str, text: str | bytes) -> tuple[int, str, str]:
    answer = CliRunner().invoke(app, ["compute", name], input=text)
    return answer.exit_code, answer.stdout, answer.stderr


def faults(name: str, text: str | bytes) -> list[str]:
    """The complaints, one per line, without what every line begins with."""
    code, out, err = compute(name, text)
    assert (code, out) == (2, "")
    start = f"holdfast compute {name}: CMP-001: "
    assert all(line.startswith(start) for line in err.splitlines())
    return [line.removeprefix(start) for line in err.splitlines()]


def without_hint(complaints: list[str]) -> list[str]:
    return [complaint.partition(" (")[0] for complaint in complaints]


def spelt(name: str, field: str, spelling: str) -> str:
    """A good object in which one field is spelt by hand."""
    rest = {key: value for key, value in GOOD[name].items() if key != field}
    return json.dumps(rest)[:-1] + (", " if rest else "") + f'"{field}": {spelling}}}'
