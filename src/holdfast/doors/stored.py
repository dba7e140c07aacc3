"""Evidence as it is stored, read again in order: from the tables as far as they have come, else from the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from holdfast.core import law
from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG, Payload
from holdfast.core.evidence.letters import EvidenceBuried
from holdfast.core.evidence.marks import Evidence, EvidenceTaken, Mark
from holdfast.core.refusal import Corrupt
from holdfast.core.values import BatchNo, EventNo
from holdfast.engine import read
from holdfast.engine.read import Source

ROWS_A_PAGE: Final = 64
Stretch = tuple[EventNo, int, int, Payload]
"""An event that took records: its number, the first and the last of them, and their lines."""


class Stored:
    """One session's records. Whoever reads on from where the last reading ended finds the place without searching."""

    def __init__(self, source: Source, channel: str, session: str) -> None:
        self._source, self._channel, self._session = source, channel, session
        self._near = (1, 0)
        """A sequence, and an event after which everything from that sequence on is."""

    async def lines(self, first: int, last: int | None = None) -> AsyncIterator[tuple[int, bytes]]:
        """The records from one on, each with its sequence, as they were spooled, without their ends.

        EVD-002: between two of them none is missing; that would be Corrupt.
        """
        due = first
        async for event, begin, end, payload in self._stretches(first):
            if last is not None and begin > last:
                return
            if begin > due or end < due:
                says = f"{self._channel}/{self._session}: the records {due} to {begin - 1} are missing"
                raise Corrupt("EVD-002", says, "run holdfast db rebuild")
            lines = await self._lines_of(event, begin, end, payload)
            self._near = (begin, event - 1)
            for sequence in range(due, end + 1 if last is None else min(end, last) + 1):
                yield sequence, lines[sequence - begin]
            due = end + 1
            if last is not None and due > last:
                return

    async def _stretches(self, first: int) -> AsyncIterator[Stretch]:
        """Those that end at `first` or later. A page of the tables ends with a batch; the journal has the rest."""
        match = {"channel": self._channel, "session": self._session, "last_sequence>=": first}
        after: str | int | None = self._near[1] if self._near[0] <= first else 0
        while after is not None:
            page = await read.page(self._source, "evidence", match, after, ROWS_A_PAGE)
            for row in page.rows:
                assert isinstance(row, Evidence)
                yield row.event, row.first_sequence, row.last_sequence, Payload(row.digest, row.size, row.lines)
            after, as_of = page.next_after, page.as_of
        async for stretch in self._not_in_tables(as_of):
            if stretch[2] >= first:
                yield stretch

    async def _not_in_tables(self, as_of: EventNo) -> AsyncIterator[Stretch]:
        journal, whose = self._source.journal, (self._channel, self._session)
        number = await journal.batch_of(EventNo(as_of + 1))
        if number is None:
            return
        async for batch in journal.read(BatchNo(number - 1), self._source.standing().tip.number):
            for event, taken in enumerate(law.unpack(batch), start=batch.first):
                if isinstance(taken, EvidenceTaken) and (taken.channel, taken.session) == whose:
                    yield EventNo(event), taken.first, taken.last, taken.payload

    async def _lines_of(self, event: EventNo, first: int, last: int, payload: Payload) -> list[bytes]:
        lines = (await raw_of(self._source, event, payload)).split(b"\n")[:-1]
        if len(lines) != last - first + 1:
            says = f"event {event} does not hold the records {first} to {last}"
            raise Corrupt("EVD-002", says, "run holdfast db check")
        return lines


async def stored_lines(source: Source, channel: str, session: str) -> AsyncIterator[bytes]:
    """All records of a session that are durable now, in order, as they were spooled, without their ends."""
    async for _, line in Stored(source, channel, session).lines(1):
        yield line


async def letter_bytes(source: Source, event: EventNo) -> bytes | None:
    """The bytes of a dead letter, as far as they were kept; None where history begins after it."""
    number = await source.journal.batch_of(event)
    if number is None:
        return None
    async for batch in source.journal.read(BatchNo(number - 1), number):
        found = law.unpack(batch)[event - batch.first]
        if isinstance(found, EvidenceBuried):
            return await raw_of(source, event, found.payload)
    return None


async def raw_of(source: Source, event: EventNo, payload: Payload) -> bytes:
    """Small ones are inside, large ones beside their batch (ENG-007)."""
    raw = payload.inline
    if raw is None:
        number = await source.journal.batch_of(event)
        raw = None if number is None else await source.journal.attachment(number, payload.digest)
    if raw is None or H(PAYLOAD_TAG, raw) != payload.digest:
        raise Corrupt("ENG-007", f"the records of event {event} are missing or damaged", "restore them from a backup")
    return raw


def kept_records(source: Source, mark: Mark, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
    """The records of one session between two sequences."""
    return Stored(source, mark.channel, mark.session).lines(first, last)
