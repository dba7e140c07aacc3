"""Evidence at the doors: sessions and how far they have come, their records, and dead letters to deal with."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.evidence import sessions
from holdfast.core.evidence.letters import DeadLetter, LetterReleased, ReleaseLetter, Standing
from holdfast.core.evidence.marks import Ending, Mark, is_final, mark_id
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.state import State
from holdfast.core.values import EventNo, ProviderId
from holdfast.doors.desk import OPERATORS, READERS, Desk, Method, Visitor
from holdfast.doors.methods.money import Done, done
from holdfast.doors.pages import why_not_limit
from holdfast.doors.releasing import ask_again
from holdfast.doors.stored import Stored, letter_bytes
from holdfast.engine import read

PAGE_BYTES_MAX: Final = 512 << 10
"""Records of one answer, as long as there is more than one of them."""


class ManySessions(msgspec.Struct, frozen=True):
    """A page of sessions in the order of their names; `cursor` is the last page's."""

    channel: str | None = None
    limit: int = 100
    cursor: str = ""


class SessionShown(msgspec.Struct, frozen=True):
    """How far a session has come."""

    channel: str
    session: str
    provider_id: ProviderId
    owner: str
    """Whose certificate may send for it, where it is the channel of a v0.1 sender."""
    acked: int
    pruned: int
    is_final: bool
    ending: str
    taken_ms: int
    """When its last records came; 0 where that is older than this field."""
    streams: int
    """How many streams carry it now."""
    lag: int | None
    """How many records its sender is known to have beyond the mark; only known while it is connected."""
    letters: int
    """Dead letters of the channel that wait."""


class Sessions(msgspec.Struct, frozen=True):
    """Some sessions, and the event up to which the list is complete."""

    sessions: list[SessionShown]
    as_of: EventNo
    next_cursor: str | None


class ManyRecords(msgspec.Struct, frozen=True):
    """Records of a session behind a sequence, in order."""

    channel: str
    session: str
    after: int | None = None
    """None begins with the oldest that is kept."""
    limit: int = 100


class Records(msgspec.Struct, frozen=True):
    """Records as they were spooled, byte for byte, one text each."""

    first: int
    lines: list[str]
    acked: int
    pruned: int
    is_final: bool


class ManyLetters(msgspec.Struct, frozen=True):
    """A page of dead letters, the oldest first; `cursor` is the last page's."""

    channel: str | None = None
    status: Standing | None = Standing.WAITING
    limit: int = 100
    cursor: int = 0


class OneLetter(msgspec.Struct, frozen=True):
    """Which dead letter: the number of the event that made it one."""

    event: EventNo


class LetterShown(msgspec.Struct, frozen=True):
    """A dead letter with its bytes, as far as they were kept and history still has them."""

    letter: DeadLetter
    raw: bytes | None


class Release(msgspec.Struct, frozen=True):
    """Deal with a dead letter: try again what its record asked for, or settle it."""

    event: EventNo
    retry: bool = False
    note: str = ""


class OneSession(msgspec.Struct, frozen=True):
    """Which session."""

    channel: str
    session: str


class Assign(msgspec.Struct, frozen=True):
    """Whose certificate may send for a channel; without a name it is the channel's own again."""

    channel: str
    owner: str = ""


# ------------------------------------------------------------------------------------------------ looking


async def _sessions(desk: Desk, _: Visitor, asked: ManySessions) -> Sessions | Refused:
    if no := why_not_limit(asked.limit):
        return no
    match = {} if asked.channel is None else {"channel": asked.channel}
    page = await read.page(desk.source, "mark", match, asked.cursor, asked.limit)
    found = await desk.source.ask(lambda state: [_shown(desk, state, row) for row in page.rows])
    next_cursor = page.next_after if isinstance(page.next_after, str) else None
    return Sessions(found, page.as_of, next_cursor)


def _shown(desk: Desk, state: State, row: Mark) -> SessionShown:
    mark = state.marks.get(row.id, row)
    open_now = desk.witness.of(mark.channel, mark.session) if desk.witness is not None else []
    lag = max((each.lag for each in open_now), default=None)
    owner = "" if mark.provider_id else sessions.owner_of(state, mark.channel)
    marks = (mark.acked, mark.pruned, is_final(mark), Ending(mark.ending).name, max(mark.at_ms, mark.sealed_ms))
    now = (len(open_now), lag, state.buried.get(mark.channel, 0))
    return SessionShown(mark.channel, mark.session, mark.provider_id, owner, *marks, *now)


