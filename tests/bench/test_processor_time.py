"""Processor time is that of a process with all that it has started, whether it still runs or not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from bench.processor_time import PartTimes, family, memory_bytes, process_s

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('burnt', flush=True)\ninput()"


def burning() -> subprocess.Popen[bytes]:
    """A child that has used 0.3 s, and waits."""
    child = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"burnt\n"
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.communicate(b"\n")


def test_a_child_counts_while_it_runs_and_after_it_has_ended() -> None:
    before, parts = process_s(os.getpid()), PartTimes()
    child = burning()
    assert child.pid in family(os.getpid())
    assert process_s(os.getpid()) - before >= 0.25
    assert parts.projector_s() >= 0.25
    end(child)
    assert child.pid not in family(os.getpid())
    assert process_s(os.getpid()) - before >= 0.25
    assert parts.projector_s() >= 0.25


def test_a_thread_that_is_named_for_the_tables_is_the_projectors() -> None:
    parts = PartTimes()
    writer, other = BurningThread("tables-writer"), BurningThread("another")
    assert 0.15 <= parts.projector_s() < 0.35
    writer.end()
    other.end()


class BurningThread:
    """A thread that has used 0.2 s, and waits."""

    def __init__(self, name: str) -> None:
        self._has_burnt, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._burn, name=name)
        self._thread.start()
        self._has_burnt.wait()

    def _burn(self) -> None:
        while time.thread_time() < 0.2:
            pass
        self._has_burnt.set()
        self._is_over.wait()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def test_memory_is_that_of_the_process_alone() -> None:
    """Measured from outside of a new process: a used one has memory that it can give away again."""
    program = "print('ready', flush=True); input(); held = b'x' * (64 << 20); print('held', flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        before = memory_bytes(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "held\n"
        assert 60 << 20 <= memory_bytes(child.pid) - before <= 70 << 20
        child.stdin.write("\n")


def test_a_process_that_is_not_there_used_nothing() -> None:
    assert process_s(2**22 + 1) == 0.0
    assert memory_bytes(2**22 + 1) == 0
