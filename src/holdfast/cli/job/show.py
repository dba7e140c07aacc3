"""`holdfast job show | list`: jobs as they are now, with their chain of custody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.job.custody import chain_of_custody
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.node_client import blocking_client, call_node
from holdfast.cli.terminal.options import AfterEvent, Json, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.provider_jobs import list_provider_jobs
from holdfast.cli.terminal.reporting import refuse, report_errors
from holdfast.cli.terminal.tables import format_time, print_json, print_more, print_record, print_table
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.model import JobState

if TYPE_CHECKING:
    from holdfast.client import NodeEvent

JobArgument = Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, or the beginning of it.")]


@on_node
def show(
    address: NodeAddress,
    task_id: JobArgument,
    events: Annotated[bool, typer.Option("--events", help="Also every event that names it, from the journal.")] = False,
    as_json: Json = False,
) -> None:
    """Show a job: its receipt, its payload, and its chain of custody so far."""
    view = call_node(address, "cap.getJob", task_id=task_id)
    job_events = _events_of(address, view["job"]) if events else []
    if as_json:
        print_json({**view, "events": job_events} if events else view)
        return
    _print_job(view)
    for event in job_events:
        print(f"  event {event.number:<8} {format_time(event.time_ms)}  {event.type}")


@on_node
def list_(
    address: NodeAddress,
    caller: Annotated[str | None, typer.Option(help="Only this account's.")] = None,
    status: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    from_height: Annotated[int | None, typer.Option(min=0, help="Admitted in this block or later.")] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="Also the replicas of quorum jobs.")] = False,
    provider: Annotated[str | None, typer.Option(metavar="PROVIDER", help="Only those that it holds now.")] = None,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List jobs, newest first; with --provider the jobs it holds, and until when."""
    if provider is not None:
        if from_height is not None:
            refuse(Refused("RPC-001", "--from-height: not with --provider", "pass one of them", "InvalidParams"))
        filters = {"state": status, "kind": kind, "caller": caller, "limit": limit, "cursor": after}
        list_provider_jobs(address, provider, filters, wide=wide, as_json=as_json)
        return
    params = {"caller": caller, "status": status, "kind": kind, "from_height": from_height}
    params |= {"include_replicas": replicas, "newest_first": not oldest_first}
    page = call_node(address, "cap.listJobs", **params, limit=limit, cursor=after)
    if as_json:
        print_json(page)
        return
    heads = ("TASK ID", "KIND", "STATE", "CALLER", "MAX FEE", "HEIGHT", "ENQUEUED")
    columns = ("id", "kind", "state", "caller", "max_fee", "height")
    rows = [(*(row.get(name, PRIVATE) for name in columns), _enqueued(row)) for row in page["rows"]]
    print_table(heads, rows, wide=wide)
    print_more(page["next_after"])


PRIVATE: Final = "(private)"
"""Stands for what others do not see of a job (JOB-010)."""


def _print_job(view: dict[str, Any]) -> None:
    job = view["job"]
    if "caller" not in job:
        print_record({"task_id": job["id"]} | {name: job[name] for name in ("state", "kind", "height")})
        print(f"{PRIVATE}: the rest is for keys of its caller, operators and auditors")
        return
    receipt = ("kind", "caller", "tier", "height", "tx_hash", "nonce", "request_hash")
    print_record(
        {"task_id": job["id"], "state": job["state"]}
        | {name: job[name] for name in receipt}
        | {
            "earliest_read_height": view["earliest_read_height"],
            "reserved": job["max_fee"],
            "expires": f"{format_time(job['expires_ms'])}, or at height {view['expires_height']}",
            "payload": msgspec.json.encode(view["payload"]).decode(),
        }
    )
    if why := _why_waits(job):
        print_record({"waits": why})
    if job["parent"]:
        print_record({"replica_of": job["parent"]})
    if view["replicas"]:
        _print_replicas(job, view["replicas"])
    print("chain of custody:")
    for transfer in chain_of_custody(view):
        print(f"  {format_time(transfer.at_ms):<21} {transfer.what:<46} {transfer.proof:<52} {transfer.rule}")


def _why_waits(job: dict[str, Any]) -> str | None:
    """JOB-013: a time of its own, or that of a retry, while it is ahead."""
    if job["state"] != JobState.QUEUED or job["not_before_ms"] <= now_ms():
        return None
    why = "its time" if job["not_before_ms"] == job["run_at_ms"] else f"a retry after {job['reason'] or 'a failure'}"
    return f"until {format_time(job['not_before_ms'])}, for {why}"


def _enqueued(row: dict[str, Any]) -> str:
    return format_time(row["enqueue_ms"]) if "enqueue_ms" in row else PRIVATE


def _print_replicas(job: dict[str, Any], replicas: list[dict[str, Any]]) -> None:
    print(f"replicas, of which {job['quorum_n']} of {job['quorum_m']} must agree:")
    heads = ("INDEX", "STATE", "PROVIDER", "DIGEST", "PAID", "TASK ID")
    names = ("index", "state", "provider_id", "digest", "charged", "task_id")
    print_table(heads, [tuple(replica[name] for name in names) for replica in replicas])


def _events_of(address: NodeAddress, job: dict[str, Any]) -> list[NodeEvent]:
    """Everything that the key may see and that names the job, from its admission to now."""
    if "event" not in job:
        hint = "ask with a key of the job's caller, or as an operator or auditor"
        refuse(Refused("JOB-010", "--events of a private job", hint, "Forbidden"))
    with report_errors(), blocking_client(address) as client:
        return [event for event in client.events(job["event"] - 1, follow=False) if event.task_id == job["id"]]
    raise AssertionError("report_errors() exits after an error")
