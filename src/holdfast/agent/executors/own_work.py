"""Executors that a provider brings: programs, Python functions, HTTP servers and plug-ins, from options to objects."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.agent.executors.contract import AnyExecutor
from holdfast.agent.executors.programs.http_server import HttpServerExecutor
from holdfast.agent.executors.programs.limits import WorkLimits
from holdfast.agent.executors.programs.program import ProgramExecutor
from holdfast.agent.executors.programs.python_function import PythonFunction
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import CIRCUIT

GROUP: Final = "holdfast.executors"
"""Entry points `KIND:name` (or `name`, which is COMPUTE): an executor, or what makes one without arguments."""
SCRATCH: Final = "scratch"
_NAME: Final = re.compile(r"[!-~]{1,128}")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_URL: Final = re.compile(r"https?://[^\s/]+(/\S*)?")


class WorkSource(StrEnum):
    """What does the work."""

    EXEC = "exec"
    PYTHON = "python"
    HTTP = "http"
    PLUGIN = "plugin"


DEFAULT_KINDS: Final = {
    WorkSource.EXEC: Kind.COMPUTE,
    WorkSource.PYTHON: Kind.COMPUTE,
    WorkSource.HTTP: Kind.AI,
    WorkSource.PLUGIN: Kind.COMPUTE,
}


class OwnExecutor(msgspec.Struct, frozen=True, kw_only=True):
    """One executor of the provider, as options or the settings file describe it."""

    source: WorkSource
    name: str
    target: str
    """A command, `package.module:function`, a URL, or the name of an entry point."""
    kind: Kind = Kind.COMPUTE
    slots: int = 0
    """How many of its jobs run at a time; 0: as many as the agent has slots."""
    memory_mb: int = 0
    """The most memory of a process; 0: the agent's `memory_mb` of a slot."""
    network: bool = False
    """Whether programs and functions may use the network."""
    env: tuple[str, ...] = ()
    """Variables of the agent's environment that they get."""


def read_option(source: WorkSource, option: str) -> OwnExecutor | Refused:
    """`[KIND:]name=target`; a plug-in is `[KIND:]name` alone."""
    label, separator, target = option.partition("=")
    if source is WorkSource.PLUGIN:
        label, target = option, option
    kind_text, colon, name = label.rpartition(":")
    kind = DEFAULT_KINDS[source] if not colon else next((kind for kind in Kind if kind.value == kind_text), None)
    if kind is None or not _NAME.fullmatch(name) or not target or (source is not WorkSource.PLUGIN and not separator):
        message = f"{source.value}: {option!r:.80} is not [KIND:]name=…"
        return Refused("SEC-001", message, f"KIND is one of {', '.join(Kind)}", "BadConfig")
    return OwnExecutor(source=source, name=name, target=target, kind=kind)


def why_not_own(own: OwnExecutor) -> Refused | None:
    """What cannot work is said before anything is started."""
    if own.kind is Kind.QUANTUM and own.name != CIRCUIT:
        return _bad(own, f"all QUANTUM jobs are of the executor {CIRCUIT!r}")
    if not _NAME.fullmatch(own.name) or not 0 <= own.slots <= 10_000 or not 0 <= own.memory_mb <= 2**40:
        return _bad(own, "name, slots or memory_mb is out of range")
    match own.source:
        case WorkSource.EXEC:
            return None if resolve_command(own.target) else _bad(own, f"{own.target!r:.80}: no such program")
        case WorkSource.PYTHON:
            is_good = _FUNCTION.fullmatch(own.target) is not None
            return None if is_good else _bad(own, f"{own.target!r:.80} is not package.module:function")
        case WorkSource.HTTP:
            return None if _URL.fullmatch(own.target) else _bad(own, f"{own.target!r:.80} is not a URL")
    known = sorted(point.name for point in entry_points(group=GROUP))
    return None if own.target in known else _bad(own, f"no entry point {own.target!r:.80}; there are {known}")


def _bad(own: OwnExecutor, message: str) -> Refused:
    return Refused("SEC-001", f"{own.source.value}: {own.name}: {message}", name="BadConfig")


def resolve_command(command: str) -> list[str]:
    """The words of a command, its program with its whole path; empty where there is no such program."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    program = shutil.which(words[0]) if words else None
    return [os.path.abspath(program), *words[1:]] if program else []  # noqa: PTH100 - links stay as they are


def make_executors(all_own: Iterable[OwnExecutor], data: Path, memory_mb: int) -> dict[tuple[Kind, str], AnyExecutor]:
    """The executors; `data` is the agent's folder, `memory_mb` the memory of a slot."""
    return {(own.kind, own.name): _make(own, (data / SCRATCH).absolute(), memory_mb) for own in all_own}


def _make(own: OwnExecutor, scratch: Path, memory_mb: int) -> AnyExecutor:
    limits = WorkLimits(memory_mb=own.memory_mb or memory_mb, is_network_allowed=own.network)
    environment = {name: os.environ[name] for name in own.env if name in os.environ}
    match own.source:
        case WorkSource.EXEC:
            return ProgramExecutor(resolve_command(own.target), scratch, limits, environment)
        case WorkSource.PYTHON:
            return PythonFunction(own.target, scratch, limits, environment)
        case WorkSource.HTTP:
            return HttpServerExecutor(own.target, limits)
    (point,) = entry_points(group=GROUP, name=own.target)
    made: Any = point.load()
    return made() if callable(made) else made  # type: ignore[no-any-return]
