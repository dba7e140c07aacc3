"""The whole history as one journal: what was trimmed comes from the archive's chapters, the rest from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from holdfast.core.event import Attachment, Batch, Tip
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.engine.chapters import Book, copy
from holdfast.ports import Files, Journal


class LongJournal:
    """A Journal that never forgets what the archive still has; appends go to the store alone."""

    def __init__(self, store: Journal, archive: Files) -> None:
        self.store, self.book = store, Book(archive)

    async def own(self) -> Tip:
        return await self.store.own()

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
                return

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        for name in await self.book.names():
            if name.first_event <= event <= name.last_event:
                async for entry in self.book.entries(BatchNo(name.first - 1), name.last):
                    if entry.batch.last >= event:
                        return entry.batch.number
        return await self.store.batch_of(event)

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        return next((each.raw for each in await self.attachments(batch) if each.digest == digest), None)

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        if batch <= await self.store.floor():
            async for entry in self.book.entries(BatchNo(batch - 1), batch):
                return entry.attachments
            return []
        return await self.store.attachments(batch)

    async def floor(self) -> BatchNo:
        """The last batch that neither store nor archive has any more."""
        names = await self.book.names()
        floor = await self.store.floor()
        return BatchNo(names[0].first - 1) if names and names[0].first <= floor else floor

    async def trim(self, until: BatchNo) -> None:
        """Move batches into the archive: copied, read back, and only then let go by the store."""
        await copy(self.store, self.book, until)
        await self.store.trim(until)

    async def close(self) -> None:
        await self.store.close()
