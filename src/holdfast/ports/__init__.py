"""What Holdfast needs from the world, as Protocols; `adapters` implements them, and so do simulations in the tests.

Every method that touches the world may raise Unavailable (try again) or Corrupt (stop); no method decides anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.core.base.event import Attachment, Batch, JournalHead
from holdfast.core.base.values import BatchNo, Digest, EventNo, LeaseId
from holdfast.core.index.unique_ids import Claim

Row = tuple[object, ...]
"""One row of a table, columns in the order of the record's fields; only its key if it is to be deleted."""
RowPage = tuple[list[Row], EventNo]
"""Rows, and the event up to which they are complete."""
Chunk = tuple[JournalHead, str, list[Row]]
"""Some rows of a table, and the checkpoint of the moment they were read."""
StoredPayload = tuple[BatchNo, Digest, int]
"""A large payload beside its batch: number of the batch, digest, size."""


class FoundClaims(NamedTuple):
    """Claims by key, and the checkpoint of the moment they were read."""

    claims: dict[bytes, Claim]
    checkpoint: JournalHead


CLAIMS: Final = "claim"
"""The name under which a dump yields the claims, as rows (claim id, event, checksum, until)."""


def row_deleted(key: object) -> Row:
    """A row that is to be deleted: no table has only one column."""
    return (key,)


def is_row_deleted(row: Row) -> bool:
    return len(row) == 1


class Clock(Protocol):
    """The clocks of the machine. No rule reads them: a command is decided with the time of its batch (CAN-004)."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> int:
        """Goes on while the process is stopped and, where the system can tell, while the machine is suspended."""
        ...

    async def sleep(self, ms: int) -> None: ...


class OwnerClock(Clock, Protocol):
    """The clocks of a node that may own a journal."""

    def is_synchronized(self) -> bool:
        """Whether the system says that the wall clock follows a time server."""
        ...


class OwnerBeat(NamedTuple):
    """What the last heartbeat of a journal's owner looks like to others."""

    holder: str
    """The owner, in words for an operator."""
    mark: str
    """Another one at every heartbeat."""


class Signer(Protocol):
    """Signs with an Ed25519 key: the proposer of blocks, or a provider."""

    @property
    def public(self) -> bytes: ...
    def sign(self, message: bytes) -> bytes: ...


class Batches(Protocol):
    """The batches of a journal and its head: what a fold needs."""

    async def tip(self) -> JournalHead:
        """The last durable batch, without ownership."""
        ...

    def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        """Durable batches with after < number ≤ until, in order."""
        ...


