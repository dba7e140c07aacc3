"""What running work says is bounded before it is numbered; what was dropped is counted in one last record."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from holdfast.agent.leases.lease_run import LeaseRun
from holdfast.agent.leases.records import PROGRESS, STARTED, AcceptedOffer
from holdfast.agent.leases.work_reports import BYTES_MAX, RECORD_BYTES, WorkReports
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter

pytestmark = pytest.mark.rule("EVD-005", "SEC-002")


class Emitted:
    """A spool that takes everything, or nothing."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.types: list[str] = []
        self.is_full = False

    def try_emit(self, payload_type: str, payload: dict[str, Any]) -> object | None:
        if self.is_full:
            return None
        self.types.append(payload_type)
        if payload_type == PROGRESS:
            self.records.append(payload)
        return payload


async def reporting() -> tuple[WorkReports, LeaseRun, Emitted]:
    emitted = Emitted()
    offer = AcceptedOffer(b"l" * 32, b"t" * 32, "COMPUTE", 0, b"", "attested", 0)
    await asyncio.sleep(0)
    return WorkReports(cast(EvidenceEmitter, emitted)), LeaseRun(offer), emitted


async def test_messages_are_numbered_and_an_equal_percent_is_said_once() -> None:
    reports, lease, emitted = await reporting()
    report = reports.of(lease)
    for percent, text in ((1, ""), (1, ""), (2, ""), (None, "hm"), (2, "two")):
        report(percent, text)
    reports.finish(lease)
    said = [(each["number"], each.get("percent"), each["text"]) for each in emitted.records]
    assert emitted.types == [STARTED, *[PROGRESS] * 4], "its start is told before"
    assert said == [(0, 1, ""), (1, 2, ""), (2, None, "hm"), (3, 2, "two")]


@pytest.mark.parametrize("text", ["", "x" * 1_000, "ä" * 5_000])
async def test_a_lease_says_64_kib_and_how_much_was_dropped(text: str) -> None:
    reports, lease, emitted = await reporting()
    report = reports.of(lease)
    for _ in range(3_000):
        report(None, text)
    reports.finish(lease)
    *before, last = emitted.records
    assert sum(len(each["text"].encode()) + RECORD_BYTES for each in before) <= BYTES_MAX
    assert last["text"] == f"dropped {3_000 - len(before)}"
    assert [each["number"] for each in emitted.records] == list(range(len(emitted.records)))


async def test_what_the_spool_refuses_is_dropped_and_nothing_is_said_after_the_end() -> None:
    reports, lease, emitted = await reporting()
    report = reports.of(lease)
    emitted.is_full = True
    report(None, "lost")
    emitted.is_full = False
    reports.finish(lease)
    assert [each["text"] for each in emitted.records] == ["dropped 1"]
    again = reports.of(lease)
    lease.end("LOST")
    again(None, "late")
    assert len(emitted.records) == 1
