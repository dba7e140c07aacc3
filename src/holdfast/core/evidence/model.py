"""Evidence as the state keeps it: sessions, watermarks, stored rows and dead letters."""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.values import Digest, EventNo, LeaseId, ProviderId, TaskId, tally
from holdfast.core.lease.model import HasLeases


class DeadLetterStatus(StrEnum):
    """The status of a dead letter."""

    WAITING = "WAITING"
    RETRIED = "RETRIED"
    SETTLED = "SETTLED"


class DeadLetter(msgspec.Struct, array_like=True, gc=False):
    """A row of the table `dead_letter`; in memory while it waits. Its bytes are in the event, or beside its batch."""

    event: EventNo
    provider_id: ProviderId
    channel: str
    session: str
    sequence: int
    name: str
    reason: str
    size: int
    digest: Digest
    at_ms: int
    status: DeadLetterStatus = DeadLetterStatus.WAITING
    ended_ms: int = 0
    note: str = ""


def rebuild_dead_letters_waiting(dead_letters: dict[EventNo, DeadLetter]) -> dict[str, int]:
    return tally(dead_letter.channel for dead_letter in dead_letters.values())


SESSION_MAX: Final = 128
RECORDS_BYTES_MAX: Final = 4 << 20
NO_PROVIDER: Final = ProviderId(b"")
"""The provider id of a v0.1 sender's channel, which has no provider."""
_PROVIDER_CHANNEL: Final = re.compile(r"[0-9a-fA-F]{64}")


class SessionEnd(IntEnum):
    """How the last record ends the session (SP-RET-001)."""

    NONE = 0
    FENCE = 1
    """It is the end once the session is known to be closed."""
    TERMINATED = 2


class SessionWatermark(msgspec.Struct, array_like=True, gc=False):
    """How far one session is stored; a row of the table `watermark`. It is never deleted."""

    id: str
    provider_id: ProviderId
    channel: str
    session: str
    acked: int
    ending: int = 0
    at_ms: int = 0
    """When its last records were stored."""
    sealed_ms: int = 0
    pruned: int = 0
    """Records up to this one were pruned."""


class Evidence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records as received; a row of the table `evidence`, large ones beside their batch (ENG-007)."""

    event: EventNo
    provider_id: ProviderId
    channel: str
    session: str
    first_sequence: int
    last_sequence: int
    size: int
    digest: Digest
    lines: bytes | None
    leases: int = 0
    """How many rows of `work_log` speak of it."""


LEASES_PER_RUN_MAX: Final = 1 << 10


class WorkMessages(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which stored records have messages of running work; a row of the table `work_log` (EVD-005)."""

    place: int
    event: EventNo
    task_id: TaskId
    """The job; the whole one where the work is a replica of it."""
    lease_id: LeaseId
    attempt: int


def work_log_place(event: EventNo, number: int) -> int:
    """The key of a row of `work_log`: places are in the order of events."""
    return event * LEASES_PER_RUN_MAX + number


class ChannelSessions(msgspec.Struct, gc=False):
    """The number of a channel's sessions, and the newest one."""

    sessions: int = 0
    newest_id: str = ""
    """The watermark id of the session that began last."""


class HasEvidence(HasLeases, Protocol):
    """The parts of the state that this domain reads and changes."""

    dead_letters: dict[EventNo, DeadLetter]
    dead_letters_waiting: dict[str, int]
    """How many dead letters of a channel wait; rebuilt when a snapshot is restored."""
    watermarks: dict[str, SessionWatermark]
    channel_sessions: dict[str, ChannelSessions]
    """By channel; rebuilt when a snapshot is restored."""
    channel_owners: dict[str, str]
    """The certificate name that a v0.1 sender's channel requires, where that is not the channel's own name."""


def watermark_id(channel: str, session: str) -> str:
    return f"{channel}/{session}"


def acked_sequence(state: HasEvidence, channel: str, session: str) -> int:
    """EVD-002: the highest contiguous sequence that the node holds, 0 where it holds nothing."""
    watermark = state.watermarks.get(watermark_id(channel, session))
    return watermark.acked if watermark is not None else 0


def is_final(watermark: SessionWatermark) -> bool:
    """SP-RET-001: terminated, or ended with a fence and known to be closed, or sealed by an operator."""
    return watermark.ending == SessionEnd.TERMINATED or watermark.sealed_ms > 0


def is_provider_channel(channel: str) -> bool:
    """A provider's channel is its id; such a name is reserved for it."""
    return _PROVIDER_CHANNEL.fullmatch(channel) is not None


def count_session(sessions: dict[str, ChannelSessions], watermark: SessionWatermark) -> None:
    """Count a session; watermarks are in the order in which the sessions began, also in a snapshot."""
    channel = sessions.setdefault(watermark.channel, ChannelSessions())
    channel.sessions += 1
    channel.newest_id = watermark.id


def rebuild_channel_sessions(watermarks: dict[str, SessionWatermark]) -> dict[str, ChannelSessions]:
    by_channel: dict[str, ChannelSessions] = {}
    for watermark in watermarks.values():
        count_session(by_channel, watermark)
    return by_channel