class Journal(Batches, Protocol):
    """The hash-chained batches: the only place where state is durable (ENG-001)."""

    async def acquire(self) -> JournalHead:
        """Take ownership (again): the lock, a new connection, and the head that is really durable.

        Unavailable if another process holds the lock. Once this returns, no earlier append can still land.
        """
        ...

    async def wait_until_unowned(self) -> None:
        """Return when ownership is probably free: what a standby waits for. Another process may still take it first."""
        ...

    async def heartbeat(self) -> None:
        """Show that the owner lives, outside the journal; Unavailable where it has lost the journal (ENG-008)."""
        ...

    async def owner_beat(self) -> OwnerBeat | None:
        """The owner's last heartbeat, as any process can see it; None where the journal has no owner."""
        ...

    async def evict_owner(self, seen: OwnerBeat) -> None:
        """End an owner whose last heartbeat is still this one, and wait for its end; Unavailable where that fails.

        Whoever evicts does not own the journal yet.
        """
        ...

    async def wall_ms(self) -> int | None:
        """The store's own clock, where it has one: a witness against the machine's (CAN-006)."""
        ...

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        """Make one batch and its attachments durable, or raise. Fenced if its number is not the next one.

        Any other error leaves the outcome unknown: the caller must `acquire` again and read the head.
        """
        ...

    async def append_packed(self, pack: Callable[[], Batch], attachments: Sequence[Attachment]) -> Batch:
        """The same for a batch that is packed and hashed now, in the journal's own thread where it has one."""
        ...

    async def wait_after(self, number: BatchNo) -> None:
        """Return when a batch above `number` is durable: what a follower waits for."""
        ...

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        """The batch that holds this event."""
        ...

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        """A large payload that was appended with this batch (ENG-007)."""
        ...

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        """All large payloads that were appended with this batch."""
        ...

    async def stored_payloads(self, after: EventNo, until: EventNo) -> list[StoredPayload]:
        """The large payloads stored beside the batches of these events, in order."""
        ...

    async def delete_payloads(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        """Delete large payloads that an event has released (RET-002); missing payloads are ignored.

        Pass few at a time: the owner's appends wait meanwhile.
        """
        ...

    async def trimmed_until(self) -> BatchNo:
        """The last batch that was trimmed; 0 if none was."""
        ...

    async def trim(self, until: BatchNo) -> None:
        """Delete the batches up to this one, never the last one; the caller has them elsewhere (ENG-004).

        It needs no ownership: an operator trims beside a running owner. Small steps, oldest first, each with its
        payloads in one transaction, delay the owner's appends only for a moment.
        """
        ...

    async def faults(self) -> list[str]:
        """The damage that the store's own integrity check finds; empty if there is none."""
        ...

    async def close(self) -> None: ...


class Tables(Protocol):
    """The projection for reading (ENG-004). It only repeats what events say and can be dropped and rebuilt."""

    async def checkpoint(self) -> JournalHead:
        """The batch up to which the tables are complete; Unavailable where they do not exist yet."""
        ...

    async def get(self, table: str, key: object) -> tuple[Row | None, EventNo]:
        """The row, None where there is none, with the event it is as of."""
        ...

    async def page(
        self, table: str, match: Mapping[str, object], after: object, limit: int, *, is_newest_first: bool = False
    ) -> RowPage:
        """Rows in key order after a key, where all columns in `match` are equal, with the event they are as of.

        Newest first: rows before a key, in the opposite order.
        """
        ...

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        """All rows whose column has one of these values; it is the key, or one that pages can be filtered by."""
        ...

    def claim_keys(self) -> AsyncIterator[Sequence[int]]:
        """Of all claims the first 8 bytes of their id, as integers, in chunks."""

    async def find_claims(self, keys: Sequence[bytes]) -> FoundClaims:
        """Those of these keys that are claimed, with the checkpoint of the same read transaction (ENG-005).

        A key that is missing was not claimed by any batch up to that checkpoint; a later batch may have claimed it.
        """

    async def find_claim_events(self, low: bytes, high: bytes, limit: int) -> list[EventNo]:
        """The events of some claims whose id is from `low` to `high`, both included, by an index."""

    def dump(self) -> AsyncIterator[Chunk]:
        """All rows of all tables and all claims at one moment, in chunks; the first one may be empty.

        The snapshot stays open while it is read, beside a writer that continues; a claim may come more than once.
        """

    async def faults(self) -> list[str]:
        """The damage that the store's own integrity check finds; empty if there is none."""
        ...

    async def close(self) -> None: ...


class TableWriter(Tables, Protocol):
    """The tables for their one writer, the projector, or whoever rebuilds them."""

    async def open(self) -> JournalHead:
        """Take the writer's lock, create or migrate the schema; returns the checkpoint. Again, it returns that alone.

        Unavailable where another process keeps the lock for long.
        """
        ...

    async def write(
        self,
        rows: Mapping[str, Sequence[Row]],
        claims: Sequence[tuple[bytes, Claim]],
        checkpoint: JournalHead,
        after: JournalHead | None = None,
    ) -> None:
        """Replace rows by their first column and add claims, with the checkpoint, in one transaction.

        A row for which `is_row_deleted` is true is deleted; of two rows with one key the later counts. Deleting a row
        that does not exist is fine: rows are written again after a crash. Unavailable, and nothing is written, where
        the stored checkpoint is not `after`.
        """
        ...

    async def drop(self) -> None:
        """Empty all tables and the checkpoint, even if they cannot be read any more; they are open afterwards."""
        ...

    async def release(self) -> None:
        """Give the writer's lock back; reading goes on."""
        ...


class Files(Protocol):
    """A folder of small files that are replaced atomically: temp, fsync, rename, fsync of the folder."""

    async def names(self) -> list[str]: ...
    async def read(self, name: str) -> bytes | None: ...
    async def replace(self, name: str, raw: bytes) -> None: ...
    async def delete(self, name: str) -> None: ...


class OutputReader(Protocol):
    """The bytes of one output, verified, to be read part by part and closed."""

    size: int

    async def read(self, offset: int, length: int) -> bytes: ...
    async def close(self) -> None: ...


class Incoming(Protocol):
    """An upload to the warm tier; nothing of it is held before `keep` has returned."""

    async def write(self, part: bytes) -> None: ...

    async def keep(self) -> tuple[Digest, int]:
        """Make the bytes durable under their result digest: fsync, rename, fsync of the folder. Digest and size."""
        ...

    async def drop(self) -> None:
        """Discard the upload; after `keep` this changes nothing."""
        ...


AgedBlob = tuple[Digest, int]
"""The digest and size of bytes that were not used for a while."""
SCAN_END: Final = 1 << 48
"""The end of a scan. A position is the first six bytes of a digest, a number that JSON represents exactly."""


def scan_position(digest: Digest) -> int:
    return int.from_bytes(digest[:6], "big")


class Blobs(Protocol):
    """The warm tier (TIER-001): output bytes on disk by their result digest, verified when they are read."""

    async def receive(self, announced: tuple[Digest, int] | None = None) -> Incoming:
        """Begin an upload; if digest and size are announced, bytes that differ are never kept."""

    async def put_many(self, blobs: Mapping[Digest, bytes]) -> None:
        """Hold small outputs, all durable when this returns, at the cost of one sync; the caller has hashed them."""

    async def size(self, digest: Digest) -> int | None:
        """How many bytes are held under this digest, for somebody who relies on them now; None if there are none."""

    async def is_held(self, digest: Digest) -> bool:
        """The same question by somebody who does not: it keeps nothing from being deleted."""

    async def mark_sent(self, lease_id: LeaseId, digest: Digest) -> None: ...  # by this lease, every byte (JOB-010)
    async def was_sent(self, lease_id: LeaseId, digest: Digest) -> bool: ...

    async def read(self, digest: Digest) -> bytes | None:
        """The bytes, checked against their digest; Corrupt if they do not match."""

    async def open_output(self, digest: Digest) -> OutputReader | None:
        """The same for bytes that are read part by part; they were checked as a whole before this returns."""

    async def delete(self, digest: Digest) -> None: ...

    async def verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """The digests whose bytes are held and were read and hashed to match, with their sizes."""

    async def find_damaged(self, digests: Sequence[Digest]) -> list[Digest]:
        """Those of which a copy is held that cannot be read or does not match. Nothing is changed or repaired."""

    async def requested_lately(self, digests: Sequence[Digest]) -> set[Digest]:
        """Those that `sweep` would not delete now. Asking keeps nothing from being deleted."""

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        """Delete the bytes of these digests, except those requested a moment ago; these are returned."""

    async def list_aged(self, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
        """Blobs last used before `before_ms`, from a position on, and the next position; SCAN_END is the end.

        About `scan_max` entries are read, at least one. A request for a blob counts as its use.
        """
        ...

    async def usage(self) -> int:
        """How many bytes are held in total."""
