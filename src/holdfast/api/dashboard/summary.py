"""The overview with what this process knows beside the journal: open evidence streams, alerts, the verdict."""

from __future__ import annotations

import msgspec

from holdfast.__about__ import __version__
from holdfast.api.dashboard.alerts import Alert, NodeFacts, find_alerts, verdict_of
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.values import EventNo
from holdfast.engine.lookups.overview import (
    ChainSummary,
    FleetSummary,
    GetOverview,
    Overview,
    ProviderSummary,
)
from holdfast.engine.queries.blobs import ArchiveProgress
from holdfast.engine.queries.jobs import QueueStatus

CHANNELS_SHOWN = 8


class ChannelLag(msgspec.Struct, frozen=True):
    """An open stream of evidence: how far its sender is ahead of what this node has acknowledged."""

    channel: str
    acked: int
    lag: int


class EvidenceView(msgspec.Struct, frozen=True):
    """Evidence: what the journal has, and what open streams say."""

    sessions: int
    dead_letters: int
    streams: int
    unacknowledged: int
    """Records that senders have beyond what is acknowledged."""
    records: int
    """Stored since this process began."""
    channels: list[ChannelLag]
    """The furthest behind first."""


class NodeIdentity(msgspec.Struct, frozen=True):
    """Which node this is."""

    version: str
    network: str
    chain_id: int
    role: str
    phase: str


class NodeSummary(msgspec.Struct, frozen=True):
    """Everything on the first page, by section."""

    as_of: EventNo
    now_ms: int
    verdict: str
    alerts: list[Alert]
    node: NodeIdentity
    chain: ChainSummary
    queue: QueueStatus
    fleet: FleetSummary
    providers: list[ProviderSummary]
    evidence: EvidenceView
    archive: ArchiveProgress


async def node_summary(access: NodeAccess) -> NodeSummary:
    """As of a durable batch."""
    source = access.source
    now_ms = source.now_ms()
    overview = await source.query_durable(GetOverview(now_ms))
    alerts = find_alerts(overview, node_facts(access), source.policy)
    replication = source.replication_status()
    return NodeSummary(
        as_of=overview.as_of,
        now_ms=now_ms,
        verdict=verdict_of(alerts),
        alerts=alerts,
        node=NodeIdentity(
            version=__version__,
            network=source.policy.network.value,
            chain_id=source.policy.chain_id,
            role=replication.role,
            phase=replication.status,
        ),
        chain=overview.chain,
        queue=overview.queue,
        fleet=overview.fleet,
        providers=overview.providers,
        evidence=_evidence(access, overview),
        archive=overview.archive,
    )


def node_facts(access: NodeAccess) -> NodeFacts:
    """What alerts need beside the state."""
    status = access.source.replication_status()
    return NodeFacts(
        tables_lag=max(0, status.tip.last - status.tables_as_of),
        clock_fault=access.clock_fault(),
        damaged_outputs=len(access.scrubber.progress.damaged) if access.scrubber is not None else 0,
        journal_faults=access.journal_scrubber.archive_faults if access.journal_scrubber is not None else 0,
        has_archive=access.archived is not None,
    )


def _evidence(access: NodeAccess, overview: Overview) -> EvidenceView:
    metrics = access.evidence_metrics
    streams = metrics.all_streams() if metrics is not None else []
    behind = sorted(streams, key=lambda each: (-each.lag, each.channel))
    return EvidenceView(
        sessions=overview.evidence.sessions,
        dead_letters=overview.evidence.dead_letters,
        streams=len(streams),
        unacknowledged=sum(each.lag for each in streams),
        records=metrics.records if metrics is not None else 0,
        channels=[ChannelLag(each.channel, each.acked, each.lag) for each in behind[:CHANNELS_SHOWN]],
    )
