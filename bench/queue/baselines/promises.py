"""What the second baseline promises beyond rows, as pure functions: ids, nullifiers, leaves, roots and events.

The promises are Holdfast's, the forms are this baseline's own: SHA3-256 for ids, RFC 6962 for trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha3_256, sha256
from typing import Final, NamedTuple

import msgspec

from bench.queue.baselines.contract import FEE, PAID, SPEC, T_MS, UNITS

CALLER: Final = "alice"
ADMITTED, ASSIGNED, ACKED, COMPLETED = 50, 80, 81, 90
RESULT: Final = sha3_256(b"out").digest()
CLAIM_BYTES: Final = 16
"""As much of a hash as is kept for ever: enough that two never meet."""
EMPTY_ROOT: Final = sha256(b"").digest()
_pack = msgspec.msgpack.Encoder().encode
_TASK, _REQUEST = sha3_256(b"task.v1"), sha3_256(b"request.v1" + SPEC).digest()
_NULLIFIER, _LEASE, _HEADER = sha3_256(b"nullifier.v1"), sha3_256(b"lease.v1"), sha3_256(b"header.v1")
EventRow = tuple[int, int, int, bytes, bytes]
"""Number, time, kind, the job's id and the event's content."""


class Refusal(NamedTuple):
    """One command that was refused; all others of its chunk are accepted."""

    at: int
    reason: str


class JobRef(NamedTuple):
    """A job on its way: its row, its id, and its lease's row once it has one."""

    number: int
    id: bytes
    lease: int = 0
    lease_id: bytes = b""


def task_id(height: int, tx: bytes) -> bytes:
    """An id that covers the request: chain, height, transaction, caller and payload."""
    made = _TASK.copy()
    made.update(height.to_bytes(8, "big") + tx + CALLER.encode() + SPEC)
    return made.digest()


def lease_id(job: bytes, attempt: int) -> bytes:
    made = _LEASE.copy()
    made.update(job + attempt.to_bytes(4, "big"))
    return made.digest()


def nullifier(job: bytes, lease: bytes, digest: bytes) -> bytes:
    """One proof has one: used once, refused ever after."""
    made = _NULLIFIER.copy()
    made.update(job + lease + digest)
    return made.digest()


# ------------------------------------------------------------------------------------------------ events


def admitted(number: int, at_ms: int, job: bytes, tx: bytes) -> EventRow:
    return number, at_ms, ADMITTED, job, _pack((CALLER, tx, _REQUEST, FEE, UNITS, SPEC))


def assigned(number: int, at_ms: int, job: JobRef, provider: str) -> EventRow:
    return number, at_ms, ASSIGNED, job.id, _pack((job.lease_id, provider, at_ms, at_ms + T_MS))


def acked(number: int, at_ms: int, job: JobRef) -> EventRow:
    return number, at_ms, ACKED, job.id, _pack((job.lease_id, at_ms))


def completed(number: int, at_ms: int, job: JobRef, used: bytes) -> EventRow:
    return number, at_ms, COMPLETED, job.id, _pack((job.lease_id, RESULT, used, PAID))


# ------------------------------------------------------------------------------------------------ blocks


class OpenBlock:
    """The leaves of the block that is being filled; after a restart the events give them again."""

    def __init__(self) -> None:
        self.height, self.parent, self.first_event = 1, bytes(32), 1
        self.txs: list[bytes] = []
        self.results: list[bytes] = []

    def add_admission(self, number: int, job: bytes) -> None:
        self.txs.append(leaf(b"a", number, job, _REQUEST))

    def add_result(self, number: int, job: bytes, used: bytes) -> None:
        self.txs.append(leaf(b"p", number, job, used + RESULT))
        self.results.append(leaf(b"r", self.height, job, RESULT))

    def add(self, event: EventRow) -> None:
        """An event that was stored before a restart."""
        number, _, kind, job, body = event
        if kind == ADMITTED:
            self.add_admission(number, job)
        elif kind == COMPLETED:
            self.add_result(number, job, msgspec.msgpack.decode(body)[2])

    def seal(self, last_event: int, at_ms: int) -> tuple[object, ...]:
        """The row of its header; the next block is open afterwards."""
        roots = root(self.txs), root(self.results)
        covered = (self.height, self.parent, self.first_event, last_event, at_ms, len(self.txs), *roots)
        made = _HEADER.copy()
        made.update(_pack(covered))
        hash_ = made.digest()
        self.height, self.parent, self.first_event = self.height + 1, hash_, last_event + 1
        self.txs, self.results = [], []
        return (*covered, hash_)


def leaf(kind: bytes, number: int, subject: bytes, content: bytes) -> bytes:
    return sha256(b"\x00" + kind + number.to_bytes(8, "big") + subject + content).digest()


def root(hashes: Sequence[bytes]) -> bytes:
    """RFC 6962 over hashes of leaves: level by level, an odd last one rises."""
    if not hashes:
        return EMPTY_ROOT
    level = list(hashes)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = [*above, level[-1]] if len(level) % 2 else above
    return level[0]


SCHEMA: Final = """
CREATE TABLE account (owner TEXT PRIMARY KEY, available {int} NOT NULL, held {int} NOT NULL, pending {int} NOT NULL);
CREATE TABLE job (number {int} PRIMARY KEY, id {bytes} NOT NULL, kind TEXT NOT NULL, caller TEXT NOT NULL,
    state TEXT NOT NULL, priority {int} NOT NULL, enqueue_ms {int} NOT NULL, expires_ms {int} NOT NULL,
    max_fee {int} NOT NULL, attempts {int} NOT NULL, spec {bytes} NOT NULL, digest {bytes}, charged {int},
    ended_ms {int});
CREATE INDEX job_in_order ON job (priority DESC, enqueue_ms, number) WHERE state = 'QUEUED';
CREATE TABLE lease (number {int} PRIMARY KEY, job {int} NOT NULL, id {bytes} NOT NULL, provider TEXT NOT NULL,
    t_start {int} NOT NULL, t_deadline {int} NOT NULL, status TEXT NOT NULL, acked_ms {int});
CREATE TABLE claim (key {bytes} PRIMARY KEY, event {int} NOT NULL){keyed};
CREATE TABLE event (number {int} PRIMARY KEY, time_ms {int} NOT NULL, kind {int} NOT NULL, job {bytes} NOT NULL,
    body {bytes} NOT NULL);
CREATE TABLE block (height {int} PRIMARY KEY, parent {bytes} NOT NULL, first_event {int} NOT NULL,
    last_event {int} NOT NULL, time_ms {int} NOT NULL, tx_count {int} NOT NULL, tx_root {bytes} NOT NULL,
    result_root {bytes} NOT NULL, hash {bytes} NOT NULL);
INSERT INTO account VALUES ('alice', {funds}, 0, 0), ('bob', 0, 0, 0);
"""
FUNDS: Final = 10**12
FIND: Final = (
    "SELECT number, id FROM job WHERE state = 'QUEUED' ORDER BY priority DESC, enqueue_ms, number LIMIT {size}"
)