async def _records(desk: Desk, visitor: Visitor, asked: ManyRecords) -> Records | Refused:
    if no := why_not_limit(asked.limit):
        return no
    id_ = mark_id(asked.channel, asked.session)
    mark = await desk.source.ask(lambda state: _copied(state.marks.get(id_)))
    if mark is None:
        return Refused(
            "EVD-001", f"no session {asked.session!r:.140} of channel {asked.channel!r:.140}", name="NotFound"
        )
    after = mark.pruned if asked.after is None else asked.after
    if after < mark.pruned:
        says = f"the records up to {mark.pruned} of {id_} were let go of by policy"
        return Refused("EVD-008", says, f"begin after {mark.pruned}", "EvidencePruned")
    try:
        lines = await _page(desk, asked, after, min(mark.acked, after + asked.limit))
    except Corrupt:
        pruned = await desk.source.ask(lambda state: state.marks[id_].pruned)
        if pruned <= mark.pruned:
            raise
        return await _records(desk, visitor, asked)  # they were let go of while they were read: it is told what is left
    return Records(after + 1, lines, mark.acked, mark.pruned, is_final(mark))


async def _page(desk: Desk, asked: ManyRecords, after: int, last: int) -> list[str]:
    """Some of the records up to `last`, at least one where there is any."""
    lines, size = list[str](), 0
    if after < last:
        async for _sequence, line in Stored(desk.source, asked.channel, asked.session).lines(after + 1, last):
            size += len(line)
            if lines and size > PAGE_BYTES_MAX:
                break
            lines.append(line.decode())
    return lines


def _copied(mark: Mark | None) -> Mark | None:
    return None if mark is None else msgspec.structs.replace(mark)


async def _letters(desk: Desk, _: Visitor, asked: ManyLetters) -> read.Listing | Refused:
    if no := why_not_limit(asked.limit):
        return no
    match: dict[str, object] = {} if asked.channel is None else {"channel": asked.channel}
    match |= {} if asked.status is None else {"status": str(asked.status)}
    return await read.page(desk.source, "dead_letter", match, asked.cursor, asked.limit)


async def _letter(desk: Desk, _: Visitor, asked: OneLetter) -> LetterShown | Refused:
    found = await _found(desk, asked.event)
    return found if isinstance(found, Refused) else LetterShown(found, await letter_bytes(desk.source, found.event))


async def _found(desk: Desk, event: EventNo) -> DeadLetter | Refused:
    """From memory while it waits, from the tables when it was dealt with."""

    def waiting(state: State) -> DeadLetter | None:
        letter = state.letters.get(event)
        return None if letter is None else msgspec.structs.replace(letter)

    if (letter := await desk.source.ask(waiting)) is not None:
        return letter
    page = await read.page(desk.source, "dead_letter", {}, event - 1, 1)
    if page.rows and page.rows[0].event == event:
        return page.rows[0]  # type: ignore[no-any-return]
    return Refused("EVD-007", f"no dead letter {event}", "holdfast evidence dead-letter list", "NotFound")


# ------------------------------------------------------------------------------------------------ dealing with


async def _release(desk: Desk, visitor: Visitor, asked: Release) -> LetterShown | Refused:
    letter = await _found(desk, asked.event)
    if isinstance(letter, Refused):
        return letter
    raw = await letter_bytes(desk.source, letter.event)
    ask = await ask_again(desk, letter, raw) if asked.retry else None
    if isinstance(ask, Refused):
        return ask
    command = ReleaseLetter(letter.event, asked.note, ask)
    outcome = await desk.submit(Act(visitor.name, "evidence.release", command))
    if isinstance(outcome, Refused):
        return outcome
    told = outcome.fact
    assert isinstance(told, LetterReleased)
    after = msgspec.structs.replace(letter, status=told.status, note=told.note, ended_ms=told.at_ms)
    return LetterShown(after, raw)


async def _seal(desk: Desk, visitor: Visitor, asked: OneSession) -> Done | Refused:
    command = sessions.SealSession(asked.channel, asked.session)
    return done(await desk.submit(Act(visitor.name, "evidence.seal", command)))


async def _assign(desk: Desk, visitor: Visitor, asked: Assign) -> Done | Refused:
    command = sessions.AssignChannel(asked.channel, asked.owner)
    return done(await desk.submit(Act(visitor.name, "evidence.assign", command)))


METHODS: Final[dict[str, Method]] = {
    "evidence.listSessions": Method(
        "Sessions of evidence, and how far each has come.", ManySessions, Sessions, _sessions, READERS
    ),
    "evidence.getRecords": Method("Records of a session, as they came.", ManyRecords, Records, _records, READERS),
    "evidence.listDeadLetters": Method(
        "Records that were refused for good.", ManyLetters, read.Listing, _letters, READERS
    ),
    "evidence.getDeadLetter": Method("One of them, with its bytes.", OneLetter, LetterShown, _letter, READERS),
    "evidence.release": Method(
        "Deal with a dead letter: try its ask again, or settle it.",
        Release,
        LetterShown,
        _release,
        OPERATORS,
        is_write=True,
    ),
    "evidence.seal": Method(
        "Say that nothing more comes of a session.", OneSession, Done, _seal, OPERATORS, is_write=True
    ),
    "evidence.assign": Method(
        "Say whose certificate may send for a channel.", Assign, Done, _assign, OPERATORS, is_write=True
    ),
}
