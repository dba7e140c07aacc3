"""What Holdfast needs from the world, as Protocols; `adapters` has the real ones, the tests have simulated ones too.

Every method that touches the world may raise Unavailable (try again) or Corrupt (stop); none decides anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Protocol

from holdfast.core.claim import Claim
from holdfast.core.event import Attachment, Batch, Tip
from holdfast.core.values import BatchNo, Digest, EventNo

Row = tuple[object, ...]
"""One row of a table, columns in the order of the record's fields; nothing but its key where it is no more."""
Page = tuple[list[Row], EventNo]
"""Rows, and the event they are as of."""
Chunk = tuple[Tip, str, list[Row]]
"""Some rows of a table, and the checkpoint of the moment they are from."""
Lying = tuple[BatchNo, Digest, int]
"""A large payload beside its batch: number of the batch, digest, size."""
CLAIMS: Final = "claim"
"""Under this name a dump gives the claims, as rows (key, event, checksum)."""


def gone(key: object) -> Row:
    """Says of a row that it is to be deleted: no table has a row of one column."""
    return (key,)


def is_gone(row: Row) -> bool:
    return len(row) == 1


class Clock(Protocol):
    """Time as the machine tells it. Only the engine's timekeeper reads it (CAN-004)."""

    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    async def sleep(self, ms: int) -> None: ...


class Batches(Protocol):
    """What it takes to fold: the end, and the way there."""

    async def tip(self) -> Tip:
        """The last durable batch, without ownership."""
        ...

    def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        """Durable batches with after < number ≤ until, in order."""
        ...


