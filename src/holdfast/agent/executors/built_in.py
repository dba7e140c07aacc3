"""The executors that come with Holdfast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.agent.executors.contract import CBOR, TEXT, AnyExecutor, CancelSignal, Executor, ExecutorIsolation
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import CIRCUIT, Payload, WorkPayload
from holdfast.workloads.circuit import CAPABILITY, run_circuit
from holdfast.workloads.digits import recognise
from holdfast.workloads.echo import echo, echoed, sleep_ms


class Echo(msgspec.Struct, frozen=True):
    """Returns its input: a text as it is."""

    isolation: ExecutorIsolation = ExecutorIsolation.INLINE

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        return echo_work(payload)

    def media_type(self, payload: Payload) -> str:
        return echo_media_type(payload)


class Sleep(msgspec.Struct, frozen=True):
    """Echo after `params.ms` milliseconds."""

    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        cancel.wait(sleep_ms(payload) / 1000)
        return echo_work(payload)

    def media_type(self, payload: Payload) -> str:
        return echo_media_type(payload)


class Digits(msgspec.Struct, frozen=True):
    """Recognises the digit in a picture."""

    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        return recognise(payload)

    def media_type(self, payload: Payload) -> str:
        return CBOR


class Circuit(msgspec.Struct, frozen=True):
    """Runs circuits of Clifford gates."""

    isolation: ExecutorIsolation = ExecutorIsolation.PROCESS
    capability: dict[str, Any] = msgspec.field(default_factory=lambda: dict(CAPABILITY))

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        return run_circuit(payload)

    def media_type(self, payload: WorkPayload) -> str:
        return CBOR


def echo_work(payload: WorkPayload) -> bytes:
    """The input of the job, where it has one."""
    return Path(payload.input_file).read_bytes() if payload.input_file else echo(payload)


def echo_media_type(payload: Payload) -> str:
    if payload.input is not None:
        return payload.input.media_type
    return TEXT if isinstance(echoed(payload), str) else CBOR


BUILT_IN: Final[Mapping[tuple[Kind, str], Executor]] = {
    (Kind.AI, "digits"): Digits(),
    (Kind.AI, "echo"): Echo(),
    (Kind.AI, "sleep"): Sleep(),
    (Kind.QUANTUM, CIRCUIT): Circuit(),
}


def built_in_executors(models: Iterable[str], *, circuits: bool = False) -> ExecutorRegistry | Refused:
    """The built-in executors of these models and, where wanted, the one that runs circuits."""
    found = find_built_in(models, circuits=circuits)
    return found if isinstance(found, Refused) else ExecutorRegistry(found)


def find_built_in(models: Iterable[str], *, circuits: bool = False) -> dict[tuple[Kind, str], AnyExecutor] | Refused:
    wanted = {(Kind.AI, model) for model in models} | ({(Kind.QUANTUM, CIRCUIT)} if circuits else set())
    unknown = sorted(name for kind, name in wanted if (kind, name) not in BUILT_IN)
    if unknown:
        known = ", ".join(sorted(name for kind, name in BUILT_IN if kind is Kind.AI))
        return Refused("SEC-001", f"model: no executor {', '.join(unknown)}", f"there are: {known}", "BadConfig")
    return {key: BUILT_IN[key] for key in wanted}
