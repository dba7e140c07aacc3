"""The faults that the demo injects, and whether the store shows that each was survived."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from holdfast.demo.event_history import EventHistory


class FaultKind(StrEnum):
    """What the demo can break."""

    AGENT = "agent"
    NODE = "node"
    ARCHIVE_REFUSES = "archive-refuses"
    ARCHIVE_LIES = "archive-lies"


DEFAULT_FAULTS: Final = (FaultKind.AGENT, FaultKind.NODE, FaultKind.ARCHIVE_REFUSES)
ARCHIVE_FAULTS: Final = frozenset({FaultKind.ARCHIVE_REFUSES, FaultKind.ARCHIVE_LIES})


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


class ArchiveBroken(NamedTuple):
    """The archive refused uploads, or returned other bytes than it was given; `after_event` is the last one before."""

    after_event: int

    def is_survived(self, history: EventHistory) -> bool:
        """It was noticed, what failed is archived and read back since, and nothing was deleted here before that."""
        blobs = history.blobs.values()
        failed = [blob for blob in blobs if any(event > self.after_event for event, _ in blob.failures)]
        is_early = any(blob.pruned and not 0 < blob.archived < blob.pruned for blob in blobs)
        return bool(failed) and all(blob.is_verified for blob in failed) and not is_early
