"""Results as the source tells of them, written down a second time: blocks as lists, what may be read, what may go."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from holdfast.core.base.values import Digest, EventNo, TaskId

DAY_MS: Final = 24 * 3_600_000
PROOF, USE = "proof", "use"


class Entry(NamedTuple):
    """What a block has in it, as far as results go."""

    what: str
    task: TaskId
    event: EventNo


class ModelResult(msgspec.Struct):
    """A result, whatever block it is in."""

    event: EventNo
    output: bytes
    digest: Digest
    nullifier: Digest
    charged: int
    earliest: int
    """Where the receipt allows reading."""
    used: ModelConsumption | None = None
    is_lost: bool = False
    """A disk lost the bytes when nobody else here had them any more."""
    is_off_disk: bool = False
    """A disk lost the bytes: where an archive has them, the store need not put them back."""


class ModelConsumption(msgspec.Struct):
    """The one use of a result that counts."""

    event: EventNo
    tx: int


class ResultModel:
    """One chain and its results; the numbers are those of the policy."""

    def __init__(self, depth: int, hot_blocks: int, inline_bytes: int, warm_days: int) -> None:
        self._depth, self._hot_blocks, self.inline_bytes, self._warm_days = depth, hot_blocks, inline_bytes, warm_days
        self.blocks: list[list[Entry]] = [[]]
        """By height; nothing is in the one at 0."""
        self.sealed_ms: list[int] = [0]
        self.open: list[Entry] = []
        self.final = self.watermark = 0
        self.results: dict[TaskId, ModelResult] = {}
        self.archived: set[Digest] = set()

    @property
    def open_height(self) -> int:
        return len(self.blocks)

    # ------------------------------------------------------------------------------------ what happens

    def accept(self, task: TaskId, done: ModelResult) -> None:
        assert task not in self.results, "a second proof for a task"
        assert all(done.nullifier != other.nullifier for other in self.results.values()), "one nullifier for two tasks"
        self.results[task] = done
        self.open.append(Entry(PROOF, task, done.event))

    def consume(self, task: TaskId, tx: int, event: EventNo) -> None:
        self.results[task].used = ModelConsumption(event, tx)
        self.open.append(Entry(USE, task, event))

    def seal(self, now_ms: int) -> None:
        self.blocks.append(self.open)
        self.sealed_ms.append(now_ms)
        self.open = []
        head = len(self.blocks) - 1
        self.final = max(self.final, head - self._depth)
        self.watermark = max(self.watermark, min(self.final, head - self._hot_blocks))

    def roll_back(self, to: int) -> None:
        """What was above waits for the block above `to`, in its order; a use without a readable result is dropped."""
        heights = {task: self.height(task) for task in self.results}
        gone = [entry for block in self.blocks[to + 1 :] for entry in block] + self.open
        for entry in gone:
            done = self.results[entry.task]
            is_counting = done.used is not None and done.used.event == entry.event
            if is_counting and not (done.earliest <= to + 1 and heights[entry.task] <= to):
                done.used = None
        del self.blocks[to + 1 :], self.sealed_ms[to + 1 :]
        self.open = gone

    def lose(self, digest: Digest, hot: set[TaskId]) -> None:
        """The disk has lost these bytes; `hot` are the results that the store has the bytes of."""
        for task, done in self.results.items():
            if done.digest == digest:
                done.is_off_disk, done.is_lost = True, done.is_lost or task not in hot

    # ------------------------------------------------------------------------------------ what then is so

    def height(self, task: TaskId) -> int:
        """Of the block that resolves it; the open one counts."""
        (found,) = [
            height
            for height, block in enumerate([*self.blocks, self.open])
            for entry in block
            if (entry.what, entry.task) == (PROOF, task)
        ]
        return found

    def status(self, task: TaskId) -> str:
        """Resolved in B, readable from B + 1, and not before its receipt allows it."""
        done = self.results[task]
        if self.height(task) >= self.open_height or done.earliest > self.open_height:
            return "NoResultYet"
        return "CONSUMED" if done.used is not None else "RESOLVED"

    def may_be_pruned(self, task: TaskId, now_ms: int) -> bool:
        """Its block is final and old enough, and an archive has the bytes; or a disk lost the last copy."""
        done, height = self.results[task], self.height(task)
        is_candidate = height <= self.watermark and done.digest in self.archived
        is_old = is_candidate and now_ms - self.sealed_ms[height] >= self._warm_days * DAY_MS
        return is_old or done.is_lost or (is_candidate and done.is_off_disk)

    def numbers(self) -> list[EventNo]:
        return [entry.event for block in [*self.blocks, self.open] for entry in block]
