"""The faults that the demo injects, and whether the store shows that each was survived."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast.demo.event_history import EventHistory


class InjectedFault(Protocol):
    """A fault that was injected."""

    def is_survived(self, history: EventHistory) -> bool: ...


class AgentKilled(NamedTuple):
    """An agent was killed while it ran a job."""

    lease_id: str
    task_id: str
    provider: str

    def is_survived(self, history: EventHistory) -> bool:
        """Its lease was ended, and another provider's proof was accepted."""
        job = history.jobs.get(self.task_id)
        if job is None or len(job.accepted) != 1:
            return False
        ended = any(lease.id == self.lease_id and lease.closed is not None for lease in job.leases)
        return ended and job.accepted[0].provider != self.provider


class NodeKilled(NamedTuple):
    """The node was killed; `after_event` is the last event that was seen before."""

    after_event: int

    def is_survived(self, history: EventHistory) -> bool:
        """A node owns the journal again, and has accepted a proof since."""
        owned = next((event for event in history.ownership_events if event > self.after_event), None)
        accepted = (proof.event for job in history.jobs.values() for proof in job.accepted)
        return owned is not None and any(event > owned for event in accepted)
