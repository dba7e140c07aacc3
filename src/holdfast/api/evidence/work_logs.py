"""What running work says (EVD-005): messages among the stored evidence, found by the job that they are of.

They are no events of the journal. Evidence names the leases whose messages it has, and the table `work_log` lists them
by job: a log is read from there by any node, also after a restart, until the evidence is pruned. Memory holds only who
waits for more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from holdfast.api.evidence.reader import payload_bytes
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import PayloadRef
from holdfast.core.base.values import EventNo, LeaseId, TaskId
from holdfast.core.evidence.model import Evidence, WorkMessages
from holdfast.engine import queries
from holdfast.engine.queries import ReadSource

PROGRESS: Final = b'"payload_type":"PROGRESS"'
JOB_BYTES_MAX: Final = 1 << 20
"""An agent sends at most 64 KiB for a lease (SEC-002); this bounds one that does not keep to it."""
TEXT_MAX: Final = 2_000
PAGE_ROWS: Final = 64


class LogEntry(msgspec.Struct, frozen=True):
    """One message of running work; percent where it says how far it is."""

    attempt: int
    sequence: int
    """How many messages of this attempt were stored before it."""
    text: str
    percent: int | None = None

    @property
    def id(self) -> str:
        return f"{self.attempt}:{self.sequence}"


class _Progress(msgspec.Struct, frozen=True):
    lease_id: str
    number: int | None = None
    """Only messages have one; other records say that a lease was renewed."""
    text: str = ""
    percent: int | None = None


class _ProgressRecord(msgspec.Struct, frozen=True):
    payload_type: str
    payload: _Progress


_decode: Final = msgspec.json.Decoder(_ProgressRecord).decode


def _read_message(line: bytes) -> tuple[LeaseId, _Progress] | None:
    if PROGRESS not in line:
        return None
    try:
        said = _decode(line).payload
        return None if said.number is None else (LeaseId(bytes.fromhex(said.lease_id)), said)
    except (msgspec.DecodeError, ValueError):
        return None


def leases_with_messages(lines: Iterable[bytes]) -> tuple[LeaseId, ...]:
    """The leases that these records have messages of, as the records say it."""
    messages = map(_read_message, lines)
    return tuple(dict.fromkeys(message[0] for message in messages if message is not None))


class JobLog:
    """The stored messages of one job, in the order in which they were stored."""

    def __init__(self, source: ReadSource, task_id: TaskId) -> None:
        self._source, self._task_id = source, task_id
        self._place, self._bytes = 0, 0
        self._counts: Counter[int] = Counter()

    async def new_entries(self) -> AsyncIterator[LogEntry]:
        """What the tables have beyond what was read before."""
        while True:
            page = await queries.page(self._source, "work_log", {"task_id": self._task_id}, self._place, PAGE_ROWS)
            for row in page.rows:
                assert isinstance(row, WorkMessages)
                self._place = row.place
                for said in await self._messages(row):
                    self._bytes += len(said.text)
                    if self._bytes <= JOB_BYTES_MAX:
                        yield self._entry(row.attempt, said)
            if page.next_after is None:
                return

    def _entry(self, attempt: int, said: _Progress) -> LogEntry:
        sequence = self._counts[attempt]
        self._counts[attempt] += 1
        return LogEntry(attempt, sequence, said.text[:TEXT_MAX], said.percent)

    async def _messages(self, row: WorkMessages) -> list[_Progress]:
        """Those of one lease in one run of records; none where it was pruned."""
        if (stored := await self._evidence(row.event)) is None:
            return []
        payload = PayloadRef(stored.digest, stored.size, stored.lines)
        try:
            lines = (await payload_bytes(self._source, row.event, payload)).split(b"\n")
        except Corrupt:
            if await self._evidence(row.event) is not None:
                raise
            return []
        messages = map(_read_message, lines)
        return [said for lease_id, said in filter(None, messages) if lease_id == row.lease_id]

    async def _evidence(self, event: EventNo) -> Evidence | None:
        for found in (await queries.page(self._source, "evidence", {}, event - 1, 1)).rows:
            if isinstance(found, Evidence) and found.event == event:
                return found
        return None


class LogSignal:
    """Says that a job has new messages."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Replaced with every change: whoever waits for one is woken."""


class LogSignals:
    """Signals by job, as long as somebody waits; on the node that stores the evidence."""

    def __init__(self) -> None:
        self._signals: WeakValueDictionary[TaskId, LogSignal] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._signals)

    def signal_of(self, task_id: TaskId) -> LogSignal:
        signal = self._signals.get(task_id)
        if signal is None:
            signal = self._signals[task_id] = LogSignal()
        return signal

    def notify(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in task_ids:
            if (signal := self._signals.get(task_id)) is not None:
                changed, signal.changed = signal.changed, asyncio.Event()
                changed.set()
