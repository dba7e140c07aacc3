"""Archive segments: runs of batches as compressed files in a hash chain, for archive, export and backup (ENG-004).

A segment holds consecutive batches with their large payloads and the hash of the segment before it, and ends with a
hash over its own bytes. Segments are immutable: a folder grows by new segments only.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Attachment, Batch, JournalHead, check_follows, head_of
from holdfast.core.base.values import ZERO_DIGEST, BatchNo, Digest, EventNo
from holdfast.ports import Files, Journal

MAGIC: Final = b"holdfast archive segment 1\n"
TAG: Final = "holdfast.archive_segment.v1"
SUFFIX: Final = ".segment"
BYTES_MAX: Final = 8 << 20
"""A segment is full when its batches and payloads have this size before compression."""
BATCHES_MAX: Final = 10_000
ProgressCallback = Callable[[JournalHead], None]
"""Called with the position that a long operation has reached."""
_pack = msgspec.msgpack.Encoder().encode


class ArchiveEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch with its large payloads."""

    batch: Batch
    attachments: list[Attachment] = []


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The journal's head before and after a segment, and the hash of the previous segment."""

    before: JournalHead
    end: JournalHead
    previous: Digest


class SegmentName(msgspec.Struct, frozen=True, order=True, gc=False):
    """The range in a segment's file name, so that a reader opens only the segments it needs."""

    first: BatchNo
    last: BatchNo
    first_event: EventNo
    last_event: EventNo

    def __str__(self) -> str:
        return f"{self.first:012d}-{self.last:012d}.events-{self.first_event}-{self.last_event}{SUFFIX}"


def segment_name(header: SegmentHeader) -> SegmentName:
    before, end = header.before, header.end
    return SegmentName(BatchNo(before.number + 1), end.number, EventNo(before.last + 1), end.last)


def parse_segment_name(text: str) -> SegmentName | None:
    """The range in a file name; None where it is not the name of a segment."""
    batches, _, events = text.removesuffix(SUFFIX).partition(".events-")
    numbers = [*batches.split("-"), *events.split("-")]
    if not text.endswith(SUFFIX) or len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
        return None
    first, last, first_event, last_event = map(int, numbers)
    return SegmentName(BatchNo(first), BatchNo(last), EventNo(first_event), EventNo(last_event))


def encode_segment(header: SegmentHeader, entries: list[ArchiveEntry]) -> bytes:
    """A segment as the bytes of its file."""
    body = MAGIC + _pack((header, zlib.compress(_pack(entries))))
    return body + H(TAG, body)


def segment_hash(raw: bytes) -> Digest:
    """The hash at the end of a segment, by which the next segment refers to it."""
    return Digest(raw[-32:])


def decode_segment(name: str, raw: bytes) -> tuple[SegmentHeader, list[ArchiveEntry]]:
    """Header and batches; Corrupt where a single bit has changed."""
    body = raw[:-32]
    if not body.startswith(MAGIC) or raw[-32:] != H(TAG, body):
        raise Corrupt("ENG-004", f"segment {name} is damaged", _HINT)
    try:
        header, packed = msgspec.msgpack.decode(body[len(MAGIC) :], type=tuple[SegmentHeader, bytes])
        entries = msgspec.msgpack.decode(zlib.decompress(packed), type=list[ArchiveEntry])
    except (msgspec.DecodeError, zlib.error) as fault:
        raise Corrupt(
            "ENG-004", f"segment {name} cannot be read: {fault}", "a newer Holdfast may have made it"
        ) from fault
    head = header.before
    for entry in entries:
        check_follows(head, entry.batch)
        head = head_of(entry.batch)
    if head != header.end or str(segment_name(header)) != name:
        raise Corrupt("ENG-004", f"segment {name} does not hold the batches it is named for", _HINT)
    return header, entries


