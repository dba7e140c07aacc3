"""What the demo breaks on purpose, and whether the store says that it was survived."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast.cli.demonstration.history import History


class Fault(Protocol):
    """Something that was broken."""

    def is_survived(self, history: History) -> bool: ...


class AgentKilled(NamedTuple):
    """A provider died with a job in its hands."""

    lease_id: str
    task_id: str
    provider: str

    def is_survived(self, history: History) -> bool:
        """Its lease was ended, and another provider's proof was accepted."""
        job = history.jobs.get(self.task_id)
        if job is None or len(job.accepted) != 1:
            return False
        ended = any(lease.id == self.lease_id and lease.closed is not None for lease in job.leases)
        return ended and job.accepted[0].provider != self.provider


class NodeKilled(NamedTuple):
    """The node died; this was the last event that anybody had seen."""

    after_event: int

    def is_survived(self, history: History) -> bool:
        """Somebody owns the journal again, and a proof was accepted since."""
        owned = next((event for event in history.epochs if event > self.after_event), None)
        accepted = (proof.event for job in history.jobs.values() for proof in job.accepted)
        return owned is not None and any(event > owned for event in accepted)
