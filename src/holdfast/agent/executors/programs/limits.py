"""What work that runs in a process of its own may use, and what this machine permits to enforce (JOB-012)."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import structlog

CGROUPS: Final = Path("/sys/fs/cgroup")
NAMESPACES: Final = ("--user", "--map-root-user", "--pid", "--fork", "--kill-child")
PROBE_S: Final = 10.0
_LIMIT: Final = """
[ -z "$1" ] || echo 0 > "$1/cgroup.procs"
ulimit -c 0; ulimit -n "$2"; ulimit -f "$3"; [ "$4" = 0 ] || ulimit -d "$4"
[ "$5" = 0 ] || ulimit -u "$5" 2> /dev/null || ulimit -p "$5" 2> /dev/null
shift 5
"$@"
exit $?
"""
"""Not `exec`: as the first process of its namespace a program would not be ended by SIGTERM."""
_log = structlog.get_logger()


class WorkLimits(msgspec.Struct, frozen=True):
    """Of one piece of work."""

    output_bytes_max: int = 256 << 20
    """Of every file that it writes, its standard output included."""
    memory_mb: int = 0
    """0: not limited."""
    open_files_max: int = 1_024
    processes_max: int = 512
    is_network_allowed: bool = False


@cache
def namespaces(*, is_network_allowed: bool) -> tuple[str, ...]:
    """The command that begins a process in namespaces of its own; empty where that is not permitted."""
    program = shutil.which("unshare")
    if program is None:
        return ()
    command = (program, *NAMESPACES, *(() if is_network_allowed else ("--net",)), "--")
    try:
        probe = subprocess.run(  # noqa: S603 - our own words
            [*command, "true"], capture_output=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if probe.returncode == 0 else ()


def own_cgroup(root: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The agent's cgroup of version 2, where it may make others in it with a limit of memory."""
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::"))
        folder = root / line.removeprefix("0::").lstrip("/")
        controllers = (folder / "cgroup.subtree_control").read_text().split()
    except (OSError, StopIteration):
        return None
    return folder if {"memory", "pids"} <= set(controllers) and os.access(folder, os.W_OK) else None


def make_cgroup(parent: Path, name: str, limits: WorkLimits) -> Path:
    folder = parent / f"holdfast-{name}"
    folder.mkdir()
    (folder / "pids.max").write_text(str(limits.processes_max))
    if limits.memory_mb:
        (folder / "memory.max").write_text(str(limits.memory_mb << 20))
    return folder


def limited(command: list[str], limits: WorkLimits, cgroup: Path | None) -> list[str]:
    """The command inside its limits, and in namespaces of its own where that is permitted."""
    prefix = namespaces(is_network_allowed=limits.is_network_allowed)
    values = (
        "" if cgroup is None else str(cgroup),
        str(limits.open_files_max),
        str(-(-limits.output_bytes_max // 512)),
        str(limits.memory_mb << 10),
        # Without a namespace all processes of this user would count.
        str(limits.processes_max if prefix else 0),
    )
    return [*prefix, "/bin/sh", "-c", _LIMIT, "holdfast", *values, *command]


def missing_isolation() -> list[str]:
    """What this machine does not permit; said loudly when an agent starts."""
    missing = []
    if not namespaces(is_network_allowed=False):
        missing.append("user, process and network namespaces")
    if own_cgroup() is None:
        missing.append("cgroup v2")
    return missing


def warn_of_missing_isolation() -> None:
    if missing := missing_isolation():
        hint = "work is limited by rlimits and its process group; run untrusted work in a container"
        _log.warning("isolation_reduced", missing=", ".join(missing), hint=hint)
