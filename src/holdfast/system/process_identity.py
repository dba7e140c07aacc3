"""Which process this is, in words that survive the reuse of process ids; and ending exactly that process (ENG-008)."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import Final, NamedTuple

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
START_FIELD: Final = 19
"""The position of the start time in /proc/PID/stat, counted after the program's name."""


class ProcessIdentity(NamedTuple):
    """A process id means this process only together with its start and the machine's boot."""

    pid: int
    start: str = ""
    """In clock ticks since the boot, as the kernel shows it."""
    boot: str = ""

    @classmethod
    def own(cls) -> ProcessIdentity:
        return cls(os.getpid(), _start_of(os.getpid()), _boot_id())

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity | None:
        pid, start, boot, *_ = (*text.split(), "", "", "")
        return cls(int(pid), start, boot) if pid.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.pid} {self.start} {self.boot}"


class NotEnded(Exception):
    """A process that could not be ended, and why."""


def end_process(process: ProcessIdentity, wait_s: float) -> None:
    """Kill this very process of this user and wait until it is gone: a stopped one keeps its locks until then."""
    if not hasattr(os, "pidfd_open"):
        raise NotEnded("this system cannot name a process safely")
    if not process.boot or process.boot != _boot_id():
        raise NotEnded("it runs on another machine")
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError as fault:
        raise NotEnded(fault.strerror or str(fault)) from fault
    try:
        if _start_of(process.pid) == process.start:  # else the id belongs to another process by now
            _kill(handle, process.pid, wait_s)
    finally:
        os.close(handle)


def _kill(handle: int, pid: int, wait_s: float) -> None:
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            raise NotEnded("it belongs to another user")
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
    except OSError as fault:
        raise NotEnded(fault.strerror or str(fault)) from fault
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    if not ended.poll(round(wait_s * 1000)):
        raise NotEnded(f"it did not end within {wait_s:g} s")


def _start_of(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[START_FIELD]


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
