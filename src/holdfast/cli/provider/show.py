"""`holdfast provider list | show | explain`: providers as the node sees them, and why one does not get a job."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, Wide, on_node
from holdfast.cli.terminal.provider_jobs import print_provider_jobs
from holdfast.cli.terminal.tables import format_time, print_json, print_outcome, print_record, print_table
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.values import Kind
from holdfast.core.provider.model import ProviderStatus

PAGE: Final = 500
TIMES: Final = (
    "attested_until_ms",
    "registered_ms",
    "heartbeat_ms",
    "cooling_until_ms",
    "unstake_ms",
    "offended_ms",
)
ProviderArgument = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="Its name, its id, or the beginning of its id.")
]


@on_node
def list_(
    address: NodeAddress,
    status: Annotated[ProviderStatus | None, typer.Option(help="Only those in this status.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only those that run this kind of jobs.")] = None,
    region: Annotated[str | None, typer.Option(help="Only those in this region.")] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List all providers; WHY NOT says why one gets no jobs."""
    filters = {"status": status, "kind": kind, "region": region}
    params = {name: value for name, value in filters.items() if value is not None}

    async def all_pages(node: NodeSession) -> list[Any]:
        page = await node.call("aicf.listProviders", limit=PAGE, **params)
        views = list(page["providers"])
        while (cursor := page.get("next_cursor")) is not None:
            page = await node.call("aicf.listProviders", limit=PAGE, cursor=cursor, **params)
            views += page["providers"]
        return views

    views = run_on_node(address, all_pages)
    if as_json:
        print_json({"providers": views})
        return
    heads = ("PROVIDER", "NAME", "STATUS", "STAKE", "HEALTH", "LEASES", "DONE", "FAILED", "WHY NOT")
    print_table(heads, [_row(view) for view in views], wide=wide)


def _row(view: dict[str, Any]) -> tuple[object, ...]:
    provider = view["provider"]
    return (
        provider["id"],
        provider["name"],
        provider["status"],
        provider["stake"],
        f"{provider['health_ppm'] // 10_000} %",
        f"{provider['leases']}/{provider['slots']}",
        provider["completed"],
        provider["failed"],
        view["why_not"],
    )


@on_node
def show(
    address: NodeAddress,
    provider: ProviderArgument,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Show a provider as it is now, and the jobs it holds."""

    async def read_provider(node: NodeSession) -> tuple[Any, Any]:
        view = await node.call("aicf.getProvider", provider_id=provider)
        return view, await node.call("aicf.listJobs", provider_id=provider, limit=PAGE)

    view, held = run_on_node(address, read_provider)
    if as_json:
        print_json({**view, "jobs": held["jobs"]})
        return
    record = dict(view["provider"]) | {"stake_min": view["stake_min"], "why_not": view["why_not"]}
    record["capabilities"] = msgspec.json.encode(decode_canonical(bytes.fromhex(record["capabilities"]))).decode()
    for name in TIMES:
        record[name.removesuffix("_ms")] = format_time(record.pop(name) or None)
    print_record(record)
    if held["jobs"]:
        print_provider_jobs(held["jobs"], wide=wide)
    if held["next_cursor"] is not None:
        print(f"and more: holdfast job list --provider {provider} --after {held['next_cursor']}")


@on_node
def explain(
    address: NodeAddress,
    provider: ProviderArgument,
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, or the beginning of it.")],
    as_json: Json = False,
) -> None:
    """Explain why this provider does not get this job: the first filter that refuses it."""
    why_not = call_node(address, "provider.explain", provider_id=provider, task_id=task_id)["why_not"]
    outcome = why_not or "no filter refuses it: the provider is eligible"
    print_outcome({"is_eligible": not why_not, "why_not": why_not}, outcome, as_json=as_json)
