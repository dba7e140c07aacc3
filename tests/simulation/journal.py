"""A journal in memory that fails, hangs, tears and forgets on command; its disk outlives the journals on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum

from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, JournalHead, head_of
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.ports import OwnerBeat, StoredPayload


class Fault(StrEnum):
    """What the next append does instead of its work."""

    FAIL = "nothing is stored and the caller is told"
    FAIL_AFTER = "it is stored, yet the caller is told that it failed"
    TEAR = "half of it is stored: the next owner must not see it"
    HANG = "it waits until it is released, then stores"
    HANG_THEN_FAIL = "it waits until it is released, then fails"
    FORGET = "the caller is told success, and the next owner does not find it"


class Disk:
    """What survives a crash."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.attachments: dict[tuple[int, bytes], bytes] = {}
        self.torn: Batch | None = None
        self.forgotten = 0
        self.owner: SimulatedJournal | None = None
        self.faults: list[Fault | None] = []
        """One for each append to come; None lets it pass."""
        self.acquire_faults = 0
        """How many times taking ownership fails."""
        self.release = asyncio.Event()
        self.appended = asyncio.Event()
        """Set and replaced whenever a batch is stored."""
        self.appends_in_flight = 0
        self.beats = 0
        self.cannot_evict = False
        self.wall_ms: int | None = None
        """The store's own clock, where it has one."""
        self.before_append: Callable[[Batch], None] = lambda batch: None
        self.before_delete_payloads: Callable[[object], None] = lambda payloads: None
        self.on_read: Callable[[int], None] = lambda after: None


class SimulatedJournal:
    """One process's view of the disk."""

    def __init__(self, disk: Disk, *, ignores_lock: bool = False) -> None:
        self._disk, self._ignores_lock = disk, ignores_lock

    async def acquire(self) -> JournalHead:
        disk = self._disk
        if disk.acquire_faults:
            disk.acquire_faults -= 1
            raise Unavailable("ENG-002", "simulated: the disk is gone")
        if disk.owner not in (None, self) and not self._ignores_lock:
            raise Unavailable("ENG-001", "simulated: somebody owns it")
        disk.owner = self
        disk.torn = None  # a torn batch was never whole: it does not count
        if disk.forgotten:
            del disk.batches[-disk.forgotten :]
            disk.forgotten = 0
        return await self.tip()

    async def append(self, batch: Batch, attachments: Sequence[Attachment]) -> None:
        disk = self._disk
        disk.before_append(batch)
        assert disk.appends_in_flight == 0, "two appends in flight"
        disk.appends_in_flight += 1
        try:
            await asyncio.sleep(0)
            await self._append(batch, attachments, disk.faults.pop(0) if disk.faults else None)
        finally:
            disk.appends_in_flight -= 1

    async def append_packed(self, pack: Callable[[], Batch], attachments: Sequence[Attachment]) -> Batch:
        batch = pack()
        await self.append(batch, attachments)
        return batch

    async def _append(self, batch: Batch, attachments: Sequence[Attachment], fault: Fault | None) -> None:
        disk = self._disk
        if fault in (Fault.HANG, Fault.HANG_THEN_FAIL):
            await disk.release.wait()
        if fault in (Fault.FAIL, Fault.HANG_THEN_FAIL):
            raise Unavailable("ENG-002", "simulated: append failed")
        if fault is Fault.TEAR:
            disk.torn = batch
            raise Unavailable("ENG-002", "simulated: append torn")
        tip = await self.tip()
        if batch.number != tip.number + 1 or batch.parent != tip.hash:
            raise Fenced("ENG-001", f"simulated: batch {batch.number} is not the next one")
        disk.batches.append(batch)
        appended, disk.appended = disk.appended, asyncio.Event()
        appended.set()
        for each in attachments:
            disk.attachments[batch.number, each.digest] = each.raw
        if fault is Fault.FORGET:
            disk.forgotten += 1
        if fault is Fault.FAIL_AFTER:
            raise Unavailable("ENG-002", "simulated: outcome unknown")

    async def heartbeat(self) -> None:
        if self._disk.owner is not self:
            raise Unavailable("ENG-001", "simulated: somebody else owns it")
        self._disk.beats += 1

    async def owner_beat(self) -> OwnerBeat | None:
        return None if self._disk.owner is None else OwnerBeat("a simulated owner", str(self._disk.beats))

    async def evict_owner(self, seen: OwnerBeat) -> None:
        if self._disk.cannot_evict:
            raise Unavailable("ENG-008", "simulated: it does not end")
        if await self.owner_beat() == seen:
            self._disk.owner = None

    async def wall_ms(self) -> int | None:
        return self._disk.wall_ms

    async def wait_until_unowned(self) -> None:
        while self._disk.owner not in (None, self):
            await asyncio.sleep(0)

    async def wait_after(self, number: BatchNo) -> None:
        while (await self.tip()).number <= number:
            await self._disk.appended.wait()

    async def tip(self) -> JournalHead:
        return head_of(self._disk.batches[-1]) if self._disk.batches else JournalHead()

    async def read(self, after: BatchNo, until: BatchNo | None = None) -> AsyncIterator[Batch]:
        self._disk.on_read(after)
        for batch in list(self._disk.batches):
            if batch.number > after and (until is None or batch.number <= until):
                await asyncio.sleep(0)
                yield batch

    async def batch_of(self, event: EventNo) -> BatchNo | None:
        return next((batch.number for batch in self._disk.batches if batch.last >= event), None)

    async def attachment(self, batch: BatchNo, digest: Digest) -> bytes | None:
        return self._disk.attachments.get((batch, digest))

    async def attachments(self, batch: BatchNo) -> list[Attachment]:
        found = [Attachment(Digest(key[1]), raw) for key, raw in self._disk.attachments.items() if key[0] == batch]
        return sorted(found, key=lambda each: each.digest)

    async def stored_payloads(self, after: EventNo, until: EventNo) -> list[StoredPayload]:
        found = [(BatchNo(key[0]), Digest(key[1]), len(raw)) for key, raw in self._disk.attachments.items()]
        there = {batch.number for batch in self._disk.batches if batch.last > after and batch.first <= until}
        return sorted(each for each in found if each[0] in there)

    async def delete_payloads(self, payloads: Sequence[tuple[BatchNo, Digest]]) -> None:
        self._disk.before_delete_payloads(payloads)
        for key in payloads:
            self._disk.attachments.pop(key, None)

    async def trimmed_until(self) -> BatchNo:
        return BatchNo(self._disk.batches[0].number - 1 if self._disk.batches else 0)

    async def trim(self, until: BatchNo) -> None:
        disk = self._disk
        disk.batches = [batch for batch in disk.batches[:-1] if batch.number > until] + disk.batches[-1:]
        first = disk.batches[0].number if disk.batches else 0
        disk.attachments = {key: raw for key, raw in disk.attachments.items() if key[0] >= first}

    async def faults(self) -> list[str]:
        return []

    async def close(self) -> None:
        if self._disk.owner is self:
            self._disk.owner = None
