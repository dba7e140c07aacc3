"""Spooled lines at the node: each is checked before it is stored, a few ask for something, all can be read again.

EVD-005: only `LEASE_COMPLETED` and `LEASE_FAILED` change anything; what they ask for is signed inside of them, so that
it does not matter in which batch they travel (PRV-003).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec

from holdfast.core import law
from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG, Payload
from holdfast.core.evidence.marks import Evidence, EvidenceTaken
from holdfast.core.lease.acts import FailLease
from holdfast.core.proof.envelope import Envelope
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import BatchNo, EventNo, LeaseId, ProviderId
from holdfast.doors.completing import is_signed
from holdfast.engine import read
from holdfast.engine.read import Source
from holdfast.spool import record
from holdfast.wire.acts import to_sign_failure

COMPLETED, FAILED = "LEASE_COMPLETED", "LEASE_FAILED"
Verify = Callable[[bytes, bytes, bytes], bool]


class From(msgspec.Struct, frozen=True):
    """Whose lines they are."""

    provider_id: ProviderId
    public: bytes
    channel: str
    session: str


class Examined(msgspec.Struct):
    """What was found in some lines that follow each other."""

    count: int = 0
    """So many of them are good, from the first on."""
    asked: list[Envelope | FailLease] = []
    """What they ask for, under good signatures, in their order."""
    unheard: list[str] = []
    """What else asked for something, and why it is only stored."""
    poison: Refused | None = None
    """What is wrong with the line after the good ones."""


class _Completion(msgspec.Struct, frozen=True):
    type: int
    method: str
    body: str
    signature: str


class _Failure(msgspec.Struct, frozen=True):
    lease_id: str
    reason: str
    signature: str


class _Completed(msgspec.Struct, frozen=True):
    payload: _Completion


class _Failed(msgspec.Struct, frozen=True):
    payload: _Failure


# ------------------------------------------------------------------------------------------------ checking


def examine(who: From, verify: Verify, first: int, lines: Sequence[bytes]) -> Examined:
    """Check lines that should begin with the sequence `first`, and read what they ask for. It may take a while."""
    found = Examined()
    for sequence, line in enumerate(lines, start=first):
        seen = record.read(line, who.channel, who.session)
        why = seen if isinstance(seen, str) else _why_not_here(seen, line, sequence)
        if isinstance(seen, str) or why is not None:
            found.poison = Refused("EVD-002", f"record {sequence}: {why}", "it is not taken", "InvalidParams")
            break
        found.count += 1
        if (ask := _ASKS.get(seen.payload_type)) is not None:
            asked = ask(who, verify, line)
            if isinstance(asked, str):
                found.unheard.append(f"{seen.payload_type} {sequence}: {asked}")
            else:
                found.asked.append(asked)
    return found


def _why_not_here(seen: record.Seen, line: bytes, sequence: int) -> str | None:
    if seen.sequence != sequence:
        return f"it says that it is {seen.sequence}"
    return "a line end in its midst" if b"\n" in line else None


def _completed(who: From, verify: Verify, line: bytes) -> Envelope | str:
    try:
        told = msgspec.json.decode(line, type=_Completed).payload
        proof = Envelope(told.type, told.method, bytes.fromhex(told.body), bytes.fromhex(told.signature))
    except (msgspec.DecodeError, ValueError):
        return "its payload cannot be read"
    return proof if is_signed(verify, who.public, proof) else "its signature does not fit"


def _failed(who: From, verify: Verify, line: bytes) -> FailLease | str:
    try:
        told = msgspec.json.decode(line, type=_Failed).payload
        lease_id, signature = LeaseId(bytes.fromhex(told.lease_id)), bytes.fromhex(told.signature)
    except (msgspec.DecodeError, ValueError):
        return "its payload cannot be read"
    if not verify(who.public, to_sign_failure(lease_id, told.reason), signature):
        return "its signature does not fit"
    return FailLease(lease_id, who.provider_id, told.reason)


_ASKS: Final[dict[str, Callable[[From, Verify, bytes], Envelope | FailLease | str]]] = {
    COMPLETED: _completed,
    FAILED: _failed,
}


# ------------------------------------------------------------------------------------------------ storing


def packed(lines: Sequence[bytes]) -> bytes:
    """Lines as they are stored: byte for byte, each with its end."""
    return b"\n".join([*lines, b""])


async def stored_lines(source: Source, channel: str, session: str) -> AsyncIterator[bytes]:
    """All records of a session that are durable now, in order, as they were spooled, without their ends."""
    last = 0
    async for event, first, upto, payload in _stored(source, channel, session):
        if first != last + 1:
            says = f"{channel}/{session}: the records {last + 1} to {first - 1} are missing"
            raise Corrupt("EVD-002", says, "run holdfast db rebuild")
        lines = (await _raw(source, event, payload)).split(b"\n")[:-1]
        if len(lines) != upto - last:
            raise Corrupt(
                "EVD-002", f"event {event} does not hold the records {first} to {upto}", "run holdfast db check"
            )
        last = upto
        for line in lines:
            yield line


async def _stored(source: Source, channel: str, session: str) -> AsyncIterator[tuple[EventNo, int, int, Payload]]:
    """From the tables as far as they have come, which is the end of a batch; from the journal beyond that."""
    after: str | int | None = 0
    while after is not None:
        page = await read.page(source, "evidence", {"channel": channel, "session": session}, after, read.PAGE_MAX)
        for row in page.rows:
            assert isinstance(row, Evidence)
            yield row.event, row.first_sequence, row.last_sequence, Payload(row.digest, row.size, row.lines)
        after, as_of = page.next_after, page.as_of
    number = await source.journal.batch_of(EventNo(as_of + 1))
    if number is None:
        return
    async for batch in source.journal.read(BatchNo(number - 1), source.standing().tip.number):
        for event, taken in enumerate(law.unpack(batch), start=batch.first):
            if isinstance(taken, EvidenceTaken) and (taken.channel, taken.session) == (channel, session):
                yield EventNo(event), taken.first, taken.last, taken.payload


async def _raw(source: Source, event: EventNo, payload: Payload) -> bytes:
    """Small ones are inside, large ones beside their batch (ENG-007)."""
    raw = payload.inline
    if raw is None:
        number = await source.journal.batch_of(event)
        raw = None if number is None else await source.journal.attachment(number, payload.digest)
    if raw is None or H(PAYLOAD_TAG, raw) != payload.digest:
        raise Corrupt("ENG-007", f"the records of event {event} are missing or damaged", "restore them from a backup")
    return raw
