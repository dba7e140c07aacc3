"""An outbox that loses nothing: a child emits evidence and is killed with kill -9, again and again; nothing is missing.

Run it from anywhere: python examples/outbox.py

The child prints a sequence only after the spool has called it durable. The parent kills it at some moment, opens the
same session and checks that every sequence the child has printed is there, once and in order.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.spool import Refused, Spool

CHANNEL, SESSION = "classic-1", "PS-20260213-classic-1-0001"
KILLS = 5


def opened(root: Path) -> Spool:
    spool = Spool.open(CHANNEL, SESSION, root=root)
    if isinstance(spool, Refused):
        sys.exit(str(spool))
    return spool


def emit_for_ever(root: Path) -> None:
    """The child: evidence without end. It prints what is durable, and nothing else."""
    spool = opened(root)
    while True:
        tickets = [spool.emit("SEGMENT_END", {"block_id": "b-1", "status": "AIRED"}) for _ in range(20)]
        last = tickets[-1]
        if isinstance(last, Refused):
            sys.exit(str(last))
        last.wait()
        print(last.sequence, flush=True)


def killed(root: Path, after_lines: int) -> int:
    """The parent: let a child work for a while, kill it without warning; what it had promised by then."""
    promised = 0
    command = [sys.executable, __file__, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        assert child.stdout is not None
        for count, line in enumerate(child.stdout, 1):
            promised = int(line)
            if count == after_lines:
                child.send_signal(signal.SIGKILL)
    return promised


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(1, KILLS + 1):
            promised = killed(root, random.randint(1, 40))  # noqa: S311
            spool = opened(root)
            found = [json.loads(line)["sequence"] for line in spool.replay(0)]
            assert found == list(range(1, len(found) + 1)), "a gap or a repetition"
            assert len(found) >= promised, "something promised is lost"
            print(f"kill {number}: promised up to {promised}, found 1 to {len(found)}, next is {len(found) + 1}")
            spool.close()

        spool = opened(root)
        spool.ack(spool.spooled_sequence)  # the receiver has it all
        spool.emit("CHANNEL_TERMINATED", {"reason": "example"})
        spool.close(final=True)
        print(f"killed {KILLS} times, nothing lost")


if __name__ == "__main__":
    emit_for_ever(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
