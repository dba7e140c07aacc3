"""A real process that emits evidence and ships it, under the test's control; and what it is when it runs.

It says what is durable (`d SESSION FIRST LAST LIFE`) after it is, and what is acked (`a SESSION SEQUENCE`) after it is
stored as such.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tests.stories.forked_process import RunningProcess, start_program

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.provider.model import provider_id
from holdfast.shipping.background_shipper import ship
from holdfast.spool import Refused, Spool

BATCH = 10
FLUSH_S = 240.0
"""How long what is left may take, one message at a time, on a machine that does other things besides."""


class OutboxProcess:
    """One channel. With a seed it is a provider's, and speaks `holdfast.evidence.v1`; else as v0.1 does."""

    def __init__(self, folder: Path, name: str, port: int, seed: int | None = None) -> None:
        self.folder, self.port, self.seed = folder, port, seed
        self.key = None if seed is None else SigningKey.from_seed(seed.to_bytes(32, "big"))
        self.channel = name if self.key is None else provider_id(self.key.public).hex()
        self.session, self.lives = "", 0
        self.durable: dict[str, dict[int, str]] = {}
        """By session: which record is where."""
        self.acked: dict[str, int] = {}
        self.promised = 0
        """How many records it has called durable."""
        self.went_back: list[str] = []
        self._process: RunningProcess | None = None
        self._listener: threading.Thread | None = None
        self._pipe_writer: int | None = None
        """Ours: what listens to it hears its end when this is closed."""

    def up(self, *, new_session: bool) -> None:
        self.lives += 1
        if new_session or not self.session:
            self.session = f"s-{self.lives:04d}"
        told = (self.folder, self.channel, self.session, self.port, self.seed or 0, self.lives)
        self.folder.mkdir(exist_ok=True)
        log, pipe = (self.folder.parent / f"{self.folder.name}.{name}" for name in ("log", "pipe"))
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # there is no writer yet
        os.set_blocking(reader, True)
        self._pipe_writer = os.open(pipe, os.O_WRONLY)
        self._process = start_program([*map(str, told)], log, module="tests.stories.outbox_process", out=pipe)
        self._listener = threading.Thread(target=self._listen, args=(reader,))
        self._listener.start()

    def _listen(self, reader: int) -> None:
        with open(reader) as said:
            for line in said:
                self._on_line(line)

    def _on_line(self, line: str) -> None:
        if not line.endswith("\n"):
            return  # it died in the middle of a word
        match line.split():
            case ["d", session, first, last, life]:
                known = self.durable.setdefault(session, {})
                for sequence in range(int(first), int(last) + 1):
                    known[sequence] = f"{life}:{sequence}"
                self.promised += int(last) + 1 - int(first)
            case ["a", session, sequence]:
                if int(sequence) < self.acked.get(session, 0):
                    self.went_back.append(line)
                self.acked[session] = max(self.acked.get(session, 0), int(sequence))

    def acked_so_far(self) -> dict[str, int]:
        """By session, as of now: it may go on speaking meanwhile."""
        return self.acked.copy()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self.ended()

    def ended(self, within_s: float = 2 * FLUSH_S) -> int:
        assert self._process is not None
        assert self._listener is not None
        code = self._process.wait(within_s)
        if self._pipe_writer is not None:
            os.close(self._pipe_writer)
            self._pipe_writer = None
        self._listener.join()
        return code

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.ended()


def main(folder: str, channel: str, session: str, port: str, seed: str, life: str) -> None:
    root = Path(folder)
    signer = SigningKey.from_seed(int(seed).to_bytes(32, "big")) if int(seed) else None
    spool = Spool.open(channel, session, root=root)
    if isinstance(spool, Refused):
        sys.exit(str(spool))
    protocol = "retrovue" if signer is None else "holdfast"
    shipping = ship(spool, f"127.0.0.1:{port}", protocol=protocol, signer=signer, ack_stall_ms=2_000)
    if isinstance(shipping, Refused):
        sys.exit(str(shipping))
    while not (root / "enough").exists():
        first = spool.spooled_sequence + 1
        tickets = [spool.emit("SEGMENT_END", {"block_id": f"{life}:{first + n}"}) for n in range(BATCH)]
        last = tickets[-1]
        if isinstance(last, Refused):
            sys.exit(str(last))
        last.wait()
        print("d", session, first, last.sequence, life, flush=True)
        shipping.wait(last.sequence, 0.05)
        print("a", session, spool.maintainer.ack_stored.reached, flush=True)
    is_all = shipping.close(flush_s=FLUSH_S)
    print("a", session, spool.maintainer.ack_stored.reached, flush=True)
    spool.close()
    sys.exit(0 if is_all else 3)


if __name__ == "__main__":
    import structlog

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    main(*sys.argv[1:7])
