"""A sender of evidence in a simulated world: the real spool on a simulated disk, the real custody, a network that lies.

Every step is drawn from one seed. What was promised is noted as it is promised, and the laws are looked at after every
step: they are what EVD-001 to EVD-004 and SP-ACK-001 to -004 say.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random

from tests.simulated.network import Ack, Records, SimulatedNode, Stream, taken
from tests.spool.crash.cuts import contents
from tests.spool.crash.disk import ROOT, SimulatedDisk
from tests.spool.spools import StandingClock

from holdfast.agent.custody import Custody, begun
from holdfast.agent.delivery import pieces
from holdfast.spool import Refused, Spool, SpoolPolicy, Ticket

CHANNEL = "c"
STILL_MS = 30_000
POLICY = SpoolPolicy(channel_bytes_max=1 << 22, reserve_bytes=64)


class Cut(Exception):
    """The power fails in the middle of something."""


class Way:
    """One session and its stream, if it has one."""

    def __init__(self, session: str, spool: Spool) -> None:
        self.session, self.spool = session, spool
        self.stream: Stream | None = None
        self.custody: Custody | None = None
        self.before = spool.spooled_sequence
        self.tickets: list[tuple[Ticket, int]] = []

    def leave(self) -> None:
        if self.custody is not None:
            self.before = max(self.before, self.custody.sent)
        if self.stream is not None:
            self.stream.is_cut = True
        self.stream = self.custody = None


class Sender:
    """One channel: sessions that may be resumed or left behind, and everything it has promised."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock, self.node = Random(seed), StandingClock(), SimulatedNode()
        self.disk, self.ways, self.streams = SimulatedDisk(), dict[str, Way](), list[Stream]()
        self.promised: dict[str, dict[int, int]] = {}
        """By session and sequence: the token of a record whose ticket was reached."""
        self._tokens = self._openings = self._sessions = 0
        self._acked: dict[str, int] = {}
        self._marks: dict[str, int] = {}
        self.faults = 0.1
        self.begin()

    # -------------------------------------------------------------------------------------------- living

    @property
    def live(self) -> Way:
        return self.ways[max(self.ways)]

    def begin(self) -> None:
        """A new session beside those that are left."""
        self._sessions += 1
        self.open(f"s{self._sessions:03d}")

    def open(self, session: str) -> None:
        self._openings += 1
        seed = b"%d" % self._openings
        spool = Spool.open(
            CHANNEL,
            session,
            root=ROOT,
            policy=POLICY,
            disk=self.disk,
            clock=self.clock,
            chance=lambda length: blake2b(seed, digest_size=length).digest(),
            threads=False,
        )
        assert isinstance(spool, Spool), spool
        assert not spool.damage, spool.damage
        self.ways[session] = Way(session, spool)

    def emit(self, count: int) -> None:
        way = self.live
        for _ in range(count):
            self._tokens += 1
            ticket = way.spool.emit("BLOCK_START", {"n": self._tokens})
            assert isinstance(ticket, Ticket), ticket
            way.tickets.append((ticket, self._tokens))

    def step(self, way: Way) -> None:
        way.spool.step()
        self.note()

    def note(self) -> None:
        for way in self.ways.values():
            while way.tickets and way.tickets[0][0].is_durable:
                ticket, token = way.tickets.pop(0)
                self.promised.setdefault(way.session, {})[ticket.sequence] = token

    # -------------------------------------------------------------------------------------------- the stream

    def connect(self, way: Way) -> None:
        way.leave()
        way.stream = Stream(way.session)
        self.streams.append(way.stream)
        self.node.greet(way.stream)

    def hear(self, way: Way) -> None:
        """The next thing that the node said; the first of it answers the hello and is never overtaken."""
        stream = way.stream
        if stream is None or not stream.to_sender:
            return
        if way.custody is None:
            told = stream.to_sender.pop(0)
            custody = begun(way.spool, told.acked, 4_000, way.before, self.clock.now_ms)
            assert isinstance(custody, Custody), f"a gap that nobody made: {custody}"
            way.custody = custody
            return
        told_ = taken(self.random, stream.to_sender, self.faults)
        if isinstance(told_, Ack):
            self._take_ack(way, way.custody, told_)

    def _take_ack(self, way: Way, custody: Custody, told: Ack) -> None:
        no = custody.hear(told.acked, 4_000, self.clock.now_ms)
        assert no is None, f"an ack of this node was called false: {no}"
        if told.acked > way.spool.acked_sequence:
            assert not isinstance(way.spool.ack(told.acked), Refused)
        if told.is_gap:
            way.leave()

    def send(self, way: Way) -> None:
        custody, stream = way.custody, way.stream
        if custody is None or stream is None:
            return
        most = self.random.randrange(1, 2_000)
        for batch in way.spool.batches(custody.sent):
            for first, lines in pieces(batch, min(custody.piece_bytes_max, most)):
                last, size = first + len(lines) - 1, sum(map(len, lines))
                if custody.passes_over(last):
                    continue
                if not custody.may_send(size) or self.random.random() < 0.1:
                    return
                assert last <= way.spool.spooled_sequence, "SP-005: sent before it was spooled"
                custody.send(last, size, self.clock.now_ms)
                stream.to_node.append(Records(first, lines))

    def arrive(self) -> None:
        """Something that was sent reaches the node, perhaps on a stream that its sender has left."""
        full = [stream for stream in self.streams if stream.to_node and not stream.is_dead]
        if full:
            stream = self.random.choice(full)
            told = taken(self.random, stream.to_node, self.faults)
            if isinstance(told, Records):
                self.node.hear(stream, told)

    def tick(self) -> None:
        """Time passes; whose acks stand still, dials anew."""
        self.clock.now_ms += self.random.randrange(STILL_MS)
        for way in self.ways.values():
            if way.custody is not None and way.custody.still_ms(self.clock.now_ms) >= STILL_MS:
                way.leave()

    # -------------------------------------------------------------------------------------------- crashes

    def node_crashes(self) -> None:
        self.node.crash()
        for stream in self.streams:
            stream.is_dead = True
        self.streams.clear()
        for way in self.ways.values():
            way.leave()

    def crash(self, *, is_power: bool) -> None:
        """The process or the machine dies; the next one takes up all sessions, and goes on in one or begins another."""
        names = list(self.ways)
        for way in self.ways.values():
            way.leave()
        if is_power and len(self.disk.changes) <= 6:
            found = list(contents(self.disk, 2))
            self.disk = SimulatedDisk(self.random.choice(found))
        else:
            self.disk.kill()
        self.disk.point = lambda: None
        self.ways = {}
        for name in names:
            self.open(name)
        if self.random.random() < 0.4:
            self.begin()

    def with_a_fuse(self, calls: int) -> None:
        """Work on the disk that is cut after so many changes of it."""
        left = calls

        def burn() -> None:
            nonlocal left
            self.note()
            left -= 1
            if left <= 0:
                raise Cut

        self.disk.point = burn
        try:
            for way in list(self.ways.values()):
                way.spool.step()
                if self.random.random() < 0.5:
                    way.spool.compact()
                    way.spool.step()
        except Cut:
            self.crash(is_power=self.random.random() < 0.5)
        self.disk.point = lambda: None

    # -------------------------------------------------------------------------------------------- laws

    def look(self) -> None:
        """EVD-002, EVD-003, SP-ACK-001, SP-RET-002: at any moment."""
        assert not self.node.conflicts, self.node.conflicts
        for session, way in self.ways.items():
            mark = self.node.mark(session)
            assert mark >= self._marks.get(session, 0), "the node's mark went back"
            assert way.spool.acked_sequence <= mark, "an ack that is not true"
            assert way.spool.first_available - 1 <= mark, "something unacked was deleted"
            self._marks[session] = mark

    def deliver_all(self, rounds: int = 2_000) -> None:
        """Faults end; everything gets through, within bounds."""
        self.faults = 0.0
        for _ in range(rounds):
            waiting = [way for way in self.ways.values() if way.spool.acked_sequence < way.spool.spooled_sequence]
            if not waiting and not self.live.tickets:
                return
            for way in list(self.ways.values()):
                self.step(way)
                if way.stream is None:
                    self.connect(way)
                self.hear(way)
                self.send(way)
            while any(stream.to_node for stream in self.streams if not stream.is_dead):
                self.arrive()
            self.node.commit()
            self.tick()
            self.look()
        raise AssertionError("it never gets through")
