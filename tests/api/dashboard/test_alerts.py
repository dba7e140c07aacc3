"""Alerts say what needs a hand, by which rule and what to do; the verdict is one sentence of them (OBS-001)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.api.dashboard.alerts import UNLEASED_MS, Alert, AlertLevel, NodeFacts, find_alerts, verdict_of
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import EventNo, Height, ProviderId
from holdfast.core.policy import Policy
from holdfast.core.provider.model import ProviderStatus
from holdfast.core.queue.pauses import Paused
from holdfast.engine.lookups.overview import ChainSummary, EvidenceSummary, FleetSummary, Overview, ProviderSummary
from holdfast.engine.queries.blobs import ArchiveProgress
from holdfast.engine.queries.jobs import QueueStatus

pytestmark = pytest.mark.rule("OBS-001")
NOW_MS = 10_000_000
POLICY = Policy()
QUIET = Overview(
    as_of=EventNo(7),
    now_ms=NOW_MS,
    chain=ChainSummary(Height(3), NOW_MS, Height(3), 0, 0, is_rolling_back=False),
    queue=QueueStatus(
        depth=0, leases=0, leases_by_kind={}, paused={}, waiting={}, oldest_ms={}, retrying=0, as_of=EventNo(7)
    ),
    fleet=FleetSummary({}, 0, 0, None),
    providers=[],
    evidence=EvidenceSummary(0, 0),
    archive=ArchiveProgress(0, 0, 0, 0, 0, 0, 0, 0),
)


def provider(status: ProviderStatus) -> ProviderSummary:
    return ProviderSummary(
        id=ProviderId(b"p" * 32),
        name="oak",
        kinds=("AI",),
        status=status,
        health_ppm=300_000,
        leases=0,
        slots=4,
        heartbeat_ms=0,
        deadline_ms=None,
        why_not=f"status {status}",
    )


def changed(part: str, **fields: Any) -> Overview:
    inside = msgspec.structs.replace(getattr(QUIET, part), **fields)
    return msgspec.structs.replace(QUIET, **{part: inside})


def alerts(overview: Overview = QUIET, **facts: Any) -> list[Alert]:
    return find_alerts(overview, NodeFacts(**facts), POLICY)


def test_a_quiet_node_needs_no_hand() -> None:
    assert alerts() == []
    assert verdict_of([]) == "Nothing needs a hand."


LATE_MS = 5 * POLICY.chain.block_ms
CASES: list[tuple[str, Overview, dict[str, Any]]] = [
    ("ARC-003", changed("archive", stalled=3, pending=3), {}),
    ("ARC-004", changed("archive", pending=1), {}),
    ("PRU-001", changed("archive", lost=1), {}),
    ("CHN-003", changed("chain", is_rolling_back=True), {}),
    ("CHN-002", changed("chain", open_transactions=1, head_ms=NOW_MS - LATE_MS - 1), {}),
    ("MAT-004", changed("queue", waiting={"AI": 2}, oldest_ms={"AI": NOW_MS - UNLEASED_MS - 1}), {}),
    ("MAT-004", changed("queue", paused={"AI": Paused(EventNo(1), 0, "repairs")}), {}),
    ("EVD-007", changed("evidence", dead_letters=1), {}),
    ("PRV-002", msgspec.structs.replace(QUIET, providers=[provider(ProviderStatus.SUSPENDED)]), {}),
    ("CAN-006", QUIET, {"clock_fault": Refused("CAN-006", "it jumped", "--accept-clock")}),
    ("ENG-004", QUIET, {"tables_lag": POLICY.engine.tables_lag_events_soft + 1}),
    ("TIER-001", QUIET, {"damaged_outputs": 1}),
    ("ENG-009", QUIET, {"journal_faults": 2}),
]


@pytest.mark.parametrize(("rule", "overview", "facts"), CASES, ids=[f"{at}-{case[0]}" for at, case in enumerate(CASES)])
def test_what_is_wrong_is_named_with_its_rule_and_its_remedy(
    rule: str, overview: Overview, facts: dict[str, Any]
) -> None:
    [alert] = alerts(overview, **facts)
    assert alert.rule == rule
    assert alert.text
    assert alert.remedy


@pytest.mark.parametrize(
    "overview",
    [
        changed("chain", open_transactions=1, head_ms=NOW_MS - LATE_MS),
        changed("chain", open_transactions=0, head_ms=NOW_MS - LATE_MS - 1),
        changed("queue", waiting={"AI": 2}, oldest_ms={"AI": NOW_MS - UNLEASED_MS}),
        changed("queue", waiting={"AI": 2}, oldest_ms={"AI": 0}, leases=1),
        changed("archive", archived=3, pruned=3),
        msgspec.structs.replace(QUIET, providers=[provider(ProviderStatus.ACTIVE)]),
    ],
)
def test_what_is_as_it_should_be_is_no_alert(overview: Overview) -> None:
    assert alerts(overview) == []


def test_a_paused_kind_is_not_also_called_unleased() -> None:
    queue = changed("queue", waiting={"AI": 2}, oldest_ms={"AI": 0}, paused={"AI": Paused(EventNo(1), 0)})
    assert [alert.key for alert in alerts(queue)] == ["paused AI"]


def test_what_is_stuck_comes_first_and_makes_the_verdict() -> None:
    overview = msgspec.structs.replace(
        changed("archive", stalled=1, pending=1), providers=[provider(ProviderStatus.JAILED)]
    )
    found = alerts(overview)
    assert [alert.level for alert in found] == [AlertLevel.STUCK, AlertLevel.WATCH]
    assert verdict_of(found[:1]) == "One thing needs a hand: the archive is stalled at 1 blob."
    assert verdict_of(found) == "2 things need a hand: the archive is stalled at 1 blob, and more."
