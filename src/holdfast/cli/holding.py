"""What a provider has in hand, as `job list --provider` and `provider show` print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.cli.asking import Place, ask
from holdfast.cli.columns import print_json, print_table, when

HEADS = ("TASK ID", "KIND", "CALLER", "ATTEMPT", "FAILURES", "LEASE", "DEADLINE")


def list_held(place: Place, provider: str, asked: Mapping[str, object], *, as_json: bool) -> None:
    """A page of the jobs that this provider holds now."""
    params = {name: value for name, value in asked.items() if value is not None}
    found = ask(place, "aicf.listJobs", provider_id=provider, **params)
    if as_json:
        print_json(found)
        return
    print_held(found["jobs"])
    if found["next_cursor"] is not None:
        print(f"more: --cursor {found['next_cursor']}")


def print_held(jobs: list[dict[str, Any]]) -> None:
    """One line a job, with the lease that holds it."""
    columns = ("task_id", "kind", "caller", "attempts", "failures", "lease_id")
    print_table(HEADS, [(*(job[name] for name in columns), when(job["deadline_ms"])) for job in jobs])
