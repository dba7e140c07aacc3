"""One query for the state of the whole node at a glance: what dashboards and `top` show (OBS-001)."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

import msgspec

from holdfast.core.base.values import EventNo, Height, ProviderId
from holdfast.core.chain.model import final_height
from holdfast.core.match.eligibility import why_not_available
from holdfast.core.provider.decide import kinds_of
from holdfast.core.provider.model import Provider, ProviderStatus
from holdfast.core.state import State
from holdfast.engine.queries.blobs import ArchiveProgress, archive_progress
from holdfast.engine.queries.jobs import QueueStatus, queue_status
from holdfast.engine.queries.query import Query

WORST_PROVIDERS: Final = 8


class ChainSummary(msgspec.Struct, frozen=True):
    """Where the chain ends, and what waits for its next block."""

    head: Height
    head_ms: int
    """When the head was sealed."""
    finalized: Height
    open_transactions: int
    results_waiting: int
    """Accepted results in the open block: they become readable with it."""
    is_rolling_back: bool


class FleetSummary(msgspec.Struct, frozen=True):
    """The providers, counted."""

    by_status: dict[str, int]
    working: int
    """Those with a live lease."""
    leases: int
    next_deadline_ms: int | None
    """The next time at which a lease needs an answer or ends."""


class ProviderSummary(msgspec.Struct, frozen=True):
    """One provider in a list of the worst."""

    id: ProviderId
    name: str
    kinds: tuple[str, ...]
    status: ProviderStatus
    health_ppm: int
    leases: int
    slots: int
    heartbeat_ms: int
    deadline_ms: int | None
    """The nearest deadline of its leases."""
    why_not: str
    """Why it gets no work; empty where it does."""
    reason: str = ""
    """Why it has its status, where somebody or a rule gave it one."""


class EvidenceSummary(msgspec.Struct, frozen=True):
    """Evidence as the journal knows it."""

    sessions: int
    dead_letters: int


class Overview(msgspec.Struct, frozen=True):
    """The state of a node at a glance, as of an event. It costs a step for each provider, never one for each job."""

    as_of: EventNo
    now_ms: int
    chain: ChainSummary
    queue: QueueStatus
    fleet: FleetSummary
    providers: list[ProviderSummary]
    """The worst first."""
    evidence: EvidenceSummary
    archive: ArchiveProgress


class GetOverview(Query[Overview], frozen=True):
    """The state of the node at a glance."""

    now_ms: int


def _get_overview(state: State, query: GetOverview) -> Overview:
    worst = nsmallest(WORST_PROVIDERS, _in_service(state), key=_badness)
    return Overview(
        as_of=state.last_event,
        now_ms=query.now_ms,
        chain=_chain(state),
        queue=queue_status(state),
        fleet=_fleet(state),
        providers=[_provider(state, each, query.now_ms) for each in worst],
        evidence=EvidenceSummary(len(state.watermarks), len(state.dead_letters)),
        archive=archive_progress(state),
    )


def _chain(state: State) -> ChainSummary:
    chain = state.chain
    return ChainSummary(
        head=chain.head.height,
        head_ms=chain.head.time_ms,
        finalized=final_height(state),
        open_transactions=len(chain.open.txs),
        results_waiting=chain.open.results.size,
        is_rolling_back=chain.rollback is not None,
    )


def _fleet(state: State) -> FleetSummary:
    by_status = dict.fromkeys((each.value for each in ProviderStatus), 0)
    for provider in state.providers.values():
        by_status[provider.status.value] += 1
    leases = state.leases
    return FleetSummary(by_status, len(leases.by_provider), len(leases.by_id), leases.due_index.earliest())


def _in_service(state: State) -> list[Provider]:
    return [each for each in state.providers.values() if each.status is not ProviderStatus.RETIRED]


def _badness(provider: Provider) -> tuple[bool, int, str]:
    return provider.status is ProviderStatus.ACTIVE, provider.health_ppm, provider.name


def _provider(state: State, provider: Provider, now_ms: int) -> ProviderSummary:
    deadlines = [lease.t_deadline_ms for lease in state.leases.of(provider.id)]
    return ProviderSummary(
        id=provider.id,
        name=provider.name,
        kinds=tuple(kinds_of(provider.capabilities)),
        status=provider.status,
        health_ppm=provider.health_ppm,
        leases=provider.leases,
        slots=provider.slots,
        heartbeat_ms=provider.heartbeat_ms,
        deadline_ms=min(deadlines, default=None),
        why_not=why_not_available(provider, state.policy, now_ms) or provider.denied_by_list,
        reason=provider.reason,
    )


QUERIES: Final = {GetOverview: _get_overview}
