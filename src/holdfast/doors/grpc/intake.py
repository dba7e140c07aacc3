"""Taking records of one session, whichever service they came by (EVD-002, EVD-003, EVD-007).

The mark in the state decides, not the stream: whatever is cut, sent twice or sent on two streams, a record is stored
once, and one that comes again is compared with the one that is stored.
"""

from __future__ import annotations

import structlog

from holdfast.core import law
from holdfast.core.evidence.letters import Dead
from holdfast.core.evidence.marks import TakeEvidence, mark_id
from holdfast.core.lease.acts import FailLease
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.state import State
from holdfast.doors.completing import completion
from holdfast.doors.grpc.agentdesk import AgentDesk
from holdfast.doors.records import NO_OUTPUT, Asked, Examined, From, buried, examine, is_same, packed
from holdfast.doors.stored import Stored
from holdfast.doors.witness import Open, Witness
from holdfast.engine.outcome import Accepted, Outcome

_log = structlog.get_logger()


class Intake:
    """One session, while somebody sends records of it."""

    def __init__(self, at: AgentDesk, who: From, witness: Witness, seen: Open) -> None:
        self._at, self._who, self._witness, self._seen = at, who, witness, seen
        self._tally = witness.tally
        self._stored = Stored(at.engine, who.channel, who.session)
        self._pruned = 0
        self.mark = 0

    async def look(self) -> None:
        """The mark, as everybody will find it after a crash."""
        id_ = mark_id(self._who.channel, self._who.session)

        def now(state: State) -> tuple[int, int]:
            mark = state.marks.get(id_)
            return (0, 0) if mark is None else (mark.acked, mark.pruned)

        acked, self._pruned = await self._at.engine.ask(now)
        self._move(max(self.mark, acked))

    @property
    def is_behind(self) -> bool:
        """The sender has records that we do not have."""
        return self._seen.emitted > self.mark

    def _move(self, mark: int) -> None:
        self.mark = self._seen.acked = mark
        self._seen.emitted = max(self._seen.emitted, mark)

    async def take(self, first: int, lines: list[bytes]) -> Refused | None:
        """EVD-002: what follows the mark is stored, what is below it is compared, a gap is refused; nothing moves then.

        Every refusal leaves the mark where it was; an `EvidenceGap` may be mended on the same stream.
        """
        if first < 1:
            return Refused("EVD-001", f"a record with the sequence {first}", "a session begins with 1", "InvalidParams")
        if first > self.mark + 1:
            self._tally.gaps += 1
            says = f"{self._who.channel}/{self._who.session}: {first} does not follow {self.mark}"
            return Refused("EVD-002", says, "send again from the mark", "EvidenceGap")
        self._seen.emitted = max(self._seen.emitted, first + len(lines) - 1)
        while lines:
            known = min(self.mark + 1 - first, len(lines))
            if known and (no := await self._why_not_again(first, lines[:known])):
                return no
            lines, first = lines[known:], first + known
            if lines:
                stored = await self._store(first, lines)
                if isinstance(stored, Refused):
                    return stored
                lines, first = lines[stored:], first + stored
        return None

    async def _why_not_again(self, first: int, lines: list[bytes]) -> Refused | None:
        """EVD-003: what comes again has no effect; another record under a known sequence is a conflict.

        What is let go of while it is read is no hole: it is looked again.
        """
        while True:
            pruned = self._pruned
            try:
                return await self._compared(first, lines)
            except Corrupt:
                await self.look()
                if self._pruned == pruned:
                    raise

    async def _compared(self, first: int, lines: list[bytes]) -> Refused | None:
        """Duplicates are rare, so the stored ones are read. What was pruned is known by its number alone."""
        begin, last = max(first, self._pruned + 1), first + len(lines) - 1
        if begin <= last:
            async for sequence, stored in self._stored.lines(begin, last):
                if not is_same(stored, lines[sequence - first]):
                    self._tally.conflicts += 1
                    says = f"{self._who.channel}/{self._who.session}: {sequence} is stored with another event_uuid"
                    return Refused("EVD-003", says, "a sequence is used once: begin a new session", "SequenceConflict")
        self._tally.duplicates += len(lines)
        return None

    async def _store(self, first: int, lines: list[bytes]) -> int | Refused:
        """Some of the lines that follow the mark, and how many; none where somebody else was faster."""
        found = await self._at.in_pool(examine, self._who, self._at.verify, first, lines)
        commands = await self._commands(found)
        if (fitting := self._fitting(first, found)) < len(found.lines):
            return await self._store(first, lines[:fitting])
        return await self._submit(first, found, commands)

    def _fitting(self, first: int, found: Examined) -> int:
        """EVD-007: what comes before the first dead letter too many is stored; from there on the channel waits.

        Else letters that come together could be too many for a bound that none of them has been counted against.
        """
        state = self._at.engine.state
        room = state.policy.evidence.dead_letters_per_channel_max - state.buried.get(self._who.channel, 0)
        if len(found.dead) <= room:
            return len(found.lines)
        before = sorted(each.sequence for each in found.dead)[max(0, room)] - first
        return before or len(found.lines)

    async def _submit(self, first: int, found: Examined, commands: list[law.Command]) -> int | Refused:
        """Records, mark and what they ask for in one batch of the journal, durable when this returns."""
        who, last = self._who, first + len(found.lines) - 1
        where = (who.provider_id, who.channel, who.session, first, last)
        taking = TakeEvidence(*where, packed(found.lines), tuple(found.dead), found.ending)
        taken, *outcomes = await self._at.engine.submit_together([taking, *commands])
        if isinstance(taken, Accepted) and not taken.is_repeat:
            self._move(last)
            self._count(found, outcomes)
            return len(found.lines)
        before = self.mark
        await self.look()
        return taken if isinstance(taken, Refused) and self.mark == before else 0

    async def _commands(self, found: Examined) -> list[law.Command]:
        """What the records ask for. A completion without its bytes is stored as what it is: evidence (RCV-001)."""
        commands: list[law.Command] = []
        for asked in found.asked:
            command = await command_of(self._at, self._who, asked)
            if isinstance(command, Refused):
                found.dead.append(buried(asked.sequence, (NO_OUTPUT, command.says), asked.line, is_stored=True))
            else:
                commands.append(command)
        return commands

    def _count(self, found: Examined, outcomes: list[Outcome]) -> None:
        """A no to what a record asks for is told nobody but the operator: the record is stored all the same."""
        no = [str(outcome) for outcome in outcomes if isinstance(outcome, Refused)]
        unheard = sum(dead.is_stored for dead in found.dead)
        self._witness.stored_together(len(found.lines))
        self._tally.unheard += unheard
        self._tally.poison += len(found.dead) - unheard
        self._tally.refused += len(no)
        if found.dead or no:
            because = [*map(_said, found.dead), *no]
            _log.info("evidence without effect", channel=self._who.channel, because=because[:8])


async def command_of(at: AgentDesk, who: From, asked: Asked) -> law.Command | Refused:
    """The command that a record asks for."""
    if isinstance(asked.what, FailLease):
        return asked.what
    return await completion(at.blobs, who.provider_id, asked.what)


def _said(dead: Dead) -> str:
    return f"record {dead.sequence}: {dead.name}: {dead.reason}"
