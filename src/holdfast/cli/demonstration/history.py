"""What the store says: the events of a node, read from its door while it lives or from its disk when it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from holdfast.client import Client
from holdfast.config import Config

Fields = Mapping[str, Any]


class Closed(NamedTuple):
    """How a lease ended without a result."""

    event: int
    reason: str
    at_ms: int
    not_before_ms: int


class Accepted(NamedTuple):
    """A proof that counts: whose, for which lease, and in which block."""

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
class Lease:
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
    closed: Closed | None = None


@dataclass
class Life:
    """All that happened to one job."""

    id: str
    max_fee: int = 0
    admitted: list[int] = field(default_factory=list)
    admitted_ms: int = 0
    leases: list[Lease] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Other ends than a result, by the event's name."""

    @property
    def lease(self) -> Lease | None:
        """The one that lives."""
        newest = self.leases[-1] if self.leases else None
        return newest if newest is not None and newest.closed is None and not self.accepted else None


class History:
    """The events up to `last`, added up."""

    def __init__(self) -> None:
        self.last = self.head = self.gaps = 0
        """Last event, height of the newest block, and places where evidence does not follow its mark."""
        self.first_ms = 0
        self.epochs: list[int] = []
        """The events by which somebody became the owner."""
        self.jobs: dict[str, Life] = {}
        self.sealed_ms: dict[int, int] = {}
        self.names: dict[str, str] = {}
        """Providers by id."""
        self.active: set[str] = set()
        self.beats: dict[str, int] = {}
        self.marks: dict[str, int] = {}
        """Evidence: how far each session has come."""
        self.resumed: dict[str, int] = {}
        """The first record of each session that this owner took."""
        self.totals: Counter[str] = Counter()
        self._leases: dict[str, Lease] = {}

    def take(self, number: int, time_ms: int, kind: str, event: Fields) -> None:
        self.last = number
        self.first_ms = self.first_ms or time_ms
        if (take := _TAKE.get(kind)) is not None:
            take(self, event)

    @property
    def finished(self) -> int:
        """Jobs whose proof is in a sealed block."""
        return sum(1 for _ in self.resolved())

    def resolved(self) -> Iterator[Life]:
        return (job for job in self.jobs.values() if job.accepted and job.accepted[0].height <= self.head)

    def live(self) -> Iterator[Lease]:
        return (lease for job in self.jobs.values() if (lease := job.lease) is not None)

    def name_of(self, provider: str) -> str:
        return self.names.get(provider, provider[:8])

    def live_of(self, name: str) -> list[Lease]:
        """What a provider has in its hands, by the provider's name."""
        return [lease for lease in self.live() if self.names.get(lease.provider) == name]

    # ------------------------------------------------------------------------------------ one event

    def _owned(self, event: Fields) -> None:
        self.epochs.append(self.last)
        self.resumed = {}
        for lease in self.live():  # LEA-008: an outage of the node counts against nobody
            lease.deadline_ms += event["outage_ms"]

    def _admitted(self, event: Fields) -> None:
        job = self.jobs.setdefault(event["id"], Life(event["id"]))
        job.admitted.append(self.last)
        job.admitted_ms, job.max_fee = event["enqueue_ms"], event["max_fee"]
        self.totals["reserved"] += event["max_fee"]

    def _assigned(self, event: Fields) -> None:
        names = (event["lease_id"], event["job_id"], event["provider_id"], event["attempt"])
        lease = Lease(*names, self.last, event["t_start_ms"], event["t_deadline_ms"])
        self._leases[lease.id] = lease
        self.jobs.setdefault(lease.task_id, Life(lease.task_id)).leases.append(lease)

    def _acked(self, event: Fields) -> None:
        self._leases[event["id"]].acked_ms = event["at_ms"]

    def _renewed(self, event: Fields) -> None:
        self._leases[event["id"]].deadline_ms = event["t_deadline_ms"]

    def _closed(self, event: Fields) -> None:
        told = Closed(self.last, event["reason"], event["at_ms"], event["not_before_ms"])
        self._leases[event["id"]].closed = told

    def _submitted(self, event: Fields) -> None:
        self._leases[event["lease_id"]].submitted_ms = event["at_ms"]

    def _accepted(self, event: Fields) -> None:
        job = self.jobs.setdefault(event["task_id"], Life(event["task_id"]))
        who = (event["lease_id"], event["provider_id"], event["digest"], event["size"])
        paid = (event["payee"], event["charged"], event["method"])
        job.accepted.append(Accepted(self.last, event["ended_ms"], *who, *paid, self.head + 1))
        self.totals["charged"] += event["charged"]
        self.totals["refunded"] += job.max_fee - event["charged"]

    def _ended(self, event: Fields) -> None:
        job = self.jobs.setdefault(event["id"], Life(event["id"]))
        job.ended.append(event["reason"])
        self.totals["refunded"] += job.max_fee

    def _sealed(self, event: Fields) -> None:
        self.head = event["height"]
        self.sealed_ms[self.head] = event["time_ms"]

    def _registered(self, event: Fields) -> None:
        self.names[event["id"]] = event["name"]

    def _staked(self, event: Fields) -> None:
        self.totals["reserved"] += event["amount"]

    def _moved(self, event: Fields) -> None:
        (self.active.add if event["after"] == "ACTIVE" else self.active.discard)(event["id"])

    def _beat(self, event: Fields) -> None:
        self.beats[event["id"]] = self.last

    def _evidence(self, event: Fields) -> None:
        session, first, last = event["session"], event["first"], event["last"]
        key = f"{event['channel']}/{session}"
        self.gaps += first != self.marks.get(key, 0) + 1
        self.marks[key] = last
        self.resumed.setdefault(key, first)


