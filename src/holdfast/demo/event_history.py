"""The events of a node, read from its socket while it runs or from its disk when it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from holdfast.client.node_socket import NodeSocket
from holdfast.config import Config

if TYPE_CHECKING:
    from holdfast.core.base.event import Batch, Event

Fields = Mapping[str, Any]


class ClosedLease(NamedTuple):
    """How a lease ended without a result."""

    event: int
    reason: str
    at_ms: int
    not_before_ms: int


class AcceptedProof(NamedTuple):
    """An accepted proof: by which provider, for which lease, in which block."""

    event: int
    at_ms: int
    lease_id: str
    provider: str
    digest: str
    size: int
    payee: str
    charged: int
    method: str
    height: int


@dataclass
class LeaseTrace:
    """One attempt at a job."""

    id: str
    task_id: str
    provider: str
    attempt: int
    event: int
    start_ms: int
    deadline_ms: int
    acked_ms: int | None = None
    submitted_ms: int | None = None
    closed: ClosedLease | None = None


@dataclass
class JobTrace:
    """All that happened to one job."""

    id: str
    max_fee: int = 0
    admitted: list[int] = field(default_factory=list)
    admitted_ms: int = 0
    leases: list[LeaseTrace] = field(default_factory=list)
    accepted: list[AcceptedProof] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Reasons for which it ended without a result."""

    @property
    def lease(self) -> LeaseTrace | None:
        """The active lease, if there is one."""
        newest = self.leases[-1] if self.leases else None
        return newest if newest is not None and newest.closed is None and not self.accepted else None


@dataclass
class BlobTrace:
    """A blob's way to the archive, by the numbers of the events."""

    height: int
    number: int
    failures: list[tuple[int, str]] = field(default_factory=list)
    """Attempts that failed, each with its reason."""
    archived: int = 0
    is_verified: bool = False
    locator: str = ""
    pruned: int = 0


class EventHistory:
    """What the events up to `last` say."""

    def __init__(self) -> None:
        self.last = self.head = self.gaps = 0
        """Last event, height of the newest block, and how often evidence did not follow its watermark."""
        self.first_ms = 0
        self.ownership_events: list[int] = []
        """The events by which a node became the owner of the journal."""
        self.jobs: dict[str, JobTrace] = {}
        self.sealed_ms: dict[int, int] = {}
        self.names: dict[str, str] = {}
        """Names of providers by id."""
        self.active: set[str] = set()
        self.heartbeats: dict[str, int] = {}
        self.watermarks: dict[str, int] = {}
        """Evidence: the last record of each session."""
        self.resumed: dict[str, int] = {}
        """The first record of each session that the current owner received."""
        self.totals: Counter[str] = Counter()
        self.blobs: dict[tuple[int, int], BlobTrace] = {}
        """By block and number in it."""
        self.packed: set[str] = set()
        """Jobs whose output is in a blob."""
        self._leases: dict[str, LeaseTrace] = {}

    def add(self, number: int, time_ms: int, kind: str, event: Fields) -> None:
        self.last = number
        self.first_ms = self.first_ms or time_ms
        if (handler := _HANDLERS.get(kind)) is not None:
            handler(self, event)

    @property
    def finished(self) -> int:
        """Jobs whose proof is in a sealed block."""
        return sum(1 for _ in self.resolved_jobs())

    def resolved_jobs(self) -> Iterator[JobTrace]:
        return (job for job in self.jobs.values() if job.accepted and job.accepted[0].height <= self.head)

    def live_leases(self) -> Iterator[LeaseTrace]:
        return (lease for job in self.jobs.values() if (lease := job.lease) is not None)

    def name_of(self, provider: str) -> str:
        return self.names.get(provider, provider[:8])

    def live_leases_of(self, name: str) -> list[LeaseTrace]:
        """The active leases of a provider, by its name."""
        return [lease for lease in self.live_leases() if self.names.get(lease.provider) == name]

    # ------------------------------------------------------------------------------------ one event

    def _on_ownership_taken(self, event: Fields) -> None:
        self.ownership_events.append(self.last)
        self.resumed = {}
        for lease in self.live_leases():  # LEA-008: an outage of the node is credited to all leases
            lease.deadline_ms += event["outage_ms"]

    def _on_admitted(self, event: Fields) -> None:
        job = self.jobs.setdefault(event["id"], JobTrace(event["id"]))
        job.admitted.append(self.last)
        job.admitted_ms, job.max_fee = event["enqueue_ms"], event["max_fee"]
        self.totals["reserved"] += event["max_fee"]

    def _on_assigned(self, event: Fields) -> None:
        lease = LeaseTrace(
            id=event["lease_id"],
            task_id=event["job_id"],
            provider=event["provider_id"],
            attempt=event["attempt"],
            event=self.last,
            start_ms=event["t_start_ms"],
            deadline_ms=event["t_deadline_ms"],
        )
        self._leases[lease.id] = lease
        self.jobs.setdefault(lease.task_id, JobTrace(lease.task_id)).leases.append(lease)

    def _on_acked(self, event: Fields) -> None:
        self._leases[event["id"]].acked_ms = event["at_ms"]

    def _on_renewed(self, event: Fields) -> None:
        self._leases[event["id"]].deadline_ms = event["t_deadline_ms"]

    def _on_lease_closed(self, event: Fields) -> None:
        closed = ClosedLease(self.last, event["reason"], event["at_ms"], event["not_before_ms"])
        self._leases[event["id"]].closed = closed

    def _on_submitted(self, event: Fields) -> None:
        self._leases[event["lease_id"]].submitted_ms = event["at_ms"]

    def _on_accepted(self, event: Fields) -> None:
        job = self.jobs.setdefault(event["task_id"], JobTrace(event["task_id"]))
        job.accepted.append(
            AcceptedProof(
                event=self.last,
                at_ms=event["ended_ms"],
                lease_id=event["lease_id"],
                provider=event["provider_id"],
                digest=event["digest"],
                size=event["size"],
                payee=event["payee"],
                charged=event["charged"],
                method=event["method"],
                height=self.head + 1,
            )
        )
        self.totals["charged"] += event["charged"]
        self.totals["refunded"] += job.max_fee - event["charged"]

    def _on_job_ended(self, event: Fields) -> None:
        job = self.jobs.setdefault(event["id"], JobTrace(event["id"]))
        job.ended.append(event["reason"])
        self.totals["refunded"] += job.max_fee

    def _on_block_sealed(self, event: Fields) -> None:
        self.head = event["height"]
        self.sealed_ms[self.head] = event["time_ms"]

    def _on_registered(self, event: Fields) -> None:
        self.names[event["id"]] = event["name"]

    def _on_staked(self, event: Fields) -> None:
        self.totals["reserved"] += event["amount"]

    def _on_status_changed(self, event: Fields) -> None:
        (self.active.add if event["after"] == "ACTIVE" else self.active.discard)(event["id"])

    def _on_heartbeat(self, event: Fields) -> None:
        self.heartbeats[event["id"]] = self.last

    def _on_evidence(self, event: Fields) -> None:
        session, first, last = event["session"], event["first"], event["last"]
        key = f"{event['channel']}/{session}"
        self.gaps += first != self.watermarks.get(key, 0) + 1
        self.watermarks[key] = last
        self.resumed.setdefault(key, first)

    def _on_blob_added(self, event: Fields) -> None:
        self._blob(event)
        self.packed.update(part["task_id"] for part in event["content"]["parts"])

    def _on_upload_failed(self, event: Fields) -> None:
        self._blob(event).failures.append((self.last, event["reason"]))

    def _on_blob_archived(self, event: Fields) -> None:
        blob = self._blob(event)
        blob.archived = blob.archived or self.last
        blob.is_verified, blob.locator = event["assurance"] == "verified", event["locator"]

    def _on_blobs_pruned(self, event: Fields) -> None:
        for blob in self.blobs.values():
            if blob.height == event["height"]:
                blob.pruned = self.last

    def _blob(self, event: Fields) -> BlobTrace:
        key = (event["height"], event["number"])
        return self.blobs.setdefault(key, BlobTrace(*key))


