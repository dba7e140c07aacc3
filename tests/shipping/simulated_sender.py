"""A sender of evidence in a simulation: the real spool on a simulated disk, real flow control, an unreliable network.

Every step is drawn from one seed. Promises are recorded, and the invariants are checked after every step:
those of EVD-001 to EVD-004 and SP-ACK-001 to -004.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random

from tests.simulation.network import Ack, Records, SimulatedNode, Stream, next_delivery
from tests.spool.crash.crash_contents import crash_contents
from tests.spool.crash.simulated_disk import ROOT, SimulatedDisk
from tests.spool.spools import ManualClock

from holdfast.shipping.flow_control import SendWindow, open_window
from holdfast.shipping.session_sender import split_batch
from holdfast.spool import Refused, Spool, SpoolPolicy, Ticket

CHANNEL = "c"
ACK_STALL_MS = 30_000
POLICY = SpoolPolicy(channel_bytes_max=1 << 22, reserve_bytes=64)


class PowerFailure(Exception):
    """The power fails in the middle of something."""


class SimulatedSession:
    """One session and its stream, if it has one."""

    def __init__(self, session: str, spool: Spool) -> None:
        self.session, self.spool = session, spool
        self.stream: Stream | None = None
        self.window: SendWindow | None = None
        self.sent_before = spool.spooled_sequence
        self.tickets: list[tuple[Ticket, int]] = []

    def disconnect(self) -> None:
        if self.window is not None:
            self.sent_before = max(self.sent_before, self.window.sent)
        if self.stream is not None:
            self.stream.is_cut = True
        self.stream = self.window = None


class SimulatedSender:
    """One channel: sessions that may be resumed or left behind, and everything it has promised."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock, self.node = Random(seed), ManualClock(), SimulatedNode()
        self.disk, self.sessions, self.streams = SimulatedDisk(), dict[str, SimulatedSession](), list[Stream]()
        self.promised: dict[str, dict[int, int]] = {}
        """By session and sequence: the token of a record whose ticket was reached."""
        self._tokens = self._openings = self._session_count = 0
        self._acked: dict[str, int] = {}
        self._watermarks: dict[str, int] = {}
        self.faults = 0.1
        self.open_new_session()

    # -------------------------------------------------------------------------------------------- living

    @property
    def live(self) -> SimulatedSession:
        return self.sessions[max(self.sessions)]

    def open_new_session(self) -> None:
        """A new session beside those that are left."""
        self._session_count += 1
        self.open(f"s{self._session_count:03d}")

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
            random_bytes=lambda length: blake2b(seed, digest_size=length).digest(),
            threads=False,
        )
        assert isinstance(spool, Spool), spool
        assert not spool.damage, spool.damage
        self.sessions[session] = SimulatedSession(session, spool)

    def emit(self, count: int) -> None:
        core = self.live
        for _ in range(count):
            self._tokens += 1
            ticket = core.spool.emit("BLOCK_START", {"n": self._tokens})
            assert isinstance(ticket, Ticket), ticket
            core.tickets.append((ticket, self._tokens))

    def step(self, session: SimulatedSession) -> None:
        session.spool.step()
        self.record_promises()

    def record_promises(self) -> None:
        for core in self.sessions.values():
            while core.tickets and core.tickets[0][0].is_durable:
                ticket, token = core.tickets.pop(0)
                self.promised.setdefault(core.session, {})[ticket.sequence] = token

    # -------------------------------------------------------------------------------------------- the stream

    def connect(self, session: SimulatedSession) -> None:
        session.disconnect()
        session.stream = Stream(session.session)
        self.streams.append(session.stream)
        self.node.handshake(session.stream)

    def receive(self, session: SimulatedSession) -> None:
        """The next thing that the node said; the first of it answers the hello and is never overtaken."""
        stream = session.stream
        if stream is None or not stream.to_sender:
            return
        if session.window is None:
            told = stream.to_sender.pop(0)
            window = open_window(session.spool, told.acked, 4_000, session.sent_before, self.clock.now_ms)
            assert isinstance(window, SendWindow), f"a gap without a cause: {window}"
            session.window = window
            return
        told_ = next_delivery(self.random, stream.to_sender, self.faults)
        if isinstance(told_, Ack):
            self._on_ack(session, session.window, told_)

    def _on_ack(self, session: SimulatedSession, window: SendWindow, ack: Ack) -> None:
        no = window.on_ack(ack.acked, 4_000, self.clock.now_ms)
        assert no is None, f"an ack of this node was called false: {no}"
        if ack.acked > session.spool.acked_sequence:
            assert not isinstance(session.spool.ack(ack.acked), Refused)
        if ack.is_gap:
            session.disconnect()

    def send(self, session: SimulatedSession) -> None:
        window, stream = session.window, session.stream
        if window is None or stream is None:
            return
        most = self.random.randrange(1, 2_000)
        for batch in session.spool.batches(window.sent):
            for first, lines in split_batch(batch, min(window.batch_bytes_max, most)):
                last, size = first + len(lines) - 1, sum(map(len, lines))
                if window.skip_if_acked(last):
                    continue
                if not window.may_send(size) or self.random.random() < 0.1:
                    return
                assert last <= session.spool.spooled_sequence, "SP-005: sent before it was spooled"
                window.record_sent(last, size, self.clock.now_ms)
                stream.to_node.append(Records(first, lines))

    def deliver_one(self) -> None:
        """Something that was sent reaches the node, perhaps on a stream that its sender has left."""
        full = [stream for stream in self.streams if stream.to_node and not stream.is_dead]
        if full:
            stream = self.random.choice(full)
            told = next_delivery(self.random, stream.to_node, self.faults)
            if isinstance(told, Records):
                self.node.receive(stream, told)

    def tick(self) -> None:
        """Time passes; a session whose acks do not advance connects again."""
        self.clock.now_ms += self.random.randrange(ACK_STALL_MS)
        for core in self.sessions.values():
            if core.window is not None and core.window.ack_stall_ms(self.clock.now_ms) >= ACK_STALL_MS:
                core.disconnect()

    # -------------------------------------------------------------------------------------------- crashes

    def node_crashes(self) -> None:
        self.node.crash()
        for stream in self.streams:
            stream.is_dead = True
        self.streams.clear()
        for core in self.sessions.values():
            core.disconnect()

    def crash(self, *, is_power: bool) -> None:
        """The process or the machine dies; the next one takes up all sessions, and goes on in one or begins another."""
        names = list(self.sessions)
        for core in self.sessions.values():
            core.disconnect()
        if is_power and len(self.disk.changes) <= 6:
            found = list(crash_contents(self.disk, 2))
            self.disk = SimulatedDisk(self.random.choice(found))
        else:
            self.disk.kill()
        self.disk.point = lambda: None
        self.sessions = {}
        for name in names:
            self.open(name)
        if self.random.random() < 0.4:
            self.open_new_session()

    def step_until_power_fails(self, calls: int) -> None:
        """Work on the disk that is cut after so many changes of it."""
        left = calls

        def burn() -> None:
            nonlocal left
            self.record_promises()
            left -= 1
            if left <= 0:
                raise PowerFailure

        self.disk.point = burn
        try:
            for core in list(self.sessions.values()):
                core.spool.step()
                if self.random.random() < 0.5:
                    core.spool.compact()
                    core.spool.step()
        except PowerFailure:
            self.crash(is_power=self.random.random() < 0.5)
        self.disk.point = lambda: None

    # -------------------------------------------------------------------------------------------- invariants

    def check_invariants(self) -> None:
        """EVD-002, EVD-003, SP-ACK-001, SP-RET-002: at any moment."""
        assert not self.node.conflicts, self.node.conflicts
        for session, core in self.sessions.items():
            mark = self.node.watermark(session)
            assert mark >= self._watermarks.get(session, 0), "the node's mark went back"
            assert core.spool.acked_sequence <= mark, "an ack that is not true"
            assert core.spool.first_available - 1 <= mark, "something unacked was deleted"
            self._watermarks[session] = mark

    def deliver_all(self, rounds: int = 2_000) -> None:
        """Faults end; everything gets through, within bounds."""
        self.faults = 0.0
        for _ in range(rounds):
            waiting = [
                core for core in self.sessions.values() if core.spool.acked_sequence < core.spool.spooled_sequence
            ]
            if not waiting and not self.live.tickets:
                return
            for core in list(self.sessions.values()):
                self.step(core)
                if core.stream is None:
                    self.connect(core)
                self.receive(core)
                self.send(core)
            while any(stream.to_node for stream in self.streams if not stream.is_dead):
                self.deliver_one()
            self.node.commit()
            self.tick()
            self.check_invariants()
        raise AssertionError("it never gets through")