_TAKE: Final[dict[str, Callable[[History, Fields], None]]] = {
    "OwnershipTaken": History._owned,
    "JobAdmitted": History._admitted,
    "JobAssigned": History._assigned,
    "LeaseAcked": History._acked,
    "LeaseRenewed": History._renewed,
    "LeaseClosed": History._closed,
    "CompletionSubmitted": History._submitted,
    "ProofAccepted": History._accepted,
    "JobCancelled": History._ended,
    "JobExpired": History._ended,
    "JobFailed": History._ended,
    "BlockSealed": History._sealed,
    "ProviderRegistered": History._registered,
    "ProviderStaked": History._staked,
    "ProviderMoved": History._moved,
    "HeartbeatTaken": History._beat,
    "EvidenceTaken": History._evidence,
}


async def follow(data: Path, into: History) -> AsyncGenerator[int, None]:
    """Fill a history from the living node, event by event, as long as it lives."""
    async with aclosing(cast(AsyncGenerator[Any, None], Client(data, patience_s=0.0).follow(into.last))) as events:
        async for event in events:
            into.take(event["number"], event["time_ms"], event["type"], event["event"])
            yield into.last


async def from_node(data: Path) -> History:
    """What the node tells from its first event on, up to its newest."""
    history = History()
    async with Client(data) as node:
        until = (await node.status())["event"]
    async with aclosing(follow(data, history)) as numbers:
        async for number in numbers:
            if number >= until:
                break
    return history


async def from_disk(config: Config) -> History:
    """What lies in the journal, whether a node runs or not; every batch's hash and place in the chain is checked."""
    from holdfast.app import stores  # noqa: PLC0415 - databases are loaded when they are needed
    from holdfast.core import law  # noqa: PLC0415
    from holdfast.core.event import Tip, check_follows, tip_of  # noqa: PLC0415
    from holdfast.core.values import BatchNo  # noqa: PLC0415
    from holdfast.doors.shapes import plain  # noqa: PLC0415

    history, tip = History(), Tip()
    journal, tables = stores(config)
    try:
        async for batch in journal.read(BatchNo(0)):
            check_follows(tip, batch)
            tip = tip_of(batch)
            for number, event in enumerate(law.unpack(batch), start=batch.first):
                history.take(number, batch.time_ms, type(event).__name__, plain(event))
    finally:
        await journal.close()
        await tables.close()
    return history
