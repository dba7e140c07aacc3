"""A spool on a simulated disk, step by step: every promise is recorded, every invariant is checked."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from tests.spool.crash import invariants
from tests.spool.crash.crash_contents import crash_contents
from tests.spool.crash.invariants import InvariantBroken, Promises
from tests.spool.crash.simulated_disk import ROOT, Content, SimulatedDisk
from tests.spool.spools import ManualClock

from holdfast.spool import Corrupt, Mode, Refused, Spool, SpoolPolicy, Ticket, Unavailable, channel
from holdfast.spool.channel_quota import is_above_low_water
from holdfast.spool.files.names import RESERVE, TEMP, SessionPaths, is_of_session, parse_file_name

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


class PowerCut(Exception):
    """The power fails here."""


class SpoolRun:
    """One spool from opening to whatever ends it, on a disk that may have had others before."""

    def __init__(
        self, setup: Setup, disk: SimulatedDisk, promises: Promises, closed_sessions: dict[str, Promises] | None = None
    ) -> None:
        self.setup, self.disk, self.promises = setup, disk, promises
        self.closed_sessions = closed_sessions or {}
        """What was promised by older sessions of the channel, which are closed."""
        self.spool: Spool | None = None
        self.tickets: list[Ticket] = []
        self._last_given = 0
        self.origin: Content | None = None
        """While it is being opened: what was found there, if all of it was durable."""
        self.is_strict = True
        """The disk has not failed in this life: whatever goes wrong is the spool's fault."""
        self.point: Callable[[], None] = lambda: None
        disk.point = self._on_disk_change

    def _on_disk_change(self) -> None:
        self.record_promises()
        self.point()

    # -------------------------------------------------------------------------------------------- promises

    def record_promises(self) -> None:
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
        promises.ack_stored = max(promises.ack_stored, spool.maintainer.ack_stored.reached)

    def check_offered(self) -> None:
        """All that would be sent now, against everything that was promised; from now on it is promised, too."""
        spool, promises = self.spool, self.promises
        if spool is None:
            return
        self.record_promises()
        first = spool.first_available
        try:
            lines = list(spool.replay(first - 1))
        except Corrupt as hole:
            raise InvariantBroken(invariants.REPLAYS, str(hole)) from hole
        invariants.check_offered(promises, first, lines)
        invariants.check_acked(promises, spool.acked_sequence)
        cap = self.setup.policy.channel_bytes_max + promises.written_twice
        invariants.check_below_cap(self.disk.most_used, cap)
        if first + len(lines) - 1 > max(promises.spooled, first - 1):
            raise InvariantBroken(invariants.OFFERED, f"{first + len(lines) - 1} was offered")
        promises.lines.update(zip(range(first, first + len(lines)), lines, strict=True))

    # -------------------------------------------------------------------------------------------- actions

    def open(self) -> None:
        """Open it, and check the invariants of recovery."""
        gone = {name for name, promises in self.closed_sessions.items() if promises.are_kept}
        before = self._content_without(gone) if gone else self.disk.content()
        self.origin = before if self.disk.is_certain else None
        try:
            spool = self.open_spool()
        except Unavailable as fault:
            if self.disk.capacity is not None:  # the medium is full and it says so; with room again it must open
                self.disk.capacity = None
                self.disk.kill()
                return self.open()
            if self.is_strict:
                raise InvariantBroken(invariants.OPENS, str(fault)) from fault
            return None
        if isinstance(spool, Refused):
            if not self._may_be_refused(spool):
                raise InvariantBroken(invariants.OPENS, str(spool))
            return None
        if spool.damage:
            raise InvariantBroken(invariants.NO_DAMAGE, spool.damage)
        self.spool, self.tickets, self._last_given = spool, [], 0
        self.origin = None
        invariants.check_kept_or_quarantined(before, dict(self.disk.content()))
        if any(name.endswith(TEMP) and is_of_session(name, self.setup.name) for name in self.disk.names):
            raise InvariantBroken(invariants.NO_LEFTOVERS, repr(sorted(self.disk.names)))
        if gone and not gone.isdisjoint(channel.list_sessions(self.disk, FOLDER)):
            raise InvariantBroken(invariants.RECLAIMED, f"{sorted(gone)} should not be there any more")
        return self.check_offered()

    def _may_be_refused(self, refusal: Refused) -> bool:
        """At the cap no new session is begun; one that has begun always opens (SP-RET-003)."""
        policy, used = self.setup.policy, self.disk.used
        is_high = is_above_low_water(used, policy)
        is_new = not self.promises.tokens and bool(self.closed_sessions)
        return (
            refusal.name == "SpoolFull"
            and is_new
            and (is_high or used + policy.reserve_bytes > policy.channel_bytes_max)
        )

    def _content_without(self, gone: set[str]) -> Content:
        """What is there, but for the files of these sessions."""
        named = ((parse_file_name(name), name, raw) for name, raw in self.disk.content())
        return tuple((name, raw) for of, name, raw in named if of is None or of.session not in gone)

    def open_spool(self) -> Spool | Refused:
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
            clock=ManualClock(),
            random_bytes=lambda length: blake2b(b"%d" % promises.openings, digest_size=length).digest(),
            threads=False,
            window=setup.window,
        )

    def _check_reserve(self) -> None:
        """While emits are accepted there is space for the last record, unless the folder was full before."""
        sizes = {name: len(inode.live) for name, inode in self.disk.names.items()}
        held, policy = sizes.pop(f"{self.setup.name}{RESERVE}", 0), self.setup.policy
        if self.is_strict and sum(sizes.values()) + policy.reserve_bytes <= policy.channel_bytes_max:
            invariants.check_reserve(held, policy.reserve_bytes)

    def emit(self, count: int = 1, payload_type: str = "BLOCK_START") -> bool:
        """Emit records without waiting; False where one was refused."""
        spool, promises = self.spool, self.promises
        if spool is None:
            return False
        for _ in range(count):
            promises.emitted += 1
            expected = max(spool.spooled_sequence, spool.acked_sequence, self._last_given) + 1
            ticket = spool.emit(payload_type, {"n": promises.emitted})
            is_finished = isinstance(ticket, Refused) and ticket.name == "SessionFinished"
            invariants.check_finality(promises, is_finished, promises.lines.get(spool.spooled_sequence, b""))
            if isinstance(ticket, Refused):
                return False
            invariants.check_numbered(promises, ticket.sequence, expected)
            self._check_reserve()
            self._last_given = ticket.sequence
            known = promises.tokens.get(ticket.sequence, ())
            promises.tokens[ticket.sequence] = (*known, promises.emitted)
            self.tickets.append(ticket)
        return True

    def step(self) -> None:
        """Until nothing is left to do."""
        if self.spool is not None:
            while self.spool.writer.step():
                self.record_promises()
            self.spool.step()
            self.record_promises()

    def ack(self, sequence: int) -> None:
        if self.spool is None or sequence > self.spool.spooled_sequence:
            return
        self.promises.ack_received = max(self.promises.ack_received, sequence)
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
        spool.maintainer.step()
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

    def open_another_session(self) -> None:
        """Close this session for now and go on in a new one of the same channel."""
        if self.spool is None:
            return
        self.close()
        self.closed_sessions[self.setup.name] = self.promises
        self.setup = self.setup._replace(name=f"{self.setup.name}-{len(self.closed_sessions)}")
        self.promises = Promises(self.promises.written_twice)
        self.open()

    def check_reclaimable(self) -> None:
        """An older session that was delivered as a whole is finished or gone, whatever a crash has left of it."""
        for name, promises in self.closed_sessions.items():
            if promises.are_kept and name in channel.list_sessions(self.disk, FOLDER):
                standing = channel.read_status(self.disk, SessionPaths(FOLDER, CHANNEL, name))
                if not (standing.is_finished and standing.is_reclaimable):
                    raise InvariantBroken(invariants.NEVER_HALF_GONE, f"{name}: {sorted(self.disk.names)}")

    def check_closed_sessions(self) -> None:
        """Any other older session is listed, and all there."""
        for name, promises in self.closed_sessions.items():
            if promises.are_kept:
                continue
            waiting = [found.paths.session for found in channel.undelivered_sessions(ROOT, CHANNEL, self.disk)]
            if promises.spooled > promises.ack_received and name not in waiting:
                raise InvariantBroken(invariants.LISTED, f"{name} is not among {waiting}")
            other = SpoolRun(self.setup._replace(name=name), self.disk, promises.copy())
            other.open()
            if other.emit():
                other.step()
            other.check_offered()

    # -------------------------------------------------------------------------------------------- crashes

    def key(self) -> bytes:
        """Two lives with one key ask the same of a disk."""
        return repr(
            (self.setup.name, self.promises.key(), [one.key() for one in self.closed_sessions.values()])
        ).encode()

    def kill(self) -> None:
        """The process dies, the machine goes on."""
        self.spool = None
        self.disk.kill()

    def cut_power(self, which: float) -> None:
        """The power fails; of all that it may leave it leaves this."""
        found = list(crash_contents(self.disk, 3))
        self.spool = None
        self.disk = SimulatedDisk(found[int(which * (len(found) - 1))], self.disk.capacity)
        self.disk.point = self._on_disk_change
