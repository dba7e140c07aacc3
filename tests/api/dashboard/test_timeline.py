"""The timeline of a node: which alerts were raised and cleared, and which faults are on the curves (OBS-001)."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.api.dashboard.test_alerts import QUIET
from tests.api.http.http_node import http_node

from holdfast.api.dashboard import live, timeline
from holdfast.api.dashboard.alerts import Alert, AlertLevel
from holdfast.api.dashboard.timeline import Timeline
from holdfast.core.base.values import Kind
from holdfast.core.queue.pauses import PauseKind, ResumeKind

pytestmark = pytest.mark.rule("OBS-001")
STALLED = Alert("archive_stalled", AlertLevel.STUCK, "ARC-003", "The archive is stalled at 1 blob", "mend it")
PAUSED = Alert("paused AI", AlertLevel.WATCH, "MAT-004", "AI jobs are paused", "resume")


def test_an_alert_is_open_since_it_was_raised_and_keeps_its_end() -> None:
    seen = Timeline()
    seen.observe(10, [STALLED])
    seen.observe(20, [msgspec.structs.replace(STALLED, text="The archive is stalled at 2 blobs"), PAUSED])
    assert [(each.alert.text, each.raised_ms, each.cleared_ms) for each in seen.history()] == [
        ("AI jobs are paused", 20, None),
        ("The archive is stalled at 2 blobs", 10, None),
    ]
    seen.observe(30, [PAUSED])
    seen.observe(40, [STALLED, PAUSED])
    assert [(each.alert.key, each.raised_ms, each.cleared_ms) for each in seen.history()] == [
        ("archive_stalled", 40, None),
        ("paused AI", 20, None),
        ("archive_stalled", 10, 30),
    ]


def test_the_history_is_bounded_and_forgets_the_oldest() -> None:
    seen = Timeline()
    for at in range(2 * timeline.ALERTS_KEPT):
        seen.observe(2 * at, [PAUSED])
        seen.observe(2 * at + 1, [])
    history = seen.history()
    assert len(history) == timeline.ALERTS_KEPT
    assert history[0].cleared_ms == 4 * timeline.ALERTS_KEPT - 1
    assert len(seen.faults) <= timeline.FAULTS_KEPT


def test_lost_leases_and_stuck_things_are_marked_where_they_happened() -> None:
    seen = Timeline()

    def take(now_ms: int, lost: int, cancelled: int = 0) -> None:
        counts = {("lost", "LEASE_EXPIRED"): lost, ("lost", "JOB_CANCELLED"): cancelled, ("admitted", "AI"): 7}
        seen.sample(msgspec.structs.replace(QUIET, now_ms=now_ms), counts)

    take(10, lost=5)
    take(20, lost=5, cancelled=3)
    assert list(seen.faults) == [], "what was before this process looked, and what harms nobody"
    take(30, lost=7)
    seen.observe(30, [])
    seen.observe(40, [PAUSED, STALLED])
    seen.observe(50, [PAUSED, STALLED])
    assert [(each.time_ms, each.text, each.rule) for each in seen.faults] == [
        (30, "2 leases lost: LEASE_EXPIRED", "RTY-001"),
        (40, "The archive is stalled at 1 blob", "ARC-003"),
    ]
    assert seen.samples[-1].admitted == 7


def test_what_was_stuck_before_the_process_looked_is_not_marked_at_its_start() -> None:
    seen = Timeline()
    seen.observe(10, [STALLED])
    assert (list(seen.faults), len(seen.history())) == ([], 1)


async def test_a_page_that_is_opened_later_has_the_whole_history() -> None:
    async with http_node() as node:
        overview = live.LiveOverview(node.access)
        await node.engine.submit(PauseKind(Kind.AI, "new model"))
        overview.sample()
        await node.engine.submit(ResumeKind(Kind.AI))
        overview.sample()
        await overview.refresh()
        sections = json.loads(overview.delta(0).partition(b"data: ")[2])
        assert sections["alerts"] == []
        assert [each["alert"]["rule"] for each in sections["alert_history"]] == ["MAT-004"]
        assert sections["alert_history"][0]["cleared_ms"] is not None
        assert len(sections["samples"]) == 2
