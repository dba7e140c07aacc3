"""Which executor runs a payload: executors by kind and name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.agent.executors.contract import Executor
from holdfast.core.base.canonical import NotCanonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import WorkPayload, read_work_payload

CIRCUIT: Final = "circuit"


def _model_name(payload: WorkPayload) -> str:
    return str(payload.spec.get("model"))


def _circuit_name(_: WorkPayload) -> str:
    return CIRCUIT


EXECUTOR_NAME: Final[Mapping[Kind, Callable[[WorkPayload], str]]] = {Kind.AI: _model_name, Kind.QUANTUM: _circuit_name}
"""Which executor a payload needs: an AI job names its model; one executor runs all circuits."""


class ExecutorRegistry:
    """The executors that this agent offers."""

    def __init__(self, executors: Mapping[tuple[Kind, str], Executor]) -> None:
        self._executors = dict(executors)

    def capabilities(self) -> dict[str, dict[str, Any]]:
        """What the agent registers (MAT-002); an executor of circuits states its own capability."""
        capabilities: dict[str, dict[str, Any]] = {}
        for (kind, name), executor in sorted(self._executors.items()):
            if kind is Kind.AI:
                capabilities.setdefault(kind.value, {"models": []})["models"].append(name)
            else:
                capabilities[kind.value] = dict(getattr(executor, "capability", {}))
        return capabilities

    def find(self, kind: str, raw: bytes) -> tuple[Executor, WorkPayload] | Refused:
        """The executor for a payload, and the decoded payload."""
        try:
            payload = read_work_payload(raw)
        except (NotCanonical, msgspec.ValidationError) as fault:
            return Refused("JOB-003", f"payload: {fault}", name="InvalidParams")
        name = EXECUTOR_NAME[payload.kind](payload)
        executor = self._executors.get((payload.kind, name))
        if executor is None or payload.kind.value != kind:
            return Refused("MAT-002", f"{kind} {name!r} is not offered here", name="NotFound")
        return executor, payload