_HANDLERS: Final[dict[str, Callable[[EventHistory, Fields], None]]] = {
    "ownershipTaken": EventHistory._on_ownership_taken,
    "jobAdmitted": EventHistory._on_admitted,
    "jobAssigned": EventHistory._on_assigned,
    "leaseAcked": EventHistory._on_acked,
    "leaseRenewed": EventHistory._on_renewed,
    "leaseCancelled": EventHistory._on_lease_closed,
    "leaseExpired": EventHistory._on_lease_closed,
    "completionSubmitted": EventHistory._on_submitted,
    "jobCompleted": EventHistory._on_accepted,
    "jobCancelled": EventHistory._on_job_ended,
    "jobExpired": EventHistory._on_job_ended,
    "jobFailed": EventHistory._on_job_ended,
    "blockSealed": EventHistory._on_block_sealed,
    "providerRegistered": EventHistory._on_registered,
    "providerStaked": EventHistory._on_staked,
    "providerStatusChanged": EventHistory._on_status_changed,
    "heartbeatReceived": EventHistory._on_heartbeat,
    "evidenceStored": EventHistory._on_evidence,
    "blobAdded": EventHistory._on_blob_added,
    "uploadFailed": EventHistory._on_upload_failed,
    "blobArchived": EventHistory._on_blob_archived,
    "blobsPruned": EventHistory._on_blobs_pruned,
}


async def follow(data: Path, into: EventHistory) -> AsyncGenerator[int, None]:
    """Fill a history from the running node, event by event, as long as it runs."""
    async with aclosing(
        cast(AsyncGenerator[Any, None], NodeSocket(data, total_timeout_s=0.0).follow(into.last))
    ) as events:
        async for event in events:
            into.add(event["number"], event["time_ms"], event["type"], event["event"])
            yield into.last


async def read_from_node(data: Path) -> EventHistory:
    """The running node's events, from the first to the newest."""
    history = EventHistory()
    async with NodeSocket(data) as node:
        until = (await node.status())["event"]
    async with aclosing(follow(data, history)) as numbers:
        async for number in numbers:
            if number >= until:
                break
    return history


async def read_from_journal(config: Config) -> EventHistory:
    """The events in the journal, whether a node runs or not; the hash chain of the batches is checked."""
    from holdfast.api.public_events import public_name  # noqa: PLC0415 - heavy: only this function needs it
    from holdfast.api.rpc.params import to_json  # noqa: PLC0415

    history = EventHistory()
    async for batch, events in journal_batches(config):
        for number, event in enumerate(events, start=batch.first):
            history.add(number, batch.time_ms, public_name(type(event), event), to_json(event))
    return history


async def journal_batches(config: Config) -> AsyncIterator[tuple[Batch, list[Event]]]:
    """All batches of the journal with their events; each must follow the one before it."""
    from holdfast.app.stores import make_stores  # noqa: PLC0415 - databases are loaded when they are needed
    from holdfast.core.base.event import JournalHead, check_follows, head_of  # noqa: PLC0415
    from holdfast.core.journal_codec import unpack  # noqa: PLC0415

    head = JournalHead()
    journal, tables = make_stores(config)
    try:
        async for batch in journal.read(head.number):
            check_follows(head, batch)
            head = head_of(batch)
            yield batch, list(unpack(batch))
    finally:
        await journal.close()
        await tables.close()
