"""The jobs that a provider holds now, as `job list --provider` and `provider show` print them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import NodeAddress
from holdfast.cli.terminal.tables import format_time, print_json, print_more, print_table

HEADS = ("TASK ID", "KIND", "CALLER", "ATTEMPT", "FAILURES", "LEASE", "DEADLINE")


def list_provider_jobs(
    address: NodeAddress, provider: str, filters: Mapping[str, object], *, wide: bool, as_json: bool
) -> None:
    """One page of the jobs that this provider holds now."""
    params = {name: value for name, value in filters.items() if value is not None}
    page = call_node(address, "aicf.listJobs", provider_id=provider, **params)
    if as_json:
        print_json(page)
        return
    print_provider_jobs(page["jobs"], wide=wide)
    print_more(page["next_cursor"])


def print_provider_jobs(jobs: list[dict[str, Any]], *, wide: bool) -> None:
    """One line per job, with its lease and the lease's deadline."""
    columns = ("task_id", "kind", "caller", "attempts", "failures", "lease_id")
    rows = [(*(job[name] for name in columns), format_time(job["deadline_ms"])) for job in jobs]
    print_table(HEADS, rows, wide=wide)
