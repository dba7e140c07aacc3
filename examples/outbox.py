"""An outbox that loses nothing: a process ships its evidence to a node, and both are killed with kill -9 repeatedly.

Run it from anywhere: python examples/outbox.py

The child emits evidence and ships it, as any program does that uses the spool without an agent. It prints a sequence
only when the spool has made it durable. The parent runs a node, kills the child, the node or both at random moments,
and starts them again. At the end the node has every printed sequence of every session, once and in order.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import structlog

from holdfast.shipping.background_shipper import ship
from holdfast.spool import Refused, Spool

CHANNEL = "classic-1"
KILLS = 5
HOLDFAST = Path(sys.executable).parent / "holdfast"


# ------------------------------------------------------------------------------------------------ the outbox


def emit_for_ever(root: Path, session: str, target: str) -> None:
    """The child: emits evidence until it is stopped, and ships it meanwhile, with that of older sessions."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    spool = Spool.open(CHANNEL, session, root=root)
    if isinstance(spool, Refused):
        sys.exit(str(spool))
    shipping = ship(spool, target, protocol="retrovue")
    if isinstance(shipping, Refused):
        sys.exit(str(shipping))
    while not (root / "enough").exists():
        tickets = [spool.emit("SEGMENT_END", {"block_id": "b-1", "status": "AIRED"}) for _ in range(20)]
        last = tickets[-1]
        if isinstance(last, Refused):
            sys.exit(str(last))
        last.wait()
        print(last.sequence, flush=True)
        shipping.wait(last.sequence, timeout_s=0.05)  # optional; it gives the node time to answer
    end = spool.emit("CHANNEL_TERMINATED", {"reason": "example"})
    if not isinstance(end, Refused):
        end.wait()
    shipping.close(flush_s=30)
    spool.close(final=True)


class OutboxProcess:
    """The child as the parent sees it."""

    def __init__(self, root: Path, number: int, target: str) -> None:
        self.session, self.promised = f"PS-20260213-{number:04d}", 0
        command = [sys.executable, __file__, str(root), self.session, target]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603

    def listen(self, lines: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.promised, lines = int(line), lines - 1
            if lines == 0:
                return

    def kill(self) -> None:
        self.process.kill()
        self.listen(-1)  # what it printed before
        self.process.wait()


# ------------------------------------------------------------------------------------------------ the node


def free_port() -> int:
    """A port that stays free while the node is down: below the range of ephemeral ports."""
    for port in range(20_000 + os.getpid() % 5_000, 32_768):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    sys.exit("no free port below 32768")


class NodeProcess:
    """A development network in a folder that accepts v0.1 senders."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        grpc = {"ENABLED": "true", "PORT": str(self.port), "LEGACY_EVIDENCE": "open"}
        environ = os.environ | {f"HOLDFAST_GRPC__{name}": value for name, value in grpc.items()}
        with (self.data.parent / "node.log").open("ab") as log:
            command = [str(HOLDFAST), "up", "--data", str(self.data)]
            return subprocess.Popen(command, env=environ, stdout=log, stderr=log)  # noqa: S603

    def kill_and_start(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def wait_until_up(self) -> None:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)

    def sequences(self, session: str) -> list[int]:
        """The sequences of all records of a session at the node, in its order."""
        command = [str(HOLDFAST), "evidence", "show", CHANNEL, "--session", session, "--json"]
        done = subprocess.run([*command, "--data", str(self.data)], capture_output=True, text=True, check=False)  # noqa: S603
        return [json.loads(line)["sequence"] for line in done.stdout.splitlines()] if done.returncode == 0 else []

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, kept = Path(folder) / "spool", dict[str, int]()
        root.mkdir()
        node = NodeProcess(Path(folder) / "node")
        try:
            for number in range(1, KILLS + 1):
                node.wait_until_up()
                child = OutboxProcess(root, number, f"127.0.0.1:{node.port}")
                child.listen(random.randint(1, 20))  # noqa: S311
                if number % 2 == 0:
                    node.kill_and_start()
                child.kill()
                kept[child.session] = child.promised
                print(f"kill {number}: session {child.session} promised up to {child.promised}")
            (root / "enough").touch()
            last = OutboxProcess(root, KILLS + 1, f"127.0.0.1:{node.port}")
            check(node, kept)
            last.process.wait()
        finally:
            node.close()
    print(f"killed {KILLS} times, nothing lost")


def check(node: NodeProcess, kept: dict[str, int], within_s: float = 45.0) -> None:
    """Wait until the node has all promised records, without a gap or a duplicate."""
    until = time.monotonic() + within_s
    for session, promised in kept.items():
        while len(stored := node.sequences(session)) < promised and time.monotonic() < until:
            time.sleep(0.2)
        assert stored == list(range(1, len(stored) + 1)), "a gap or a duplicate"
        assert len(stored) >= promised, f"{session}: a promised record is lost"
        print(f"the node has 1 to {len(stored)} of {session}")


if __name__ == "__main__":
    emit_for_ever(Path(sys.argv[1]), *sys.argv[2:4]) if len(sys.argv) > 1 else main()
