"""A spool's life on a simulated disk, step by step: every promise it makes is noted, every law is looked at."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from tests.spool.crash import laws
from tests.spool.crash.cuts import contents
from tests.spool.crash.disk import ROOT, Content, SimulatedDisk
from tests.spool.crash.laws import Broken, Promises
from tests.spool.spools import StandingClock

from holdfast.spool import Corrupt, Mode, Refused, Spool, SpoolPolicy, Ticket, Unavailable, channel
from holdfast.spool.names import RESERVE, TEMP, Place, parse

CHANNEL = "c"
FOLDER = ROOT / CHANNEL


class Setup(NamedTuple):
    """Which layout, which limits."""

    name: str
    """Also the session's."""
    segment_bytes: int | None = None
    policy: SpoolPolicy = SpoolPolicy(channel_bytes_max=1 << 20, reserve_bytes=64)
    mode: Mode = Mode.GROUP
    window: int = 1 << 18
    capacity: int | None = None


class Cut(Exception):
    """The power fails here."""


class Life:
    """One spool from opening to whatever ends it, on a disk that may have had others before."""

    def __init__(
        self, setup: Setup, disk: SimulatedDisk, promises: Promises, left: dict[str, Promises] | None = None
    ) -> None:
        self.setup, self.disk, self.promises = setup, disk, promises
        self.left = left or {}
        """What was promised by older sessions of the channel, which are closed."""
        self.spool: Spool | None = None
        self.tickets: list[Ticket] = []
        self._last_given = 0
        self.origin: Content | None = None
        """While it is being opened: what was found there, if all of it was durable."""
        self.is_strict = True
        """The disk has not failed in this life: whatever goes wrong is the spool's fault."""
        self.point: Callable[[], None] = lambda: None
        disk.point = self._at_a_point

    def _at_a_point(self) -> None:
        self.note()
        self.point()

    # -------------------------------------------------------------------------------------------- promises

    def note(self) -> None:
        """What the spool says right now, also in the middle of a step."""
        promises, spool = self.promises, self.spool
        promises.written_twice += self.disk.failed_bytes
        self.disk.failed_bytes = 0
        if spool is None:
            return
        promises.spooled = max(promises.spooled, spool.spooled_sequence)
        while self.tickets and self.tickets[0].is_durable:
            promises.confirmed = max(promises.confirmed, self.tickets.pop(0).sequence)
        promises.spooled = max(promises.spooled, promises.confirmed)
        promises.ack_stored = max(promises.ack_stored, spool.keeper.acked.reached)

    def look(self) -> None:
        """All that would be sent now, against everything that was promised; from now on it is promised, too."""
        spool, promises = self.spool, self.promises
        if spool is None:
            return
        self.note()
        first = spool.first_available
        try:
            lines = list(spool.replay(first - 1))
        except Corrupt as hole:
            raise Broken(laws.REPLAYS, str(hole)) from hole
        laws.offered(promises, first, lines)
        laws.acked(promises, spool.acked_sequence)
        cap = self.setup.policy.channel_bytes_max + promises.written_twice
        laws.below_the_cap(self.disk.most_used, cap)
        if first + len(lines) - 1 > max(promises.spooled, first - 1):
            raise Broken(laws.OFFERED, f"{first + len(lines) - 1} was offered")
        promises.lines.update(zip(range(first, first + len(lines)), lines, strict=True))

    # -------------------------------------------------------------------------------------------- deeds

    def open(self) -> None:
        """Open it, and hold the laws of recovery against what is found."""
        gone = {name for name, promises in self.left.items() if promises.are_kept}
        before = self._without(gone) if gone else self.disk.content()
        self.origin = before if self.disk.is_certain else None
        try:
            spool = self.opened()
        except Unavailable as fault:
            if self.disk.capacity is not None:  # the medium is full and it says so; with room again it must open
                self.disk.capacity = None
                self.disk.kill()
                return self.open()
            if self.is_strict:
                raise Broken(laws.OPENS, str(fault)) from fault
            return None
        if isinstance(spool, Refused):
            if not self._may_be_refused(spool):
                raise Broken(laws.OPENS, str(spool))
            return None
        if spool.damage:
            raise Broken(laws.NO_DAMAGE, spool.damage)
        self.spool, self.tickets, self._last_given = spool, [], 0
        self.origin = None
        laws.kept_or_quarantined(before, dict(self.disk.content()))
        if any(name.endswith(TEMP) and _is_of(name, self.setup.name) for name in self.disk.names):
            raise Broken(laws.UNDONE, repr(sorted(self.disk.names)))
        if gone and not gone.isdisjoint(channel.sessions(self.disk, FOLDER)):
            raise Broken(laws.LET_GO, f"{sorted(gone)} should not be there any more")
        return self.look()

    def _may_be_refused(self, no: Refused) -> bool:
        """At the cap no new session is begun; one that has begun always opens (SP-RET-003)."""
        policy, used = self.setup.policy, self.disk.used
        is_high = used * 1_000 >= policy.channel_bytes_max * policy.reopen_below_per_mille
        is_new = not self.promises.tokens and bool(self.left)
        return no.name == "SpoolFull" and is_new and (is_high or used + policy.reserve_bytes > policy.channel_bytes_max)

    def _without(self, gone: set[str]) -> Content:
        """What is there, but for the files of these sessions."""
        named = ((parse(name), name, raw) for name, raw in self.disk.content())
        return tuple((name, raw) for of, name, raw in named if of is None or of.session not in gone)

    def opened(self) -> Spool | Refused:
        setup, promises = self.setup, self.promises
        promises.openings += 1
        return Spool.open(
            CHANNEL,
            setup.name,
            root=ROOT,
            policy=setup.policy,
            mode=setup.mode,
            segment_bytes=setup.segment_bytes,
            disk=self.disk,
            clock=StandingClock(),
            chance=lambda length: blake2b(b"%d" % promises.openings, digest_size=length).digest(),
            threads=False,
            window=setup.window,
        )

    def _look_at_the_reserve(self) -> None:
        """Whoever may emit knows that the last word has its place, unless what was there before left none."""
        sizes = {name: len(inode.live) for name, inode in self.disk.names.items()}
        held, policy = sizes.pop(f"{self.setup.name}{RESERVE}", 0), self.setup.policy
        if self.is_strict and sum(sizes.values()) + policy.reserve_bytes <= policy.channel_bytes_max:
            laws.reserve(held, policy.reserve_bytes)

    def emit(self, count: int = 1, payload_type: str = "BLOCK_START") -> bool:
        """Hand records over without waiting; False where one was refused."""
        spool, promises = self.spool, self.promises
        if spool is None:
            return False
        for _ in range(count):
            promises.emitted += 1
            expected = max(spool.spooled_sequence, spool.acked_sequence, self._last_given) + 1
            ticket = spool.emit(payload_type, {"n": promises.emitted})
            is_finished = isinstance(ticket, Refused) and ticket.name == "SessionFinished"
            laws.finality(promises, is_finished, promises.lines.get(spool.spooled_sequence, b""))
            if isinstance(ticket, Refused):
                return False
            laws.numbered(promises, ticket.sequence, expected)
            self._look_at_the_reserve()
            self._last_given = ticket.sequence
            known = promises.tokens.get(ticket.sequence, ())
            promises.tokens[ticket.sequence] = (*known, promises.emitted)
            self.tickets.append(ticket)
        return True

    def step(self) -> None:
        """Until nothing is left to do."""
        if self.spool is not None:
            while self.spool.writer.step():
                self.note()
            self.spool.step()
            self.note()

    def ack(self, sequence: int) -> None:
        if self.spool is None or sequence > self.spool.spooled_sequence:
            return
        self.promises.ack_told = max(self.promises.ack_told, sequence)
        self.spool.ack(sequence)
        self.step()

    def compact(self) -> None:
        """Drop what is acked, and let the writer write while the copy is made, as it would in its own thread."""
        spool = self.spool
        if spool is None:
            return
        spool.compact()
        before, outer = self.disk.calls, self.point

        def meanwhile() -> None:
            outer()
            if self.disk.verbs[-1] == "create" and self.disk.calls > before:
                self.point = outer
                spool.writer.step()

        self.point = meanwhile
        spool.keeper.step()
        self.point = outer
        self.step()

    def close(self, *, final: bool = False) -> None:
        spool, self.spool = self.spool, None
        if spool is None:
            return
        if final:
            self.promises.final = self.promises.final or "asked"
        try:
            refused = spool.close(final=final)
        except Unavailable:
            if self.is_strict:
                raise
            return
        self.promises.spooled = max(self.promises.spooled, spool.spooled_sequence)
        if final and refused is None:
            self.promises.final = "said"

    # -------------------------------------------------------------------------------------------- older sessions

    def begin_another(self) -> None:
        """Close this session for now and go on in a new one of the same channel."""
        if self.spool is None:
            return
        self.close()
        self.left[self.setup.name] = self.promises
        self.setup = self.setup._replace(name=f"{self.setup.name}-{len(self.left)}")
        self.promises = Promises(self.promises.written_twice)
        self.open()

    def look_at_what_may_go(self) -> None:
        """An older session that was delivered as a whole is finished or gone, whatever a crash has left of it."""
        for name, promises in self.left.items():
            if promises.are_kept and name in channel.sessions(self.disk, FOLDER):
                standing = channel.standing(self.disk, Place(FOLDER, CHANNEL, name))
                if not (standing.is_finished and standing.may_go):
                    raise Broken(laws.NEVER_HALF_GONE, f"{name}: {sorted(self.disk.names)}")

    def look_at_the_left(self) -> None:
        """Any other older session is listed, and all there."""
        for name, promises in self.left.items():
            if promises.are_kept:
                continue
            waiting = [found.place.session for found in channel.undelivered(ROOT, CHANNEL, self.disk)]
            if promises.spooled > promises.ack_told and name not in waiting:
                raise Broken(laws.LISTED, f"{name} is not among {waiting}")
            other = Life(self.setup._replace(name=name), self.disk, promises.copied())
            other.open()
            if other.emit():
                other.step()
            other.look()

    # -------------------------------------------------------------------------------------------- crashes

    def key(self) -> bytes:
        """Two lives with one key ask the same of a disk."""
        return repr((self.setup.name, self.promises.key(), [one.key() for one in self.left.values()])).encode()

    def kill(self) -> None:
        """The process dies, the machine goes on."""
        self.spool = None
        self.disk.kill()

    def cut(self, which: float) -> None:
        """The power fails; of all that it may leave it leaves this."""
        found = list(contents(self.disk, 3))
        self.spool = None
        self.disk = SimulatedDisk(found[int(which * (len(found) - 1))], self.disk.capacity)
        self.disk.point = self._at_a_point


def _is_of(name: str, session: str) -> bool:
    named = parse(name)
    return named is not None and named.session == session
