"""Reads stored evidence in order: from the tables up to their checkpoint, and from the journal after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.core import journal_codec
from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import PAYLOAD_TAG, PayloadRef
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.evidence.messages import EvidenceStored, RecordDeadLettered
from holdfast.core.evidence.model import Evidence, SessionWatermark
from holdfast.engine import queries
from holdfast.engine.queries import ReadSource

PAGE_ROWS: Final = 64
StoredRun = tuple[EventNo, int, int, PayloadRef]
"""An event that stored records: its number, their first and last sequence, and their lines."""


class SessionReader:
    """The records of one session. Reading on from where the last read ended needs no search."""

    def __init__(self, source: ReadSource, channel: str, session: str) -> None:
        self._source, self._channel, self._session = source, channel, session
        self._near = (1, 0)
        """A sequence, and an event: all records from that sequence on are in later events."""

    async def lines(self, first: int, last: int | None = None) -> AsyncIterator[tuple[int, bytes]]:
        """The records from `first` on, each with its sequence, as spooled, without line ends.

        EVD-002: none is missing in between; a missing one raises Corrupt.
        """
        due = first
        async for event, begin, end, payload in self._runs(first):
            if last is not None and begin > last:
                return
            if begin > due or end < due:
                message = f"{self._channel}/{self._session}: the records {due} to {begin - 1} are missing"
                raise Corrupt("EVD-002", message, "run holdfast db rebuild")
            lines = await self._lines_of(event, begin, end, payload)
            self._near = (begin, event - 1)
            for sequence in range(due, end + 1 if last is None else min(end, last) + 1):
                yield sequence, lines[sequence - begin]
            due = end + 1
            if last is not None and due > last:
                return

    async def _runs(self, first: int) -> AsyncIterator[StoredRun]:
        """The runs that end at `first` or later. A page of the tables ends with a batch; the journal has the rest."""
        match = {"channel": self._channel, "session": self._session, "last_sequence>=": first}
        after: str | int | None = self._near[1] if self._near[0] <= first else 0
        while after is not None:
            page = await queries.page(self._source, "evidence", match, after, PAGE_ROWS)
            for row in page.rows:
                assert isinstance(row, Evidence)
                yield row.event, row.first_sequence, row.last_sequence, PayloadRef(row.digest, row.size, row.lines)
            after, as_of = page.next_after, page.as_of
        async for run in self._not_in_tables(as_of):
            if run[2] >= first:
                yield run

    async def _not_in_tables(self, as_of: EventNo) -> AsyncIterator[StoredRun]:
        journal, session = self._source.journal, (self._channel, self._session)
        number = await journal.batch_of(EventNo(as_of + 1))
        if number is None:
            return
        async for batch in journal.read(BatchNo(number - 1), self._source.replication_status().tip.number):
            for event, stored in enumerate(journal_codec.unpack(batch), start=batch.first):
                if isinstance(stored, EvidenceStored) and (stored.channel, stored.session) == session:
                    yield EventNo(event), stored.first, stored.last, stored.payload

    async def _lines_of(self, event: EventNo, first: int, last: int, payload: PayloadRef) -> list[bytes]:
        lines = (await payload_bytes(self._source, event, payload)).split(b"\n")[:-1]
        if len(lines) != last - first + 1:
            message = f"event {event} does not hold the records {first} to {last}"
            raise Corrupt("EVD-002", message, "run holdfast db check")
        return lines


async def read_session_lines(source: ReadSource, channel: str, session: str) -> AsyncIterator[bytes]:
    """All durable records of a session, in order, as spooled, without line ends."""
    async for _, line in SessionReader(source, channel, session).lines(1):
        yield line


async def dead_letter_bytes(source: ReadSource, event: EventNo) -> bytes | None:
    """The bytes of a dead letter, as far as they were stored; None where the journal is trimmed beyond it."""
    number = await source.journal.batch_of(event)
    if number is None:
        return None
    async for batch in source.journal.read(BatchNo(number - 1), number):
        dead_lettered = journal_codec.unpack(batch)[event - batch.first]
        if isinstance(dead_lettered, RecordDeadLettered):
            return await payload_bytes(source, event, dead_lettered.payload)
    return None


async def payload_bytes(source: ReadSource, event: EventNo, payload: PayloadRef) -> bytes:
    """A small payload is inline, a large one is stored beside its batch (ENG-007)."""
    raw = payload.inline
    if raw is None:
        number = await source.journal.batch_of(event)
        raw = None if number is None else await source.journal.attachment(number, payload.digest)
    if raw is None or H(PAYLOAD_TAG, raw) != payload.digest:
        raise Corrupt("ENG-007", f"the records of event {event} are missing or damaged", "restore them from a backup")
    return raw


def read_range(
    source: ReadSource, watermark: SessionWatermark, first: int, last: int
) -> AsyncIterator[tuple[int, bytes]]:
    """The records of one session between two sequences."""
    return SessionReader(source, watermark.channel, watermark.session).lines(first, last)
