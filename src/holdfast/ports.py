"""What Holdfast needs from the world, as Protocols; `adapters` implements them, and so do simulations in the tests.

Every method that touches the world may raise Unavailable (try again) or Corrupt (stop); no method decides anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast.core.base.event import Attachment, Batch, JournalHead
from holdfast.core.base.values import BatchNo, Digest, EventNo
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
    def monotonic_ms(self) -> int: ...
    async def sleep(self, ms: int) -> None: ...


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

    async def page(self, table: str, match: Mapping[str, object], after: object, limit: int) -> RowPage:
        """Rows in key order after a key, where all columns in `match` are equal, with the event they are as of."""
        ...

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        """All rows whose column has one of these values; the column is one that pages can be filtered by."""
        ...

    def claim_keys(self) -> AsyncIterator[Sequence[int]]:
        """Of all claims the first 8 bytes of their id, as signed integers, in chunks."""
        ...

    async def find_claims(self, keys: Sequence[bytes]) -> FoundClaims:
        """Those of these keys that are claimed, with the checkpoint of the same read transaction (ENG-005).

        A key that is missing was not claimed by any batch up to that checkpoint; a later batch may have claimed it.
        """
        ...

    def dump(self) -> AsyncIterator[Chunk]:
        """All rows of all tables and all claims at one moment, in chunks; the first one may be empty.

        The snapshot stays open while it is read, beside a writer that continues; a claim may come more than once.
        """
        ...

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
        ...

    async def put_many(self, blobs: Mapping[Digest, bytes]) -> None:
        """Hold small outputs, all durable when this returns, at the cost of one sync; the caller has hashed them."""
        ...

    async def size(self, digest: Digest) -> int | None:
        """How many bytes are held under this digest; None if there are none."""
        ...

    async def read(self, digest: Digest) -> bytes | None:
        """The bytes, checked against their digest; Corrupt if they do not match."""
        ...

    async def delete(self, digest: Digest) -> None: ...

    async def verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """The digests whose bytes are held and were read and hashed to match, with their sizes."""
        ...

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        """Delete the bytes of these digests, except those requested a moment ago; these are returned."""
        ...

    async def list_aged(self, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
        """Blobs last used before `before_ms`, from a position on, and the next position; SCAN_END is the end.

        About `scan_max` entries are read, at least one. A request for a blob counts as its use.
        """
        ...

    async def usage(self) -> int:
        """How many bytes are held in total."""
        ...


class Archive(Protocol):
    """The cold tier (TIER-001): an archive of bytes that the node may delete."""

    async def holds(self, digests: Sequence[tuple[Digest, int]]) -> dict[Digest, str]:
        """The digests that are archived, verified by reading them back, each with its locator."""
        ...


class StoredObject(NamedTuple):
    """An object of a listing."""

    key: str
    size: int


class Objects(Protocol):
    """Bytes by key, in a folder of this machine or in a remote store (ARC-004).

    A key is one or more names separated by `/`; a name has the characters A–Z a–z 0–9 _ . = - and does not begin with
    a dot. What is written is whole or absent, and durable when the call returns.
    """

    async def put_once(self, key: str, source: bytes | Path) -> bool:
        """Store bytes, or the content of a file that does not change any more; False where the key has an object.

        That object may come from an earlier attempt of this very call whose answer was lost. Large objects may be
        written by two callers at once: their keys must be derived from their content.
        """
        ...

    async def replace(self, key: str, source: bytes | Path) -> None:
        """The same, over whatever the key has."""
        ...

    async def size(self, key: str) -> int | None:
        """None where there is no such object."""
        ...

    async def read(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes from `start` on, at most `length`; None where there is no such object."""
        ...

    def list(self, folder: str, after: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose keys begin with `folder` and `/`, in the order of their keys, those above `after`.

        Stores sort `a/b` and `a-b` in two ways: where a folder has sub-folders, give their names one length.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; a missing one is ignored."""
        ...

    async def close(self) -> None: ...
