"""`python -m tests.spool.crash.scripted ROOT SEGMENT_BYTES`: a spool on a real disk, and what it promises.

Each promise is one line on standard output, written at once: whoever kills this process can hold it to them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.spool.crash.invariants import Promises

from holdfast.spool import Refused, Spool, SpoolPolicy, Ticket, Unavailable

CHANNEL, SESSION = "classic-1", "PS-20260213-classic-1-0001"
"""Those of the other tests, which this process does not import: all its system calls are traced, so it loads little."""
POLICY = SpoolPolicy(channel_bytes_max=1 << 20, reserve_bytes=2_000)

TRIES = 4
"""A fault may hit any action; the disk works again after it."""


def report(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Script:
    """Emits, acks, compacts, closes and opens again, one step after the other."""

    def __init__(self, root: Path, segment_bytes: int | None) -> None:
        self._root, self._segment_bytes = root, segment_bytes
        self._token = 0
        self._spool = self._open()

    def _open(self) -> Spool:
        for _ in range(TRIES):
            try:
                spool = Spool.open(
                    CHANNEL,
                    SESSION,
                    root=self._root,
                    policy=POLICY,
                    segment_bytes=self._segment_bytes,
                    threads=False,
                )
            except Unavailable as fault:
                report("unavailable", fault.rule)
                continue
            assert isinstance(spool, Spool), spool
            report("spooled", spool.spooled_sequence)
            return spool
        raise SystemExit("it does not open")

    def emit(self, count: int, payload_type: str = "BLOCK_START") -> None:
        """Records, with whatever it takes to get them spooled: a session that has ended is opened again."""
        while count:
            self._token += 1
            ticket = self._spool.emit(payload_type, {"n": self._token})
            if isinstance(ticket, Refused):
                report("refused", ticket.name)
                self.reopen()
                continue
            report("emitted", ticket.sequence, self._token)
            count -= 1
        self.step()

    def step(self) -> None:
        while self._spool.writer.step():
            pass
        self._spool.step()
        report("confirmed", self._spool.spooled_sequence)
        report("stored", self._spool.maintainer.ack_stored.reached)

    def ack(self, sequence: int) -> None:
        report("acked", sequence)
        assert isinstance(self._spool.ack(sequence), Ticket)
        self.step()

    def compact(self) -> None:
        self._spool.compact()
        self.step()

    def reopen(self) -> None:
        self.close(final=False)
        self._spool = self._open()

    def close(self, *, final: bool) -> None:
        if final:
            report("final", "asked")
        try:
            refused = self._spool.close(final=final)
        except Unavailable as fault:
            report("unavailable", fault.rule)
            return
        if final and refused is None:
            report("final", "said")

    def play(self) -> None:
        """The whole script. It is short: every system call of it is to fail once."""
        self.emit(3)
        self.ack(2)
        self.compact()
        self.emit(1)
        self.reopen()
        self.emit(2)
        self.ack(min(5, self._spool.spooled_sequence))
        self.emit(1, "BLOCK_FENCE")
        self.close(final=True)
        report("end")


def promises_from(lines: str) -> Promises:
    """What the script was promised, as far as it came to tell it."""
    promises = Promises()
    verbs: dict[str, Callable[[list[str]], None]] = {
        "spooled": lambda values: setattr(promises, "spooled", max(promises.spooled, int(values[0]))),
        "confirmed": lambda values: _confirmed(promises, int(values[0])),
        "stored": lambda values: setattr(promises, "ack_stored", max(promises.ack_stored, int(values[0]))),
        "acked": lambda values: setattr(promises, "ack_received", max(promises.ack_received, int(values[0]))),
        "final": lambda values: setattr(promises, "final", values[0]),
        "emitted": lambda values: _emitted(promises, int(values[0]), int(values[1])),
    }
    for line in lines.splitlines():
        verb, *values = line.split()
        if verb in verbs:
            verbs[verb](values)
    return promises


def _confirmed(promises: Promises, sequence: int) -> None:
    promises.confirmed = max(promises.confirmed, sequence)
    promises.spooled = max(promises.spooled, sequence)


def _emitted(promises: Promises, sequence: int, token: int) -> None:
    promises.tokens[sequence] = (*promises.tokens.get(sequence, ()), token)


if __name__ == "__main__":
    Script(Path(sys.argv[1]), int(sys.argv[2]) or None).play()
