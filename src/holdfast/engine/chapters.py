"""Chapters: sealed batches as compressed files in a hash chain, for archive, export and backup alike (ENG-004).

A chapter holds the batches first … last with their large payloads, names the chapter before it by hash, and ends with
a hash over all of itself. Chapters are immutable: adding to a folder of them never rewrites one.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.event import Attachment, Batch, Tip, check_follows, tip_of
from holdfast.core.refusal import Corrupt
from holdfast.core.values import ZERO_DIGEST, BatchNo, Digest, EventNo
from holdfast.ports import Files, Journal

MAGIC: Final = b"holdfast chapter 1\n"
TAG: Final = "holdfast.chapter.v1"
SUFFIX: Final = ".chapter"
BYTES_MAX: Final = 8 << 20
"""A chapter is closed when its batches and payloads are this large before compression."""
BATCHES_MAX: Final = 10_000
Progress = Callable[[Tip], None]
"""Told how far long work has come."""
_pack = msgspec.msgpack.Encoder().encode


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch with its large payloads."""

    batch: Batch
    attachments: list[Attachment] = []


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a chapter says of itself: where it begins, where it ends, and which chapter comes before it."""

    before: Tip
    end: Tip
    previous: Digest


class Name(msgspec.Struct, frozen=True, order=True, gc=False):
    """A chapter's file name carries its range, so that a reader opens only what it needs."""

    first: BatchNo
    last: BatchNo
    first_event: EventNo
    last_event: EventNo

    def __str__(self) -> str:
        return f"{self.first:012d}-{self.last:012d}.events-{self.first_event}-{self.last_event}{SUFFIX}"


def name_of(head: Head) -> Name:
    before, end = head.before, head.end
    return Name(BatchNo(before.number + 1), end.number, EventNo(before.last + 1), end.last)


def read_name(text: str) -> Name | None:
    """The range in a file name, None where it is not a chapter's."""
    batches, _, events = text.removesuffix(SUFFIX).partition(".events-")
    numbers = [*batches.split("-"), *events.split("-")]
    if not text.endswith(SUFFIX) or len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
        return None
    first, last, first_event, last_event = map(int, numbers)
    return Name(BatchNo(first), BatchNo(last), EventNo(first_event), EventNo(last_event))


def write_chapter(head: Head, entries: list[Entry]) -> bytes:
    """The chapter as the bytes of its file."""
    body = MAGIC + _pack((head, zlib.compress(_pack(entries))))
    return body + H(TAG, body)


def hash_of(raw: bytes) -> Digest:
    """The hash a chapter ends with: the name by which the next one calls it."""
    return Digest(raw[-32:])


def read_chapter(name: str, raw: bytes) -> tuple[Head, list[Entry]]:
    """Head and batches, or Corrupt where a single bit is not as it was written."""
    body = raw[:-32]
    if not body.startswith(MAGIC) or raw[-32:] != H(TAG, body):
        raise Corrupt("ENG-004", f"chapter {name} is damaged", _HINT)
    try:
        head, packed = msgspec.msgpack.decode(body[len(MAGIC) :], type=tuple[Head, bytes])
        entries = msgspec.msgpack.decode(zlib.decompress(packed), type=list[Entry])
    except (msgspec.DecodeError, zlib.error) as fault:
        raise Corrupt(
            "ENG-004", f"chapter {name} cannot be read: {fault}", "a newer Holdfast may have made it"
        ) from fault
    tip = head.before
    for entry in entries:
        check_follows(tip, entry.batch)
        tip = tip_of(entry.batch)
    if tip != head.end or str(name_of(head)) != name:
        raise Corrupt("ENG-004", f"chapter {name} does not hold what it says", _HINT)
    return head, entries


