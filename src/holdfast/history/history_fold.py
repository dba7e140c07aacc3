"""A fold of all of history beside a running node, which gathers what a check reports."""

from __future__ import annotations

from array import array
from typing import Final

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Batch, JournalHead, check_follows, head_of
from holdfast.core.base.values import BatchNo, Digest
from holdfast.core.policy import Policy
from holdfast.core.queue import invariants as queue_invariants
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.payloads import missing_payloads, referenced_payloads, split_missing_hot
from holdfast.engine.projection.changed_rows import take_rows
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import ProgressCallback, head_before
from holdfast.history.full_journal import FullJournal
from holdfast.history.table_diff import ExpectedTables, NameSample
from holdfast.ports import Files


class HistoryFold:
    """A fold from the beginning of history. It stops for good at the first fault."""

    def __init__(self, journal: FullJournal, files: Files, policy: Policy, progress: ProgressCallback | None) -> None:
        self._journal, self._files, self._policy, self._progress = journal, files, policy, progress
        self.state, self.head = State(policy), JournalHead()
        self.fault: Corrupt | None = None
        """Why the fold stopped."""
        self.expected: ExpectedTables | None = ExpectedTables()
        """The rows that the tables should hold by now; None once they were compared."""
        self.trimmed_until, self.start = BatchNo(0), JournalHead()
        """History begins after batch `trimmed_until`; the fold began at `start`."""
        self.payload_count, self.payloads_lost = 0, NameSample()
        self.hot_missing = array("Q")
        """Events whose hot bytes are not in the store; the end of the fold tells whether they were dropped."""
        self.snapshots: dict[BatchNo, tuple[JournalHead, Digest]] = {}
        """Undamaged snapshots that the fold has not reached yet."""
        self.snapshots_good, self.snapshots_bad = 0, NameSample()

    async def begin(self) -> None:
        """Read all snapshots; where history was deleted, begin at one of them."""
        for name in sorted(await snapshot_files.list_names(self._files)):
            try:
                state, head = await snapshot_files.load(self._files, name, self._policy)
                _check_indexes(state)
                self.snapshots[head.number] = (head, digest(state))
            except Corrupt as fault:
                self.snapshots_bad.add(f"{name} ({fault.message})")
        try:
            self.trimmed_until = await self._journal.trimmed_until()
            if self.trimmed_until:
                await self._begin_at_snapshot()
        except Corrupt as fault:
            self.fault = fault

    async def fold_until(self, number: BatchNo | None) -> None:
        """Fold up to this batch, or to the end."""
        if self.fault is not None:
            return
        try:
            end = (await self._journal.tip()).number
            goal = end if number is None else min(number, end)
            async for batch in self._journal.read(self.head.number, goal):
                await self._fold_batch(batch)
            if self.head.number < goal:
                raise Corrupt("ENG-001", f"the journal cannot be read beyond batch {self.head.number}")
        except Corrupt as fault:
            self.fault = fault

    async def _fold_batch(self, batch: Batch) -> None:
        self.head = journal_codec.fold(self.state, self.head, (batch,))
        if self.expected is not None:
            self.expected.add_batch(*take_rows(self.state))
        else:
            self.state.record_nothing()
        await self._check_payloads(batch)
        self._compare_snapshot()
        if self._progress is not None:
            self._progress(self.head)

    async def _check_payloads(self, batch: Batch) -> None:
        referenced = list(referenced_payloads(batch.first, journal_codec.unpack(batch)))
        if not referenced:
            return
        self.payload_count += len(referenced)
        try:
            attached = await self._journal.attachments(batch.number)
            needed, missing = split_missing_hot(referenced, attached)
            self.hot_missing.extend(missing)
            lost = list(missing_payloads(needed, attached))
        except Corrupt as fault:
            lost = [f"the payloads of batch {batch.number} cannot be read ({fault.message})"]
        for name in lost:
            self.payloads_lost.add(name)

    def _compare_snapshot(self) -> None:
        stored = self.snapshots.pop(self.head.number, None)
        if stored is None:
            return
        name = snapshot_files.file_name(self.head)
        if stored[0] != self.head:
            self.snapshots_bad.add(f"{name} (of another journal)")
        elif stored[1] != digest(self.state):
            self.snapshots_bad.add(f"{name} (the fold gives another state)")
        else:
            self.snapshots_good += 1

    async def _begin_at_snapshot(self) -> None:
        """Begin at the oldest usable snapshot; the batches before it must still be one chain."""
        usable = [number for number in sorted(self.snapshots) if number >= self.trimmed_until]
        for number in usable:
            state, head = await snapshot_files.load(
                self._files, snapshot_files.file_name(self.snapshots[number][0]), self._policy
            )
            if await snapshot_files.is_in_journal(self._journal, head):
                await self._check_chain(head)
                self.state, self.head, self.start = state, head, head
                del self.snapshots[number]
                return
        self.fault = Corrupt(
            "ENG-003", f"batches 1 to {self.trimmed_until} were deleted and no snapshot replaces them", _RESTORE
        )

    async def _check_chain(self, end: JournalHead) -> None:
        head = None
        try:
            async for batch in self._journal.read(self.trimmed_until, end.number):
                check_follows(head or head_before(batch), batch)
                head = head_of(batch)
        except Corrupt as fault:
            self.fault = fault


def _check_indexes(state: State) -> None:
    """A snapshot stores indexes of the queue, which no digest covers."""
    if broken := queue_invariants.broken_invariants(state.queue, state.ledger):
        raise Corrupt("ENG-003", f"it contradicts itself: not {', not '.join(broken)}")


async def find_all_damage(journal: FullJournal) -> list[str]:
    """Every damaged segment, and every batch of the store that is damaged or out of order, each on its own."""
    damage, head = await journal.archive.find_damage(), None
    try:
        async for batch in journal.store.read(await journal.store.trimmed_until()):
            try:
                check_follows(head or head_before(batch), batch)
                journal_codec.unpack(batch)
            except Corrupt as fault:
                damage.append(fault.message)
            head = head_of(batch)
    except Corrupt as fault:
        damage.append(fault.message)
    return damage


_RESTORE: Final = "restore the archive's segments, or a backup"
