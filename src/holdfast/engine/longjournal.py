"""The whole history as one journal: what was trimmed comes from the archive's chapters, the rest from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from holdfast.core.event import Attachment, Batch, Tip
from holdfast.core.refusal import Corrupt
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.engine.chapters import Book, Entry, Progress, copy, entries_of
from holdfast.ports import Files, Journal, Lying

TOGETHER: Final = 64
"""Entries that are read before one look at the floor vouches for them."""


class LongJournal:
    """A Journal that never forgets what the archive still has; appends go to the store alone."""

    def __init__(self, store: Journal, archive: Files) -> None:
        self.store, self.book = store, Book(archive)

    async def own(self) -> Tip:
        """Ownership of the store; Corrupt where the archive goes on after its end, since it never runs ahead."""
        tip, names = await self.store.own(), await self.book.names()
        if names and names[-1].last > tip.number:
            raise Corrupt(
                "ENG-003",
                f"the journal ends at batch {tip.number}, the archive at batch {names[-1].last}",
                "the journal has lost batches, or the archive belongs to another: restore a backup, or move it away",
            )
        return tip

    async def wait_free(self) -> None:
        await self.store.wait_free()

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        await self.store.append(batch, attachments)

    async def tip(self) -> Tip:
        return await self.store.tip()

    async def wait_beyond(self, number: BatchNo) -> None:
        await self.store.wait_beyond(number)

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        while True:
            floor = await self.store.floor()
            if after < floor:
                async for entry in self.book.entries(after, min(floor, until) if until is not None else floor):
                    yield entry.batch
                    after = entry.batch.number
            async for batch in self.store.read(after, until):
                if batch.number != after + 1 and await self.store.floor() > floor:
                    break  # trimmed while we were reading: what is missing is in the archive now
                yield batch
                after = batch.number
            else:
                if await self._has_all(floor, after, until):
                    return

    async def entries(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Entry]:
        """The same with large payloads: what a copy of the whole history is made from."""
        while True:
            floor = await self.store.floor()
            if after < floor:
                async for entry in self.book.entries(after, min(floor, until) if until is not None else floor):
                    yield entry
                    after = entry.batch.number
            some: list[Entry] = []
            async for entry in entries_of(self.store, after, until):
                some.append(entry)
                if len(some) == TOGETHER or entry.attachments:
                    if await self.store.floor() > floor:
                        break  # trimmed meanwhile: a payload may have gone before it was read
                    for each in some:
                        yield each
                    after, some = entry.batch.number, []
            else:
                if await self._has_all(floor, after, until):
                    for each in some:
                        yield each
                    return

    async def _has_all(self, floor: BatchNo, after: BatchNo, until: BatchNo | None) -> bool:
        """Whether nothing was trimmed away under a reader, so that the store's end is the end."""
        return await self.store.floor() == floor or (until is not None and after >= until)

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        """Which batch holds this event; None where it has not happened, or was deleted from the archive."""
        stored = await self.store.batch_of(event)  # asked first: what is trimmed after this is found in the archive
        for name in await self.book.names():
            if name.first_event <= event <= name.last_event:
                async for entry in self.book.entries(BatchNo(name.first - 1), name.last):
                    if entry.batch.last >= event:
                        return entry.batch.number
        if stored is None or stored > await self.store.floor() + 1:
            return stored
        async for batch in self.store.read(BatchNo(stored - 1), stored):  # the oldest there is may begin after it
            return None if event < batch.first else stored
        return stored

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        return next((each.raw for each in await self.attachments(batch) if each.digest == digest), None)

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        found = await self.store.attachments(batch)
        if not found and batch <= await self.store.floor():  # asked in this order: trimming takes nothing from us
            async for entry in self.book.entries(BatchNo(batch - 1), batch):
                return entry.attachments
        return found

    async def attached(self, after: EventNo, until: EventNo) -> list[Lying]:
        """Of the store alone: what lies in the archive is let go by an operator's command."""
        return await self.store.attached(after, until)

    async def let_go(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        await self.store.let_go(payloads)

    async def floor(self) -> BatchNo:
        """From the batch after this one on, store and archive together have everything."""
        floor = await self.store.floor()
        for name in reversed(await self.book.names()):
            if name.first <= floor <= name.last:
                floor = BatchNo(name.first - 1)
        return floor

    async def trim(self, until: BatchNo, progress: Progress | None = None) -> None:
        """Move batches into the archive: copied, read back as a whole, and only then let go by the store."""
        await copy(self.store, self.book, until, progress)
        until = BatchNo(min(until, (await self.store.tip()).number - 1))
        await self.check_archived(await self.store.floor(), until)
        await self.store.trim(until)

    async def gaps(self) -> list[str]:
        """What is missing between chapters, or between the last one and the store."""
        names, floor = await self.book.names(), await self.store.floor()
        is_behind = names and names[-1].last < floor
        missing = [f"no chapter holds batches {names[-1].last + 1} to {floor}"] if is_behind else []
        return [*await self.book.gaps(), *missing]

    async def check_overlap(self) -> None:
        """Corrupt where the archive says something else than the store of batches that both have."""
        names, tip = await self.book.names(), await self.store.tip()
        if names:
            await self.check_archived(await self.store.floor(), BatchNo(min(names[-1].last, tip.number)))

    async def check_archived(self, floor: BatchNo, until: BatchNo) -> None:
        """The next hand holds it provably: the archive's chain passes through the batch up to which we let go."""
        if until <= floor:
            return
        last = None
        async for batch in self.book.read(floor, until):
            last = batch
        async for batch in self.store.read(BatchNo(until - 1), until):
            if last == batch:
                return
        raise Corrupt(
            "ENG-004",
            f"the archive does not hold batches {floor + 1} to {until} of this journal; nothing was let go",
            "its folder may belong to another journal: move those chapters away",
        )

    async def faults(self) -> list[str]:
        return await self.store.faults()

    async def close(self) -> None:
        await self.store.close()
