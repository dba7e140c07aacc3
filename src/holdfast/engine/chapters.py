"""Chapters: sealed batches as compressed files in a hash chain, for archive, export and backup alike (ENG-004).

A chapter holds the batches first … last with their large payloads, names the chapter before it by hash, and ends with
a hash over all of itself. Chapters are immutable: adding to a folder of them never rewrites one.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
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
    head, packed = msgspec.msgpack.decode(body[len(MAGIC) :], type=tuple[Head, bytes])
    entries = msgspec.msgpack.decode(zlib.decompress(packed), type=list[Entry])
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

    async def names(self) -> list[Name]:
        """All chapters, oldest first; Corrupt where one is missing between two others."""
        found = sorted(name for text in await self._files.names() if (name := read_name(text)) is not None)
        for one, two in pairwise(found):
            if two.first != one.last + 1:
                raise Corrupt("ENG-004", f"no chapter holds batches {one.last + 1} to {two.first - 1}", _HINT)
        return found

    async def entries(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Entry]:
        """Batches with after < number ≤ until that are here, with their payloads, each chapter checked as a whole."""
        previous: Digest | None = None
        for name in await self.names():
            if name.last <= after or (until is not None and name.first > until):
                continue
            head, entries, hash_ = await self._open(name)
            if previous is not None and head.previous != previous:
                raise Corrupt("ENG-004", f"chapter {name} does not follow the one before it", _HINT)
            previous = hash_
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

    async def _open(self, name: Name) -> tuple[Head, list[Entry], Digest]:
        raw = await self._files.read(str(name))
        if raw is None:
            raise Corrupt("ENG-004", f"chapter {name} is gone", _HINT)
        head, entries = read_chapter(str(name), raw)
        return head, entries, hash_of(raw)


async def copy(journal: Journal, book: Book, until: BatchNo) -> Tip:
    """Bring the book up to batch `until` of the journal, in as many new chapters as it takes."""
    tip, previous = await book.end()
    entries: list[Entry] = []
    size, before = 0, tip
    async for batch in journal.read(tip.number, until):
        check_follows(tip, batch)
        tip = tip_of(batch)
        entries.append(Entry(batch, await journal.attachments(batch.number)))
        size += len(batch.body) + sum(len(each.raw) for each in entries[-1].attachments)
        if size >= BYTES_MAX or len(entries) >= BATCHES_MAX:
            before, previous = await book.add(before, previous, entries)
            entries, size = [], 0
    if entries:
        await book.add(before, previous, entries)
    return tip


_HINT: Final = "restore this file from a backup; the others are not affected"
