"""Processor time and memory of processes with all that they have started, and of threads by their names.

A part of the node that is a thread today may be a process tomorrow: what is summed here is the same then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")
SERVERS: Final = {"postgres", "setpriv"}


def family(pid: int) -> list[int]:
    """A process and its living descendants."""
    found, at = [pid], 0
    while at < len(found):
        found += _children(found[at])
        at += 1
    return found


def _children(pid: int) -> list[int]:
    """Children are listed by the thread that has started them."""
    return [child for task in _tasks(pid) for child in map(int, _read(task / "children").split())]


def process_s(pid: int) -> float:
    """Seconds of processor time of a process, its living descendants, and those of them that have ended."""
    return sum(_used_s(each) for each in family(pid))


def _used_s(pid: int) -> float:
    """Its own, and that of children it has waited for."""
    fields = _read(PROC / str(pid) / "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0


def memory_bytes(pid: int) -> int:
    """What a process holds in memory, without its descendants."""
    fields = _read(PROC / str(pid) / "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def family_memory_bytes(pid: int) -> dict[int, int]:
    return {each: memory_bytes(each) for each in family(pid)}


# ------------------------------------------------------------------------------------------------ inside one process


class PartTimes:
    """Processor time of this process by part since it was made: the calling thread, other threads, child processes."""

    def __init__(self) -> None:
        self._threads, self._children, self._caller = _thread_s(), _children_s(), time.thread_time()

    def owner_s(self) -> float:
        """The calling thread, which is the owner's."""
        return time.thread_time() - self._caller

    def projector_s(self) -> float:
        """Whoever writes the tables: the threads that are named for it, and all child processes."""
        return self._named_s("tables") + self.children_s()

    def journal_s(self) -> float:
        return self._named_s("journal")

    def children_s(self) -> float:
        return _children_s() - self._children

    def _named_s(self, name: str) -> float:
        before = self._threads
        return sum(used - before.get(thread, 0.0) for thread, used in _thread_s().items() if thread[0].startswith(name))


def _thread_s() -> Mapping[tuple[str, int], float]:
    """Seconds of every Python thread of this process, by name and number."""
    return {(each.name, each.native_id or 0): _scheduled_s(each.native_id or 0) for each in threading.enumerate()}


def _scheduled_s(thread: int) -> float:
    fields = _read(PROC / "self" / "task" / str(thread) / "schedstat").split()
    return int(fields[0]) / 1e9 if fields else 0.0


def _children_s() -> float:
    """The database's server is a child of this process, too, and not a part of the node."""
    ended = os.times()
    children = [child for child in _children(os.getpid()) if _read(PROC / str(child) / "comm").strip() not in SERVERS]
    return ended.children_user + ended.children_system + sum(map(process_s, children))


def _tasks(pid: int) -> Iterator[Path]:
    try:
        yield from (PROC / str(pid) / "task").iterdir()
    except FileNotFoundError:
        return


def _read(path: Path) -> str:
    """Empty where the process has just ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
