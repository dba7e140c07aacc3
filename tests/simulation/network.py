"""A network that drops, doubles, reorders and cuts, a node that may crash before it has made anything durable, and the
messages between them: what a sender of evidence meets, all of it drawn from one seed."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.simulation.world import DEVELOPMENT

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.evidence.messages import StoreEvidence
from holdfast.core.evidence.model import NO_PROVIDER, acked_sequence
from holdfast.core.state import State

NEAR = 3
"""A message overtakes at most so many others."""


class Records(NamedTuple):
    first: int
    lines: list[bytes]


class Ack(NamedTuple):
    acked: int
    is_gap: bool = False


class Stream:
    """One session's stream: what is under way in both directions. A cut one delivers nothing to its sender any more,
    but what was sent on it may still reach the node, late."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.to_node: list[Records] = []
        self.to_sender: list[Ack] = []
        self.has_handshake = self.is_cut = self.is_dead = False
        """Greeted: the node has heard the hello. Cut: its sender has left it. Dead: the node has left it, too."""


def next_delivery(random: Random, queue: list[Records] | list[Ack], faults: float) -> Records | Ack | None:
    """The next message, or one that overtook it, or the same once more; None where it is lost."""
    at = random.randrange(min(NEAR, len(queue))) if random.random() < faults else 0
    message = queue[at]
    if random.random() >= faults:  # else it comes again
        del queue[at]
    return None if random.random() < faults else message


class SimulatedNode:
    """The node's rule (`core.evidence`) over a journal that keeps what was committed and nothing else."""

    def __init__(self) -> None:
        self.durable: list[Event] = []
        self.lines: dict[str, list[bytes]] = {}
        """Durable, by session."""
        self._open: list[Event] = []
        self._open_lines: list[tuple[str, list[bytes]]] = []
        self._owed: list[Stream] = []
        """Whose acks wait for the commit."""
        self._state = State(DEVELOPMENT)
        self.conflicts: list[str] = []

    def watermark(self, session: str) -> int:
        return len(self.lines.get(session, []))

    def handshake(self, stream: Stream) -> None:
        """The answer is the mark as everybody finds it after a crash: what is open is committed first."""
        self.commit()
        stream.has_handshake = True
        stream.to_sender.append(Ack(self.watermark(stream.session)))

    def receive(self, stream: Stream, records: Records) -> None:
        mark = acked_sequence(self._state, "air", stream.session)
        if records.first > mark + 1:
            stream.to_sender.append(Ack(self.watermark(stream.session), is_gap=True))
            return
        self._compare(stream.session, records)
        fresh = records.lines[mark + 1 - records.first :]
        if fresh:
            self._store(stream.session, mark + 1, fresh)
        if stream not in self._owed:
            self._owed.append(stream)

    def _compare(self, session: str, records: Records) -> None:
        known = [*self.lines.get(session, [])]
        for name, lines in self._open_lines:
            known += lines if name == session else []
        for sequence, line in enumerate(records.lines, records.first):
            if sequence <= len(known) and known[sequence - 1] != line:
                self.conflicts.append(f"{session}: {sequence} came with other bytes")

    def _store(self, session: str, first: int, lines: list[bytes]) -> None:
        packed = b"\n".join([*lines, b""])
        command = StoreEvidence(NO_PROVIDER, "air", session, first, first + len(lines) - 1, packed)
        decided = state_machine.decide(self._state, command, 1)
        assert not isinstance(decided, Refused), decided
        for event in decided.events:
            state_machine.apply(self._state, event)
            self._open.append(event)
        self._open_lines.append((session, lines))

    def commit(self) -> None:
        """One batch: durable, and only then acked."""
        self.durable += self._open
        for session, lines in self._open_lines:
            self.lines.setdefault(session, []).extend(lines)
        for stream in self._owed:
            stream.to_sender.append(Ack(self.watermark(stream.session)))
        self._open, self._open_lines, self._owed = [], [], []

    def crash(self) -> None:
        """What was not committed is gone, and every answer that was owed."""
        self._open, self._open_lines, self._owed = [], [], []
        self._state = State(DEVELOPMENT)
        for event in self.durable:
            state_machine.apply(self._state, event)
