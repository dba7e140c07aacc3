"""What must hold of schedules after every event (JOB-014)."""

from __future__ import annotations

from holdfast.core.schedule.model import FIRINGS_KEPT, Schedules, rebuild_schedules


def broken_invariants(schedules: Schedules) -> list[str]:
    rebuilt, all_ = rebuild_schedules(schedules.by_id.values()), schedules.by_id.values()
    checks = {
        "a schedule is stored under its own id": all(id_ == each.id for id_, each in schedules.by_id.items()),
        "every schedule is found by its name": rebuilt.by_name == schedules.by_name,
        "every active schedule is due when it fires next": rebuilt.due_index.buckets == schedules.due_index.buckets,
        "every input that a schedule names is counted": rebuilt.input_uses == schedules.input_uses,
        "a schedule keeps its last firings alone": all(len(each.firings) <= FIRINGS_KEPT for each in all_),
        "a schedule has a cron expression or an interval": all(
            bool(each.cron) != bool(each.interval_ms) for each in all_
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]
