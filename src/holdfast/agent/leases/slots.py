"""Which leases take a slot of the agent and of their executor: a full executor is busy for a moment (LEA-006)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.agent.executors.registry import ExecutorKey, ExecutorRegistry
from holdfast.agent.leases.lease_run import LeaseRun

BUSY, FULL, UNHEALTHY = "BUSY", "FULL", "UNHEALTHY"


class Slots:
    """Counts leases that run, and those that will: acknowledged ones whose payload has not come yet."""

    def __init__(self, registry: ExecutorRegistry, total: int) -> None:
        self._registry, self.total = registry, total
        self._running: Counter[ExecutorKey] = Counter()
        self._expected: dict[bytes, ExecutorKey] = {}

    def count_running(self, leases: Iterable[LeaseRun]) -> None:
        """Before the offers of a message: those of them that are accepted are expected."""
        self._running = Counter(lease.executor_key for lease in leases if lease.is_working)

    def expect(self, lease_id: bytes, key: ExecutorKey) -> None:
        self._expected[lease_id] = key

    def forget(self, lease_id: bytes) -> None:
        self._expected.pop(lease_id, None)

    def clear(self) -> None:
        self._expected.clear()

    def why_not(self, key: ExecutorKey, lease_id: bytes) -> str:
        """Empty where there is a free slot for this work; a lease that is expected already has its own."""
        if key in self._registry.unhealthy:
            return f"{UNHEALTHY}: {key[1]:.40}"
        if self._running.total() + len(self._expected) - (lease_id in self._expected) >= self.total:
            return FULL
        most = self._registry.slots_of(key)
        return f"{BUSY}: {key[1]:.40}" if most and self._taken_of(key, lease_id) >= most else ""

    def _taken_of(self, key: ExecutorKey, lease_id: bytes) -> int:
        return self._running[key] + sum(each == key for id_, each in self._expected.items() if id_ != lease_id)
