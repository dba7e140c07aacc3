"""The simple baseline: jobs, leases, events and money as rows, moved by SQL that promises nothing beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.queue.baselines.contract import FEE, SPEC, T_MS, WAITS_MS, now_ms

SCHEMA: Final = """
CREATE TABLE account (owner TEXT PRIMARY KEY, available {int} NOT NULL, held {int} NOT NULL, pending {int} NOT NULL);
CREATE TABLE job (id {bytes} PRIMARY KEY, kind TEXT NOT NULL, caller TEXT NOT NULL, state TEXT NOT NULL,
    priority {int} NOT NULL, enqueue_ms {int} NOT NULL, expires_ms {int} NOT NULL, max_fee {int} NOT NULL,
    attempts {int} NOT NULL, spec {bytes} NOT NULL, digest {bytes}, charged {int}, ended_ms {int});
CREATE INDEX job_in_order ON job (priority DESC, enqueue_ms, id) WHERE state = 'QUEUED';
CREATE TABLE lease (id {bytes} PRIMARY KEY, job {bytes} NOT NULL, provider TEXT NOT NULL, attempt {int} NOT NULL,
    t_start {int} NOT NULL, t_deadline {int} NOT NULL, renew_by {int} NOT NULL, status TEXT NOT NULL, acked_ms {int});
CREATE TABLE event (number {int} PRIMARY KEY, time_ms {int} NOT NULL, kind {int} NOT NULL, job {bytes} NOT NULL,
    lease {bytes});
INSERT INTO account VALUES ('alice', 1000000000000, 0, 0), ('bob', 0, 0, 0);
"""
FIND: Final = "SELECT id FROM job WHERE state = 'QUEUED' ORDER BY priority DESC, enqueue_ms, id LIMIT "


def job_row(id_: bytes, at_ms: int) -> tuple[object, ...]:
    return (id_, "AI", "alice", "QUEUED", -at_ms, at_ms, at_ms + WAITS_MS, FEE, 0, SPEC, None, None, None)


def lease_row(job: bytes, lease: bytes, provider: str, at_ms: int) -> tuple[object, ...]:
    return (lease, job, provider, 0, at_ms, at_ms + T_MS, at_ms + T_MS * 6 // 10, "ACTIVE", None)


def event_rows(
    first: int, kind: int, jobs: Sequence[bytes], leases: Sequence[bytes] | None
) -> list[tuple[int, int, int, bytes, bytes | None]]:
    at_ms = now_ms()
    return [(first + n, at_ms, kind, job, leases[n] if leases else None) for n, job in enumerate(jobs)]


def lease_name(job: bytes) -> bytes:
    """Another 32 bytes, as far from each other as hashes are."""
    return bytes(255 - each for each in job)


def placeholders(count: int) -> str:
    return ", ".join("?" * count)
