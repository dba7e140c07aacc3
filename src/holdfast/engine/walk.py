"""All of history folded once more, beside whoever runs: what a check learns on the way."""

from __future__ import annotations

from array import array
from typing import Final

from holdfast.core import law
from holdfast.core.event import Batch, Tip, check_follows, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt
from holdfast.core.state import State, digest
from holdfast.core.values import BatchNo, Digest
from holdfast.engine import snapshot
from holdfast.engine.chapters import Progress, before
from holdfast.engine.compare import Expected, Names
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.payloads import not_there, spoken_of, without_hot
from holdfast.engine.project import drop_images, take_images
from holdfast.ports import Files


class Walk:
    """A fold from the beginning of history, which stops for good where it cannot go on."""

    def __init__(self, journal: LongJournal, files: Files, policy: Policy, progress: Progress | None) -> None:
        self._journal, self._files, self._policy, self._progress = journal, files, policy, progress
        self.state, self.tip = State(policy), Tip()
        self.broken: Corrupt | None = None
        """Why it could not go on."""
        self.expected: Expected | None = Expected()
        """What the tables should hold by now; None once nobody asks any more."""
        self.floor, self.start = BatchNo(0), Tip()
        """History is here from the batch after `floor` on; the fold began at `start`."""
        self.payloads, self.payloads_lost = 0, Names()
        self.hot_missing = array("Q")
        """Events whose hot bytes are not in the store: whether they should be is known at the end of the fold."""
        self.snapshots: dict[BatchNo, tuple[Tip, Digest]] = {}
        """Whole snapshots that the fold has not reached yet."""
        self.snapshots_good, self.snapshots_bad = 0, Names()

    async def begin(self) -> None:
        """Look at all snapshots; where history was deleted, one of them stands in for what is gone."""
        for name in sorted(await snapshot.names(self._files)):
            try:
                state, tip = await snapshot.load(self._files, name, self._policy)
                self.snapshots[tip.number] = (tip, digest(state))
            except Corrupt as fault:
                self.snapshots_bad.add(f"{name} ({fault.says})")
        try:
            self.floor = await self._journal.floor()
            if self.floor:
                await self._begin_at_snapshot()
        except Corrupt as fault:
            self.broken = fault

    async def on_to(self, number: BatchNo | None) -> None:
        """Fold up to this batch if there is one, else to the end."""
        if self.broken is not None:
            return
        try:
            end = (await self._journal.tip()).number
            goal = end if number is None else min(number, end)
            async for batch in self._journal.read(self.tip.number, goal):
                await self._step(batch)
            if self.tip.number < goal:
                raise Corrupt("ENG-001", f"the journal cannot be read beyond batch {self.tip.number}")
        except Corrupt as fault:
            self.broken = fault

    async def _step(self, batch: Batch) -> None:
        self.tip = law.fold(self.state, self.tip, (batch,))
        if self.expected is not None:
            self.expected.take(take_images(self.state))
        drop_images(self.state)
        await self._look_at_payloads(batch)
        self._compare_snapshot()
        if self._progress is not None:
            self._progress(self.tip)

    async def _look_at_payloads(self, batch: Batch) -> None:
        spoken = list(spoken_of(batch.first, law.unpack(batch)))
        if not spoken:
            return
        self.payloads += len(spoken)
        try:
            attached = await self._journal.attachments(batch.number)
            needed, missing = without_hot(spoken, attached)
            self.hot_missing.extend(missing)
            lost = list(not_there(needed, attached))
        except Corrupt as fault:
            lost = [f"the payloads of batch {batch.number} cannot be read ({fault.says})"]
        for name in lost:
            self.payloads_lost.add(name)

    def _compare_snapshot(self) -> None:
        stored = self.snapshots.pop(self.tip.number, None)
        if stored is None:
            return
        name = snapshot.name_of(self.tip)
        if stored[0] != self.tip:
            self.snapshots_bad.add(f"{name} (of another journal)")
        elif stored[1] != digest(self.state):
            self.snapshots_bad.add(f"{name} (the fold gives another state)")
        else:
            self.snapshots_good += 1

    async def _begin_at_snapshot(self) -> None:
        """The oldest one that the rest of history goes on from; the batches before it are still one chain."""
        usable = [number for number in sorted(self.snapshots) if number >= self.floor]
        for number in usable:
            state, tip = await snapshot.load(self._files, snapshot.name_of(self.snapshots[number][0]), self._policy)
            if await snapshot.is_in(self._journal, tip):
                await self._check_chain(tip)
                self.state, self.tip, self.start = state, tip, tip
                del self.snapshots[number]
                return
        self.broken = Corrupt(
            "ENG-003", f"batches 1 to {self.floor} are gone and no snapshot stands in for them", _GONE
        )

    async def _check_chain(self, end: Tip) -> None:
        tip = None
        try:
            async for batch in self._journal.read(self.floor, end.number):
                check_follows(tip or before(batch), batch)
                tip = tip_of(batch)
        except Corrupt as fault:
            self.broken = fault


async def each_damage(journal: LongJournal) -> list[str]:
    """Every chapter and every batch of the store that is not whole or not in its place, each looked at on its own."""
    found, tip = await journal.book.damages(), None
    try:
        async for batch in journal.store.read(await journal.store.floor()):
            try:
                check_follows(tip or before(batch), batch)
                law.unpack(batch)
            except Corrupt as fault:
                found.append(fault.says)
            tip = tip_of(batch)
    except Corrupt as fault:
        found.append(fault.says)
    return found


_GONE: Final = "restore the archive's chapters, or a backup"