class Book:
    """A folder of chapters, read in order."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._opened: tuple[Name, Head, list[Entry], Digest] | None = None
        """The chapter read last: who asks for one batch after the other opens each chapter once."""

    async def tip(self) -> Tip:
        """Where the last chapter ends."""
        return (await self.end())[0]

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        """The batches alone: what it takes to fold."""
        async for entry in self.entries(after, until):
            yield entry.batch

    async def names(self) -> list[Name]:
        """All chapters there are, oldest first; some may be missing between them."""
        return sorted(name for text in await self._files.names() if (name := read_name(text)) is not None)

    async def entries(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Entry]:
        """Batches with after < number ≤ until that are here, with their payloads, each chapter checked as a whole.

        Corrupt where a chapter is damaged, or missing between two others of that range.
        """
        before: tuple[Name, Digest] | None = None
        for name in await self.names():
            if name.last <= after or (until is not None and name.first > until):
                continue
            if before is not None and (why := _why_no_neighbours(before[0], name)):
                raise Corrupt("ENG-004", why, _HINT)
            head, entries, hash_ = await self._open(name)
            if before is not None and head.previous != before[1]:
                raise Corrupt("ENG-004", f"chapter {name} does not follow the one before it", _HINT)
            before = name, hash_
            for entry in entries:
                if entry.batch.number > after and (until is None or entry.batch.number <= until):
                    yield entry

    async def end(self) -> tuple[Tip, Digest]:
        """Where the last chapter ends, and its hash."""
        names = await self.names()
        if not names:
            return Tip(), ZERO_DIGEST
        head, _, hash_ = await self._open(names[-1])
        return head.end, hash_

    async def add(self, before: Tip, previous: Digest, entries: list[Entry]) -> tuple[Tip, Digest]:
        """Write one more chapter, read it back, and say where the book ends now."""
        head = Head(before, tip_of(entries[-1].batch), previous)
        raw, name = write_chapter(head, entries), str(name_of(head))
        await self._files.replace(name, raw)
        if await self._files.read(name) != raw:
            raise Corrupt("ENG-004", f"chapter {name} reads back differently", "the disk may be failing")
        return head.end, hash_of(raw)

    async def delete_until(self, batch: BatchNo) -> list[Name]:
        """Delete whole chapters up to a batch, oldest first: an operator's choice, never the node's."""
        gone = [name for name in await self.names() if name.last <= batch]
        for name in gone:
            await self._files.delete(str(name))
        return gone

    async def gaps(self) -> list[str]:
        """Chapters that are missing between others, or that tell the same twice."""
        return [why for one, two in pairwise(await self.names()) if (why := _why_no_neighbours(one, two))]

    async def damages(self) -> list[str]:
        """Every chapter that is not whole, each looked at on its own, and every gap."""
        found = await self.gaps()
        for name in await self.names():
            try:
                await self._open(name)
            except Corrupt as fault:
                found.append(fault.says)
        return found

    async def _open(self, name: Name) -> tuple[Head, list[Entry], Digest]:
        if self._opened is None or self._opened[0] != name:
            raw = await self._files.read(str(name))
            if raw is None:
                raise Corrupt("ENG-004", f"chapter {name} is gone", _HINT)
            self._opened = None  # before the next one is unpacked: two at once are not needed
            self._opened = (name, *read_chapter(str(name), raw), hash_of(raw))
        return self._opened[1:]


def _why_no_neighbours(one: Name, two: Name) -> str | None:
    if two.first <= one.last:
        return f"chapters {one} and {two} both hold batch {two.first}"
    return f"no chapter holds batches {one.last + 1} to {two.first - 1}" if two.first > one.last + 1 else None


# ------------------------------------------------------------------------------------------------ adding to a book

ReadEntries = Callable[[BatchNo, BatchNo], AsyncIterator[Entry]]


async def entries_of(journal: Journal, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Entry]:
    """A journal's batches with their large payloads."""
    async for batch in journal.read(after, until):
        yield Entry(batch, await journal.attachments(batch.number))


async def copy(journal: Journal, book: Book, until: BatchNo, progress: Progress | None = None) -> Tip:
    """Bring the book up to batch `until` of the journal, in as many new chapters as it takes."""
    return await copy_entries(partial(entries_of, journal), book, until, progress)


async def copy_entries(read: ReadEntries, book: Book, until: BatchNo, progress: Progress | None = None) -> Tip:
    """The same from whoever can read entries. An empty book begins where those begin."""
    tip, previous = await book.end()
    entries: list[Entry] = []
    size, begin = 0, tip
    async for entry in read(tip.number, until):
        if tip.number == 0:
            tip = begin = before(entry.batch)
        check_follows(tip, entry.batch)
        tip = tip_of(entry.batch)
        entries.append(entry)
        size += len(entry.batch.body) + sum(len(each.raw) for each in entry.attachments)
        if size >= BYTES_MAX or len(entries) >= BATCHES_MAX:
            begin, previous = await book.add(begin, previous, entries)
            entries, size = [], 0
        if progress is not None:
            progress(tip)
    if entries:
        await book.add(begin, previous, entries)
    return tip


def before(batch: Batch) -> Tip:
    """What came before a batch as far as the batch itself tells."""
    if batch.number == 1:
        return Tip()
    return Tip(BatchNo(batch.number - 1), batch.epoch, EventNo(batch.first - 1), batch.time_ms, batch.parent)


_HINT: Final = "restore this file from a backup; the others are not affected"
