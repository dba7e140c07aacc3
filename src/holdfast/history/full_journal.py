"""The whole history as one journal: trimmed batches come from the archive's segments, the rest from the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Attachment, Batch, JournalHead
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.history.archive_segments import (
    ArchiveEntry,
    ProgressCallback,
    SegmentFolder,
    copy_journal,
    journal_entries,
)
from holdfast.ports import Files, Journal, OwnerBeat, StoredPayload

ENTRIES_PER_CHECK: Final = 64
"""Entries that are read before it is checked that none of them was trimmed meanwhile."""


class FullJournal:
    """A Journal that reads from store and archive; appends go to the store alone."""

    def __init__(self, store: Journal, archive: Files) -> None:
        self.store, self.archive = store, SegmentFolder(archive)

    async def acquire(self) -> JournalHead:
        """Acquire the store; Corrupt where the archive goes on after the store's end, since it never runs ahead."""
        head, names = await self.store.acquire(), await self.archive.names()
        if names and names[-1].last > head.number:
            raise Corrupt(
                "ENG-003",
                f"the journal ends at batch {head.number}, the archive at batch {names[-1].last}",
                "batches are lost, or the archive is of another journal: restore a backup, or move the archive away",
            )
        return head

    async def wait_until_unowned(self) -> None:
        await self.store.wait_until_unowned()

    async def heartbeat(self) -> None:
        await self.store.heartbeat()

    async def owner_beat(self) -> OwnerBeat | None:
        return await self.store.owner_beat()

    async def evict_owner(self, seen: OwnerBeat) -> None:
        await self.store.evict_owner(seen)

    async def wall_ms(self) -> int | None:
        return await self.store.wall_ms()

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        await self.store.append(batch, attachments)

    async def append_packed(self, pack: Callable[[], Batch], attachments: Sequence[Attachment]) -> Batch:
        return await self.store.append_packed(pack, attachments)

    async def tip(self) -> JournalHead:
        return await self.store.tip()

    async def wait_after(self, number: BatchNo) -> None:
        await self.store.wait_after(number)

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        while True:
            trimmed = await self.store.trimmed_until()
            if after < trimmed:
                async for entry in self.archive.entries(after, min(trimmed, until) if until is not None else trimmed):
                    yield entry.batch
                    after = entry.batch.number
            async for batch in self.store.read(after, until):
                if batch.number != after + 1 and await self.store.trimmed_until() > trimmed:
                    break  # trimmed meanwhile: the missing batches are in the archive now
                yield batch
                after = batch.number
            else:
                if await self._has_all(trimmed, after, until):
                    return

    async def entries(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[ArchiveEntry]:
        """The batches with their large payloads, as a copy of the whole history needs them."""
        while True:
            trimmed = await self.store.trimmed_until()
            if after < trimmed:
                async for entry in self.archive.entries(after, min(trimmed, until) if until is not None else trimmed):
                    yield entry
                    after = entry.batch.number
            unchecked: list[ArchiveEntry] = []
            async for entry in journal_entries(self.store, after, until):
                unchecked.append(entry)
                if len(unchecked) == ENTRIES_PER_CHECK or entry.attachments:
                    if await self.store.trimmed_until() > trimmed:
                        break  # trimmed meanwhile: a payload may be missing
                    for each in unchecked:
                        yield each
                    after, unchecked = entry.batch.number, []
            else:
                if await self._has_all(trimmed, after, until):
                    for each in unchecked:
                        yield each
                    return

    async def _has_all(self, trimmed: BatchNo, after: BatchNo, until: BatchNo | None) -> bool:
        """Whether nothing was trimmed while a reader was at it, so that the store's end is the end."""
        return await self.store.trimmed_until() == trimmed or (until is not None and after >= until)

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        """The batch that holds this event; None where it has not happened, or was deleted from the archive."""
        stored = await self.store.batch_of(event)  # first: a batch that is trimmed after this is in the archive
        for name in await self.archive.names():
            if name.first_event <= event <= name.last_event:
                async for entry in self.archive.entries(BatchNo(name.first - 1), name.last):
                    if entry.batch.last >= event:
                        return entry.batch.number
        if stored is None or stored > await self.store.trimmed_until() + 1:
            return stored
        async for batch in self.store.read(BatchNo(stored - 1), stored):  # the oldest batch may begin after the event
            return None if event < batch.first else stored
        return stored

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        return next((each.raw for each in await self.attachments(batch) if each.digest == digest), None)

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        stored = await self.store.attachments(batch)  # first: a batch that is trimmed after this is in the archive
        if not stored and batch <= await self.store.trimmed_until():
            async for entry in self.archive.entries(BatchNo(batch - 1), batch):
                return entry.attachments
        return stored

    async def stored_payloads(self, after: EventNo, until: EventNo) -> list[StoredPayload]:
        """The payloads in the store. Those in the archive are deleted by an operator's command alone."""
        return await self.store.stored_payloads(after, until)

    async def delete_payloads(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        await self.store.delete_payloads(payloads)

    async def trimmed_until(self) -> BatchNo:
        """Store and archive together hold every batch after this one."""
        trimmed = await self.store.trimmed_until()
        for name in reversed(await self.archive.names()):
            if name.first <= trimmed <= name.last:
                trimmed = BatchNo(name.first - 1)
        return trimmed

    async def trim(self, until: BatchNo, progress: ProgressCallback | None = None) -> None:
        """Move batches into the archive: they are copied and read back before the store deletes them."""
        await copy_journal(self.store, self.archive, until, progress)
        until = BatchNo(min(until, (await self.store.tip()).number - 1))
        await self.check_archived(await self.store.trimmed_until(), until)
        await self.store.trim(until)

    async def gaps(self) -> list[str]:
        """Batches that are missing between segments, or between the last segment and the store."""
        names, trimmed = await self.archive.names(), await self.store.trimmed_until()
        is_behind = names and names[-1].last < trimmed
        missing = [f"no segment holds batches {names[-1].last + 1} to {trimmed}"] if is_behind else []
        return [*await self.archive.gaps(), *missing]

    async def check_overlap(self) -> None:
        """Corrupt where archive and store differ in batches that both have."""
        names, head = await self.archive.names(), await self.store.tip()
        if names:
            await self.check_archived(await self.store.trimmed_until(), BatchNo(min(names[-1].last, head.number)))

    async def check_archived(self, trimmed: BatchNo, until: BatchNo) -> None:
        """Corrupt where the archive's hash chain does not lead to batch `until` of the store."""
        if until <= trimmed:
            return
        last = None
        async for batch in self.archive.read(trimmed, until):
            last = batch
        async for batch in self.store.read(BatchNo(until - 1), until):
            if last == batch:
                return
        raise Corrupt(
            "ENG-004",
            f"the archive does not hold batches {trimmed + 1} to {until} of this journal; nothing was deleted",
            "its folder may be of another journal: move those segments away",
        )

    async def faults(self) -> list[str]:
        return await self.store.faults()

    async def close(self) -> None:
        await self.store.close()
