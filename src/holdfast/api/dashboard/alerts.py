"""What needs an operator's hand, read from the overview (OBS-001): a table of checks, each with its rule and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.policy import Policy
from holdfast.core.provider.model import ProviderStatus
from holdfast.engine.lookups.overview import Overview

BLOCKS_LATE: Final = 5
"""A block counts as late after this many intervals, while something waits for it."""
UNLEASED_MS: Final = 60_000
"""How long a job may wait in a queue that nothing is leased from before somebody is told."""


class AlertLevel(StrEnum):
    """How urgent it is."""

    STUCK = "stuck"
    """Something does not go on by itself."""
    WATCH = "watch"
    """It goes on, but not as it should."""


class Alert(msgspec.Struct, frozen=True):
    """One thing that should not stay as it is."""

    key: str
    """The same as long as it is the same thing."""
    level: AlertLevel
    rule: str
    text: str
    remedy: str


class NodeFacts(msgspec.Struct, frozen=True):
    """What this process knows beside the journal."""

    tables_lag: int = 0
    clock_fault: Refused | None = None
    damaged_outputs: int = 0
    journal_faults: int = 0
    """Damaged archive segments that the scrubber has found."""
    has_archive: bool = False


Check = Callable[[Overview, NodeFacts, Policy], Iterator[Alert]]


def find_alerts(overview: Overview, facts: NodeFacts, policy: Policy) -> list[Alert]:
    """All of them, the most urgent first."""
    alerts = [alert for check in CHECKS for alert in check(overview, facts, policy)]
    return sorted(alerts, key=lambda alert: alert.level is not AlertLevel.STUCK)


def verdict_of(alerts: list[Alert]) -> str:
    """One sentence: whether somebody has to act."""
    if not alerts:
        return "Nothing needs a hand."
    first = f"{alerts[0].text[0].lower()}{alerts[0].text[1:]}"
    if len(alerts) == 1:
        return f"One thing needs a hand: {first}."
    return f"{len(alerts)} things need a hand: {first}, and more."


def _archive(overview: Overview, facts: NodeFacts, _: Policy) -> Iterator[Alert]:
    archive = overview.archive
    if archive.lost:
        text = f"Neither the archive nor this node has the bytes of {_count(archive.lost, 'blob')}"
        remedy = "A follower that still has them can be asked: set archive.peers, then: holdfast blob audit"
        yield Alert("bytes_lost", AlertLevel.STUCK, "PRU-001", text, remedy)
    if archive.stalled:
        text = f"The archive is stalled at {_count(archive.stalled, 'blob')}"
        remedy = "Nothing is dropped. Mend the archive or its credential, then: holdfast blob retry"
        yield Alert("archive_stalled", AlertLevel.STUCK, "ARC-003", text, remedy)
    elif archive.pending and not facts.has_archive:
        text = f"No archive is configured for {_count(archive.pending, 'blob')}"
        yield Alert("archive_missing", AlertLevel.WATCH, "ARC-004", text, "Set archive.provider in holdfast.toml")


def _providers(overview: Overview, _: NodeFacts, __: Policy) -> Iterator[Alert]:
    for provider in overview.providers:
        if provider.status in (ProviderStatus.SUSPENDED, ProviderStatus.JAILED):
            name = provider.name or provider.id.hex()[:8]
            text = f"Provider {name} is {provider.status.value}{f': {provider.reason}' if provider.reason else ''}"
            remedy = f"See: holdfast provider show {provider.id.hex()[:12]}"
            yield Alert(f"provider {provider.id.hex()}", AlertLevel.WATCH, "PRV-002", text, remedy)


def _queue(overview: Overview, _: NodeFacts, __: Policy) -> Iterator[Alert]:
    queue = overview.queue
    for kind, paused in queue.paused.items():
        reason = f" ({paused.reason})" if paused.reason else ""
        text = f"{kind} jobs are paused{reason}"
        yield Alert(f"paused {kind}", AlertLevel.WATCH, "MAT-004", text, f"To go on: holdfast queue resume {kind}")
    oldest_ms = min((ms for kind, ms in queue.oldest_ms.items() if kind not in queue.paused), default=overview.now_ms)
    if not queue.leases and overview.now_ms - oldest_ms > UNLEASED_MS:
        waiting = sum(queue.waiting.values())
        text = f"{_count(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}, and no provider takes any"
        remedy = "holdfast job quote TASK_ID says why each provider is passed over"
        yield Alert("unleased", AlertLevel.STUCK, "MAT-004", text, remedy)


def _chain(overview: Overview, _: NodeFacts, policy: Policy) -> Iterator[Alert]:
    chain = overview.chain
    if chain.is_rolling_back:
        text = "Blocks are being rolled back, no block is sealed meanwhile"
        yield Alert("rollback", AlertLevel.WATCH, "CHN-003", text, "It goes on by itself: holdfast chain head")
    elif chain.open_transactions and overview.now_ms - chain.head_ms > BLOCKS_LATE * policy.chain.block_ms:
        text = f"The next block is late: the last one is {(overview.now_ms - chain.head_ms) // 1000} s old"
        yield Alert("block_late", AlertLevel.STUCK, "CHN-002", text, "See the node's log and: holdfast doctor")


def _evidence(overview: Overview, _: NodeFacts, __: Policy) -> Iterator[Alert]:
    if waiting := overview.evidence.dead_letters:
        text = f"{_count(waiting, 'record')} of evidence could not be read"
        yield Alert("dead_letters", AlertLevel.WATCH, "EVD-007", text, "See: holdfast evidence dead-letters")


def _storage(_: Overview, facts: NodeFacts, policy: Policy) -> Iterator[Alert]:
    if facts.clock_fault is not None:
        fault = facts.clock_fault
        yield Alert("clock", AlertLevel.STUCK, fault.rule, f"The clock is not believed: {fault.message}", fault.hint)
    if facts.tables_lag > policy.engine.tables_lag_events_soft:
        text = f"The tables are {facts.tables_lag} events behind, new jobs wait"
        yield Alert(
            "tables_lag", AlertLevel.STUCK, "ENG-004", text, "Check the disk; the projector catches up by itself"
        )
    if facts.damaged_outputs:
        text = f"{_count(facts.damaged_outputs, 'output')} on the disk damaged"
        yield Alert("outputs", AlertLevel.STUCK, "TIER-001", text, "holdfast db check names them; restore the files")
    if facts.journal_faults:
        text = f"{_count(facts.journal_faults, 'journal segment')} damaged"
        yield Alert("journal", AlertLevel.STUCK, "ENG-009", text, "Restore them from a backup: holdfast db check")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


CHECKS: Final[tuple[Check, ...]] = (_storage, _archive, _chain, _queue, _evidence, _providers)