class Journal(Batches, Protocol):
    """The hash-chained batches: the one place where state is durable (ENG-001)."""

    async def own(self) -> Tip:
        """Take ownership (anew): the lock, a fresh connection, and the tip that is really durable.

        Unavailable where somebody else holds the lock. Once it is ours, no earlier append of anybody can still land.
        """
        ...

    async def wait_free(self) -> None:
        """Return when ownership can probably be had: what a standby waits for. It may still be taken by another."""
        ...

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        """Make one batch and its attachments durable, or raise. Fenced where its number is not the next one.

        Any other error leaves the outcome unknown: the caller must `own` again and look.
        """
        ...

    async def wait_beyond(self, number: BatchNo) -> None:
        """Return when a batch above `number` is durable: what a follower waits for."""
        ...

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        """Which batch holds this event."""
        ...

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        """A large payload that was appended with this batch (ENG-007)."""
        ...

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        """All large payloads that were appended with this batch."""
        ...

    async def attached(self, after: EventNo, until: EventNo) -> list[Lying]:
        """Which large payloads the store has beside the batches of these events, in their order."""
        ...

    async def let_go(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        """Delete large payloads that an event has said need not be here any more (RET-002); none that is missing
        is missed. Whoever asks gives few at a time: the owner's appends wait meanwhile.
        """
        ...

    async def floor(self) -> BatchNo:
        """The last batch that was trimmed away, 0 where none was."""
        ...

    async def trim(self, until: BatchNo) -> None:
        """Let go of the batches up to this one, never of the last one; whoever asks has them elsewhere (ENG-004).

        It takes no ownership: an operator trims beside a running owner. In small steps, oldest first, each with its
        payloads in one transaction, so that the owner's appends are held up only for a moment.
        """
        ...

    async def faults(self) -> list[str]:
        """What the store's own examination of its files finds, whatever they mean; empty where it has none."""
        ...

    async def close(self) -> None: ...


class Tables(Protocol):
    """The projection for reading (ENG-004). It only repeats what events said and can be dropped and rebuilt."""

    async def open(self) -> Tip:
        """Create or migrate the schema; the batch up to which the tables are complete."""
        ...

    async def checkpoint(self) -> Tip:
        """The same without changing anything: what a follower asks."""
        ...

    async def write(
        self, rows: Mapping[str, Sequence[Row]], claims: Sequence[tuple[bytes, Claim]], checkpoint: Tip
    ) -> None:
        """Replace rows by their first column and add claims, with the checkpoint, in one transaction.

        A row that `is_gone` is deleted; of two rows with one key the later counts. Deleting what is not there is fine:
        rows are written again after a crash.
        """
        ...

    async def drop(self) -> None:
        """Empty all tables and the checkpoint, also where they cannot be read any more; they are open after it."""
        ...

    async def get(self, table: str, key: object) -> Row | None: ...

    async def page(self, table: str, match: Mapping[str, object], after: object, limit: int) -> Page:
        """Rows in key order after a key, where all columns in `match` are equal, with the event they are as of."""
        ...

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        """All rows where a column that pages can be filtered by is one of these values."""
        ...

    def claim_keys(self) -> AsyncIterator[Sequence[bytes]]:
        """All claimed keys, in chunks."""
        ...

    async def find_claim(self, key: bytes) -> Claim | None: ...

    def dump(self) -> AsyncIterator[Chunk]:
        """Everything, of one moment: all rows of all tables and all claims, in chunks; the first one may be empty.

        It holds that moment while it is read, beside a writer that goes on; claims come as often as they are found.
        """
        ...

    async def faults(self) -> list[str]:
        """What the store's own examination of its files finds, whatever they mean; empty where it has none."""
        ...

    async def close(self) -> None: ...


class Files(Protocol):
    """A folder of small, whole files, replaced atomically: temp, fsync, rename, fsync of the folder."""

    async def names(self) -> list[str]: ...
    async def read(self, name: str) -> bytes | None: ...
    async def replace(self, name: str, raw: bytes) -> None: ...
    async def delete(self, name: str) -> None: ...


class Incoming(Protocol):
    """Bytes on their way into the warm tier; nothing of them is there before `keep` has returned."""

    async def write(self, part: bytes) -> None: ...

    async def keep(self) -> tuple[Digest, int]:
        """Make them durable under their result digest: temp, fsync, rename, fsync of the folder. Digest and size."""
        ...

    async def drop(self) -> None:
        """Forget them; also after `keep`, where it changes nothing."""
        ...


Aged = tuple[Digest, int]
"""Bytes that have been held for a while, and how many."""
PLACES: Final = 1 << 48
"""Places in the order of digests: their first six bytes, a number that also JSON keeps whole."""


def stands_at(digest: Digest) -> int:
    return int.from_bytes(digest[:6], "big")


class Blobs(Protocol):
    """The warm tier (TIER-001): output bytes on disk by their result digest, verified when they are read."""

    async def receive(self, announced: tuple[Digest, int] | None = None) -> Incoming:
        """Begin to take bytes; where digest and size are announced, others than those are never kept."""
        ...

    async def size(self, digest: Digest) -> int | None:
        """How many bytes are held under this digest, None where none are."""
        ...

    async def read(self, digest: Digest) -> bytes | None:
        """The bytes, checked against their digest; Corrupt where they are others."""
        ...

    async def delete(self, digest: Digest) -> None: ...

    async def sound(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """Those that are held and hash to their name, read from the first byte to the last, with their sizes."""
        ...

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        """Delete what is held under these, but for what somebody asked for a moment ago: those are told."""
        ...

    async def aged(self, before_ms: int, at: int, most: int) -> tuple[list[Aged], int]:
        """What lies here since then or longer, from a place on, in order, and the place to go on from; PLACES ends it.

        About so many are looked at, one at least. What somebody asks for begins anew.
        """
        ...

    async def usage(self) -> int:
        """How many bytes are held in all."""
        ...


class Cold(Protocol):
    """The cold tier (TIER-001): an archive that has what the node may let go."""

    async def holds(self, digests: Sequence[tuple[Digest, int]]) -> dict[Digest, str]:
        """Those of these bytes that are archived, verified by reading them back, each with its locator."""
        ...
