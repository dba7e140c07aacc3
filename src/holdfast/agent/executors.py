"""Who does the work: executors by kind and name, each a plug-in that makes bytes of a payload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from holdfast.core.canon import NotCanonical
from holdfast.core.job.spec import Ordered, Payload, ordered
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind
from holdfast.workloads.circuit import CAPABILITY, circuit
from holdfast.workloads.digits import recognise
from holdfast.workloads.echo import echo


class Where(StrEnum):
    """What an executor runs in."""

    THREAD = "thread"
    """For what waits or takes a moment; it must look at `cancel`, since nobody can stop it."""
    PROCESS = "process"
    """For what computes or may crash; it is killed when its time is over. It is pickled on its way there."""


class Cancel(Protocol):
    """Set when nobody wants the result any more."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Sleep that long, or until it is set; whether it is."""
        ...


class Executor(Protocol):
    """Makes a job's output. What it raises is the reason why the lease failed."""

    @property
    def where(self) -> Where: ...
    def run(self, payload: Ordered, cancel: Cancel) -> bytes: ...


# ------------------------------------------------------------------------------------------------ built in


class Echo(msgspec.Struct, frozen=True):
    """Gives back what it was given, as canonical bytes: the same everywhere."""

    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        return echo(payload)


class Sleep(msgspec.Struct, frozen=True):
    """Takes `params.ms` milliseconds for it."""

    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        ms = payload.spec.get("params", {}).get("ms", 0)
        if isinstance(ms, bool) or not isinstance(ms, int) or ms < 0:
            raise ValueError("params.ms: a number of milliseconds is expected")
        cancel.wait(ms / 1000)
        return echo(payload)


class Digits(msgspec.Struct, frozen=True):
    """Says which digit a picture shows."""

    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        return recognise(payload)


class Circuit(msgspec.Struct, frozen=True):
    """Runs circuits of Clifford gates."""

    where: Where = Where.PROCESS
    capability: dict[str, Any] = msgspec.field(default_factory=lambda: dict(CAPABILITY))

    def run(self, payload: Ordered, cancel: Cancel) -> bytes:
        return circuit(payload)


CIRCUIT: Final = "circuit"
BUILT_IN: Final[Mapping[tuple[Kind, str], Executor]] = {
    (Kind.AI, "digits"): Digits(),
    (Kind.AI, "echo"): Echo(),
    (Kind.AI, "sleep"): Sleep(),
    (Kind.QUANTUM, CIRCUIT): Circuit(),
}


# ------------------------------------------------------------------------------------------------ choosing


def _model(payload: Ordered) -> str:
    return str(payload.spec.get("model"))


def _circuit(_: Ordered) -> str:
    return CIRCUIT


CHOICE: Final[Mapping[Kind, Callable[[Ordered], str]]] = {Kind.AI: _model, Kind.QUANTUM: _circuit}
"""Which executor a payload asks for: an AI job names its model; circuits are all run by the same one."""


class Registry:
    """The executors that this agent offers."""

    def __init__(self, executors: Mapping[tuple[Kind, str], Executor]) -> None:
        self._executors = dict(executors)

    def capabilities(self) -> dict[str, dict[str, Any]]:
        """What the node is told (MAT-002); an executor of circuits says itself what it takes."""
        told: dict[str, dict[str, Any]] = {}
        for (kind, name), executor in sorted(self._executors.items()):
            if kind is Kind.AI:
                told.setdefault(kind.value, {"models": []})["models"].append(name)
            else:
                told[kind.value] = dict(getattr(executor, "capability", {}))
        return told

    def find(self, kind: str, raw: bytes) -> tuple[Executor, Ordered] | Refused:
        """Who runs this payload, and the payload as it reads it."""
        try:
            payload = ordered(raw)
        except (NotCanonical, msgspec.ValidationError) as fault:
            return Refused("JOB-003", f"payload: {fault}", name="InvalidParams")
        name = CHOICE[payload.kind](payload)
        executor = self._executors.get((payload.kind, name))
        if executor is None or payload.kind.value != kind:
            return Refused("MAT-002", f"{kind} {name!r} is not offered here", name="NotFound")
        return executor, payload


def built_in(models: Iterable[str], *, circuits: bool = False) -> Registry | Refused:
    """The named ones of those that come with Holdfast, and the one that runs circuits where it is wanted."""
    wanted = {(Kind.AI, model) for model in models} | ({(Kind.QUANTUM, CIRCUIT)} if circuits else set())
    unknown = sorted(name for kind, name in wanted if (kind, name) not in BUILT_IN)
    if unknown:
        known = ", ".join(sorted(name for kind, name in BUILT_IN if kind is Kind.AI))
        return Refused("SEC-001", f"model: no executor {', '.join(unknown)}", f"there are: {known}", "BadConfig")
    return Registry({key: BUILT_IN[key] for key in wanted})