class SegmentFolder:
    """A folder of segments, read in order."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._last_read: tuple[SegmentName, SegmentHeader, list[ArchiveEntry], Digest] | None = None
        """The segment read last: a reader of one batch after the other opens each segment once."""

    async def tip(self) -> JournalHead:
        """Where the last segment ends."""
        return (await self.end())[0]

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        """The batches without payloads, as a fold needs them."""
        async for entry in self.entries(after, until):
            yield entry.batch

    async def names(self) -> list[SegmentName]:
        """All segments, oldest first; there may be gaps between them."""
        return sorted(name for text in await self._files.names() if (name := parse_segment_name(text)) is not None)

    async def entries(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[ArchiveEntry]:
        """The stored batches with after < number ≤ until and their payloads; each segment is checked as a whole.

        Corrupt where a segment is damaged, or missing between two others of that range.
        """
        before: tuple[SegmentName, Digest] | None = None
        for name in await self.names():
            if name.last <= after or (until is not None and name.first > until):
                continue
            if before is not None and (reason := _why_not_adjacent(before[0], name)):
                raise Corrupt("ENG-004", reason, _HINT)
            header, entries, hash_ = await self._open(name)
            if before is not None and header.previous != before[1]:
                raise Corrupt("ENG-004", f"segment {name} does not follow the segment before it", _HINT)
            before = name, hash_
            for entry in entries:
                if entry.batch.number > after and (until is None or entry.batch.number <= until):
                    yield entry

    async def end(self) -> tuple[JournalHead, Digest]:
        """Where the last segment ends, and its hash."""
        names = await self.names()
        if not names:
            return JournalHead(), ZERO_DIGEST
        header, _, hash_ = await self._open(names[-1])
        return header.end, hash_

    async def add(
        self, before: JournalHead, previous: Digest, entries: list[ArchiveEntry]
    ) -> tuple[JournalHead, Digest]:
        """Write a segment and read it back. Returns where the folder ends now, and the segment's hash."""
        header = SegmentHeader(before, head_of(entries[-1].batch), previous)
        raw, name = encode_segment(header, entries), str(segment_name(header))
        await self._files.replace(name, raw)
        if await self._files.read(name) != raw:
            raise Corrupt("ENG-004", f"segment {name} reads back differently", "the disk may be failing")
        return header.end, segment_hash(raw)

    async def delete_until(self, batch: BatchNo) -> list[SegmentName]:
        """Delete whole segments up to a batch, oldest first. Only an operator's command does this, never the node."""
        deleted = [name for name in await self.names() if name.last <= batch]
        for name in deleted:
            await self._files.delete(str(name))
        return deleted

    async def gaps(self) -> list[str]:
        """Batches that no segment holds although later ones do, and batches that two segments hold."""
        return [gap for one, two in pairwise(await self.names()) if (gap := _why_not_adjacent(one, two))]

    async def find_damage(self) -> list[str]:
        """Every gap and every damaged segment; each segment is checked on its own."""
        damage = await self.gaps()
        for name in await self.names():
            try:
                await self._open(name)
            except Corrupt as fault:
                damage.append(fault.message)
        return damage

    async def _open(self, name: SegmentName) -> tuple[SegmentHeader, list[ArchiveEntry], Digest]:
        if self._last_read is None or self._last_read[0] != name:
            raw = await self._files.read(str(name))
            if raw is None:
                raise Corrupt("ENG-004", f"segment {name} is missing", _HINT)
            self._last_read = None  # frees the memory before the next one is decoded
            self._last_read = (name, *decode_segment(str(name), raw), segment_hash(raw))
        return self._last_read[1:]


def _why_not_adjacent(one: SegmentName, two: SegmentName) -> str | None:
    if two.first <= one.last:
        return f"segments {one} and {two} both hold batch {two.first}"
    return f"no segment holds batches {one.last + 1} to {two.first - 1}" if two.first > one.last + 1 else None


# ------------------------------------------------------------------------------------------------ copying

ReadEntries = Callable[[BatchNo, BatchNo], AsyncIterator[ArchiveEntry]]


async def journal_entries(
    journal: Journal, after: BatchNo, until: BatchNo | None = None
) -> AsyncIterator[ArchiveEntry]:
    """A journal's batches with their large payloads."""
    async for batch in journal.read(after, until):
        yield ArchiveEntry(batch, await journal.attachments(batch.number))


async def copy_journal(
    journal: Journal, folder: SegmentFolder, until: BatchNo, progress: ProgressCallback | None = None
) -> JournalHead:
    """Bring the folder up to batch `until` of the journal, in as many new segments as it takes."""
    return await copy_entries(partial(journal_entries, journal), folder, until, progress)


async def copy_entries(
    read: ReadEntries, folder: SegmentFolder, until: BatchNo, progress: ProgressCallback | None = None
) -> JournalHead:
    """The same from any source of entries. An empty folder begins with the first of them."""
    head, previous = await folder.end()
    entries: list[ArchiveEntry] = []
    size, begin = 0, head
    async for entry in read(head.number, until):
        if head.number == 0:
            head = begin = head_before(entry.batch)
        check_follows(head, entry.batch)
        head = head_of(entry.batch)
        entries.append(entry)
        size += len(entry.batch.body) + sum(len(each.raw) for each in entry.attachments)
        if size >= BYTES_MAX or len(entries) >= BATCHES_MAX:
            begin, previous = await folder.add(begin, previous, entries)
            entries, size = [], 0
        if progress is not None:
            progress(head)
    if entries:
        await folder.add(begin, previous, entries)
    return head


def head_before(batch: Batch) -> JournalHead:
    """The journal's head before a batch, as far as the batch itself tells."""
    if batch.number == 1:
        return JournalHead()
    return JournalHead(BatchNo(batch.number - 1), batch.term, EventNo(batch.first - 1), batch.time_ms, batch.parent)


_HINT: Final = "restore this file from a backup; the other segments are not affected"
