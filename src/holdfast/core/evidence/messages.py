"""Commands and events of evidence."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.base.event import Command, Event, PayloadRef
from holdfast.core.base.values import Digest, EventNo, LeaseId, ProviderId
from holdfast.core.evidence.model import DeadLetterStatus, SessionEnd


class RejectedRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of a command that is permanently refused."""

    sequence: int
    name: str
    reason: str
    raw: bytes
    """Its bytes, or the beginning of them."""
    size: int
    digest: Digest
    """Of all its bytes."""
    is_stored: bool = False
    """Whether the record itself is stored at its sequence; else a placeholder line is."""


class RecordDeadLettered(Event, frozen=True, tag=93):
    """A record has its sequence in the session and is permanently refused."""

    provider_id: ProviderId
    channel: str
    session: str
    sequence: int
    name: str
    reason: str
    payload: PayloadRef
    size: int
    digest: Digest
    is_stored: bool
    at_ms: int


class ResolveDeadLetter(Command, frozen=True):
    """An operator resolves a dead letter: the command of the record is retried, or the dead letter is settled."""

    event: EventNo
    note: str = ""
    retry_command: Any = None
    """The command to retry; where it is refused the dead letter stays."""


class DeadLetterResolved(Event, frozen=True, tag=94):
    """A dead letter was resolved."""

    event: EventNo
    channel: str
    status: DeadLetterStatus
    note: str
    at_ms: int


class StoreEvidence(Command, frozen=True):
    """Records of a session, in order and without gaps: lines as they were spooled, validated before."""

    provider_id: ProviderId
    channel: str
    session: str
    first: int
    last: int
    lines: bytes
    rejected: tuple[RejectedRecord, ...] = ()
    """Those of them that are permanently refused."""
    ending: SessionEnd = SessionEnd.NONE
    leases: tuple[LeaseId, ...] = ()
    """Leases whose work has messages among the records."""
    digest: Digest | None = None
    """Of the lines, where it was computed before: hashing a megabyte takes the decision's time."""


class EvidenceStored(Event, frozen=True, tag=92):
    """The node holds these records."""

    provider_id: ProviderId
    channel: str
    session: str
    first: int
    last: int
    payload: PayloadRef
    ending: int = 0
    at_ms: int = 0
    """When they were received."""
    leases: tuple[LeaseId, ...] = ()
    """Live leases of this provider whose work has messages among the records (EVD-005)."""


class SessionSealed(Event, frozen=True, tag=95):
    """Nothing more is expected of this session."""

    channel: str
    session: str
    reason: str
    at_ms: int


class SealSession(Command, frozen=True):
    """An operator ends a session that has no final record (SP-RET-001)."""

    channel: str
    session: str


class PruneEvidence(Command, frozen=True):
    """Prune the oldest records of a session: these rows, which hold its records up to `until`."""

    channel: str
    session: str
    until: int
    rows: tuple[EventNo, ...]
    logs: tuple[int, ...] = ()
    """The rows of `work_log` that speak of these rows."""


class EvidencePruned(Event, frozen=True, tag=96):
    """The records of a finished session up to this one were pruned; its watermark stays."""

    channel: str
    session: str
    until: int
    rows: tuple[EventNo, ...]
    at_ms: int
    logs: tuple[int, ...] = ()


class AssignChannel(Command, frozen=True):
    """Set the certificate name that a v0.1 sender's channel requires (EVD-009); an empty name restores its own."""

    channel: str
    owner: str


class ChannelAssigned(Event, frozen=True, tag=130):
    """The channel requires this certificate name from now on."""

    channel: str
    owner: str
    at_ms: int
