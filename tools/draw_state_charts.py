"""Draws docs/reference/state_charts.md from the transition tables of core: make reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.core.escrow.model import RESERVATION_TRANSITIONS, ReservationStatus
from holdfast.core.job.model import JOB_TRANSITIONS, JobState
from holdfast.core.lease.model import LEASE_TRANSITIONS, LeaseStatus
from holdfast.core.provider.model import PROVIDER_TRANSITIONS, ProviderStatus
from holdfast.core.schedule.model import SCHEDULE_TRANSITIONS, ScheduleState

INTRODUCTION: Final = """# State charts

Drawn from the transition tables by `make reference`; a test compares this page with them. Every arrow is an event
of the journal, and what has no arrow cannot happen. States that lead to the final dot are final.
"""


class StateChart(NamedTuple):
    """One transition table and where it is found."""

    title: str
    rule: str
    table: str
    start: StrEnum
    transitions: Mapping[Any, Mapping[Any, Any]]


CHARTS: Final = (
    StateChart("Job", "JOB-007", "core/job/model.JOB_TRANSITIONS", JobState.QUEUED, JOB_TRANSITIONS),
    StateChart("Lease", "LEA-002", "core/lease/model.LEASE_TRANSITIONS", LeaseStatus.ACTIVE, LEASE_TRANSITIONS),
    StateChart(
        "Provider",
        "PRV-001",
        "core/provider/model.PROVIDER_TRANSITIONS",
        ProviderStatus.REGISTERED,
        PROVIDER_TRANSITIONS,
    ),
    StateChart(
        "Reservation",
        "ESC-001",
        "core/escrow/model.RESERVATION_TRANSITIONS",
        ReservationStatus.HELD,
        RESERVATION_TRANSITIONS,
    ),
    StateChart(
        "Schedule",
        "JOB-014",
        "core/schedule/model.SCHEDULE_TRANSITIONS",
        ScheduleState.ACTIVE,
        SCHEDULE_TRANSITIONS,
    ),
)


def page(charts: tuple[StateChart, ...] = CHARTS) -> str:
    """The whole page, the same text for the same tables."""
    return "\n".join([INTRODUCTION, *("\n".join(_section(chart)) for chart in charts)])


def _section(chart: StateChart) -> Iterator[str]:
    yield f"## {chart.title}\n"
    yield f"{chart.rule}; `{chart.table}`.\n"
    yield "```mermaid\nstateDiagram-v2"
    yield f"    [*] --> {chart.start}"
    for state, arrows in chart.transitions.items():
        for transition, target in arrows.items():
            yield f"    {state} --> {target}: {transition}"
        if not arrows:
            yield f"    {state} --> [*]"
    yield "```\n"
