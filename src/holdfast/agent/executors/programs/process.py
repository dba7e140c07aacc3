"""One contained process: limits, a clean environment, its lines of progress, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.agent.executors.contract import Report
from holdfast.agent.executors.programs.limits import WorkLimits, limited, make_cgroup, own_cgroup

GRACE_S: Final = 5.0
"""Between SIGTERM at the deadline and SIGKILL."""
LINE_BYTES_MAX: Final = 4_096
LABEL: Final = "HOLDFAST_RUN"
"""In the environment of a run and of what it starts: what has left the process group is found by it."""
TEXT_MAX: Final = 500
KILL_ROUNDS: Final = 100
SHELL_SIGNAL: Final = 128
"""A shell exits with this plus the number of the signal that ended its command."""


def clean_environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the agent's own environment but where programs are: no secret reaches the work."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", **more}


class ContainedProcess:
    """Started by `start`; `wait` returns its exit code, and `end` kills whatever is left of it."""

    def __init__(self, limits: WorkLimits, report: Report) -> None:
        self._limits, self.report = limits, report
        self._label = secrets.token_hex(16)
        self._cgroup: Path | None = None
        self.process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pipe: asyncio.ReadTransport | None = None
        self.last_line = ""
        """The last thing that it said on standard error."""

    async def start(
        self, command: list[str], folder: Path, environment: Mapping[str, str], *, stdin: int, stdout: int
    ) -> None:
        if (parent := own_cgroup()) is not None:
            self._cgroup = make_cgroup(parent, self._label[:16], self._limits)
        # A pipe of our own: asyncio's `wait` would wait for whoever else holds it, too.
        reading, writing = os.pipe()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *limited(command, self._limits, self._cgroup),
                stdin=stdin,
                stdout=stdout,
                stderr=writing,
                cwd=folder,
                env=clean_environment(folder, {**environment, LABEL: self._label}),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        stream = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        loop, file = asyncio.get_running_loop(), os.fdopen(reading, "rb", 0)
        self._pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), file)
        self._reader = asyncio.create_task(read_lines(stream, self._on_line))

    def _on_line(self, line: str) -> None:
        percent, text = read_progress(line)
        if percent is None and line.strip():
            self.last_line = line.strip()[:TEXT_MAX]
        self.report(percent, text)

    async def wait(self) -> int:
        """Its exit code, negative where a signal ended it. Cancelling this ends it: SIGTERM, 5 s, SIGKILL."""
        assert self.process is not None
        try:
            code = await self.process.wait()
        except asyncio.CancelledError:
            await asyncio.shield(self._terminate())
            raise
        return SHELL_SIGNAL - code if code > SHELL_SIGNAL else code

    async def _terminate(self) -> None:
        assert self.process is not None
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.process.wait()

    def is_out_of_memory(self) -> bool:
        if self._cgroup is None:
            return False
        with suppress(OSError):
            return "oom_kill 0" not in (self._cgroup / "memory.events").read_text()
        return False

    async def end(self) -> None:
        """Nothing of it runs afterwards, not what it has started either."""
        process = self.process
        if process is not None:
            self._signal(signal.SIGKILL)
        await asyncio.to_thread(self._kill_escaped)
        if process is not None:
            await process.wait()
        if self._reader is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._reader
        if self._pipe is not None:
            self._pipe.close()

    def _signal(self, number: int) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _kill_escaped(self) -> None:
        """What has left the process group: found by the label in its environment."""
        if self._cgroup is not None:
            with suppress(OSError):
                (self._cgroup / "cgroup.kill").write_text("1")
        label = f"{LABEL}={self._label}".encode()
        kill_all(lambda environment: label in environment)
        if self._cgroup is not None:
            with suppress(OSError):
                self._cgroup.rmdir()


def kill_all(is_meant: Callable[[list[bytes]], bool]) -> None:
    """Kill processes by their environment, as long as more are found: they may be starting others."""
    for _ in range(KILL_ROUNDS):
        names = (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())
        found = [pid for pid in map(int, names) if is_meant(_environment_of(pid))]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def kill_leftovers(scratch: Path) -> None:
    """What an agent that was killed has left running: work whose home is in its scratch folder."""
    home = f"HOME={scratch}/".encode()
    kill_all(lambda environment: any(each.startswith(home) for each in environment))


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


async def read_lines(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    """Each line, cut where it is too long: work may print what it likes, and the agent's memory stays as it is."""
    is_continued = False
    while raw := await _read_some(stream):
        if not is_continued:
            on_line(raw.decode("utf-8", "replace").rstrip("\r\n"))
        is_continued = not raw.endswith(b"\n")


async def _read_some(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as fault:
        return fault.partial
    except asyncio.LimitOverrunError as fault:
        return await stream.readexactly(max(1, fault.consumed))


def read_progress(line: str) -> tuple[int | None, str]:
    """`progress 42 text` is percent and text; every other line is a message of the log."""
    words = line.split(None, 2)
    is_progress = len(words) >= 2 and words[0] == "progress" and words[1].isdecimal() and len(words[1]) <= 3
    if is_progress and int(words[1]) <= 100:
        return int(words[1]), words[2][:TEXT_MAX] if len(words) > 2 else ""
    return None, line[:TEXT_MAX]


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
