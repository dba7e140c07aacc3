"""Which executor runs a payload: executors by kind and name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from holdfast.agent.executors.contract import AnyExecutor
from holdfast.core.base.canonical import NotCanonical, decode
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import WorkPayload, read_work_payload, work_name

NAMES_FIELD: Final = {Kind.AI: "models", Kind.COMPUTE: "runtimes"}
"""The field of a capability that lists the names of a kind's work; QUANTUM has one executor for all circuits."""
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


ExecutorKey = tuple[str, str]
"""The kind and the name of an executor's work."""


class ExecutorRegistry:
    """The executors that this agent offers."""

    def __init__(
        self,
        executors: Mapping[tuple[Kind, str], AnyExecutor],
        resources: Mapping[str, int] | None = None,
        slots: Mapping[ExecutorKey, int] | None = None,
    ) -> None:
        self._executors = dict(executors)
        self._resources = dict(resources or {})
        """Of each slot, for COMPUTE jobs: cpu_milli, memory_mb, gpus."""
        self._slots = dict(slots or {})
        self.unhealthy: set[ExecutorKey] = set()
        """Executors whose last probe failed (`health`)."""

    def slots_of(self, key: ExecutorKey) -> int:
        """How many jobs of this name may run at a time; 0: as many as the agent has slots."""
        return self._slots.get(key, 0)

    @property
    def executors(self) -> list[tuple[ExecutorKey, AnyExecutor]]:
        """All of them, by kind and name."""
        return [((kind.value, name), executor) for (kind, name), executor in sorted(self._executors.items())]

    def key_of(self, kind: str, requirements: bytes) -> ExecutorKey:
        """The executor that a job needs, before its payload is known."""
        return kind, _required_work(requirements)

    def capabilities(self, labels: Mapping[str, str] = NO_LABELS) -> dict[str, dict[str, Any]]:
        """What the agent registers (MAT-002); an executor of circuits states its own capability."""
        capabilities: dict[str, dict[str, Any]] = {}
        for (kind, name), executor in sorted(self._executors.items()):
            if (field := NAMES_FIELD.get(kind)) is None:
                capabilities[kind.value] = dict(getattr(executor, "capability", {}))
                continue
            more = self._resources if kind is Kind.COMPUTE else {}
            capabilities.setdefault(kind.value, {field: [], **more})[field].append(name)
        return {kind: can | {"labels": dict(labels)} for kind, can in capabilities.items()} if labels else capabilities

    def why_not_offered(self, kind: str, requirements: bytes) -> Refused | None:
        """Whether a job that requires this could be run, before its payload is known (JOB-010)."""
        name = _required_work(requirements)
        if any(known.value == kind and offered == name for known, offered in self._executors):
            return None
        return Refused("MAT-002", f"{kind} {name!r:.80} is not offered here", name="NotFound")

    def find(self, kind: str, raw: bytes) -> tuple[AnyExecutor, WorkPayload] | Refused:
        """The executor for a payload, and the decoded payload."""
        try:
            payload = read_work_payload(raw)
        except (NotCanonical, msgspec.ValidationError) as fault:
            return Refused("JOB-003", f"payload: {fault}", name="InvalidParams")
        name = work_name(payload.spec)
        executor = self._executors.get((payload.kind, name))
        if executor is None or payload.kind.value != kind:
            return Refused("MAT-002", f"{kind} {name!r} is not offered here", name="NotFound")
        return executor, payload


@lru_cache(maxsize=1_024)  # most jobs require the same as others do
def _required_work(requirements: bytes) -> str:
    needs: Any = decode(requirements) if requirements else {}
    return work_name(needs)
