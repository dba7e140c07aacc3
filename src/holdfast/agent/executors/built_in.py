"""The executors that come with Holdfast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.agent.executors.contract import CancelSignal, Executor, ExecutorIsolation
from holdfast.agent.executors.registry import CIRCUIT, ExecutorRegistry
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import Payload, WorkPayload
from holdfast.workloads.circuit import CAPABILITY, run_circuit
from holdfast.workloads.digits import recognise
from holdfast.workloads.echo import echo


class Echo(msgspec.Struct, frozen=True):
    """Returns its input as canonical bytes: the same on every machine."""

    isolation: ExecutorIsolation = ExecutorIsolation.INLINE

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        return echo(payload)


class Sleep(msgspec.Struct, frozen=True):
    """Echo after `params.ms` milliseconds."""

    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        ms = payload.spec.get("params", {}).get("ms", 0)
        if isinstance(ms, bool) or not isinstance(ms, int) or ms < 0:
            raise ValueError("params.ms: expected a number of milliseconds")
        cancel.wait(ms / 1000)
        return echo(payload)


class Digits(msgspec.Struct, frozen=True):
    """Recognises the digit in a picture."""

    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        return recognise(payload)


class Circuit(msgspec.Struct, frozen=True):
    """Runs circuits of Clifford gates."""

    isolation: ExecutorIsolation = ExecutorIsolation.PROCESS
    capability: dict[str, Any] = msgspec.field(default_factory=lambda: dict(CAPABILITY))

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        return run_circuit(payload)


BUILT_IN: Final[Mapping[tuple[Kind, str], Executor]] = {
    (Kind.AI, "digits"): Digits(),
    (Kind.AI, "echo"): Echo(),
    (Kind.AI, "sleep"): Sleep(),
    (Kind.QUANTUM, CIRCUIT): Circuit(),
}


def built_in_executors(models: Iterable[str], *, circuits: bool = False) -> ExecutorRegistry | Refused:
    """The built-in executors of these models and, where wanted, the one that runs circuits."""
    wanted = {(Kind.AI, model) for model in models} | ({(Kind.QUANTUM, CIRCUIT)} if circuits else set())
    unknown = sorted(name for kind, name in wanted if (kind, name) not in BUILT_IN)
    if unknown:
        known = ", ".join(sorted(name for kind, name in BUILT_IN if kind is Kind.AI))
        return Refused("SEC-001", f"model: no executor {', '.join(unknown)}", f"there are: {known}", "BadConfig")
    return ExecutorRegistry({key: BUILT_IN[key] for key in wanted})
