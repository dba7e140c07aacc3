"""`holdfast provider list | show | why-not`: providers as the node sees them, and why one gets no job."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table, when
from holdfast.cli.holding import print_held
from holdfast.core.provider.record import ProviderStatus
from holdfast.core.values import Kind

PAGE: Final = 500
TIMES: Final = (
    "attested_until_ms",
    "registered_ms",
    "heartbeat_ms",
    "cooling_until_ms",
    "unstake_ms",
    "offended_ms",
)
Id = Annotated[str, typer.Argument(metavar="PROVIDER", help="The provider's id, as its agent prints it.")]


def list_(
    status: Annotated[ProviderStatus | None, typer.Option(help="Only those in this status.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only those that run this kind of jobs.")] = None,
    region: Annotated[str | None, typer.Option(help="Only those in this region.")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """All providers; WHY NOT says what keeps one from getting work."""
    asked = {"status": status, "kind": kind, "region": region}
    params = {name: value for name, value in asked.items() if value is not None}

    async def all_pages(node: Asked) -> list[Any]:
        found = await node.call("aicf.listProviders", limit=PAGE, **params)
        shown = list(found["providers"])
        while (cursor := found.get("next_cursor")) is not None:
            found = await node.call("aicf.listProviders", limit=PAGE, cursor=cursor, **params)
            shown += found["providers"]
        return shown

    shown = run(Place(data, url, token_file, ca), all_pages)
    if as_json:
        print_json({"providers": shown})
        return
    heads = ("PROVIDER", "NAME", "STATUS", "STAKE", "HEALTH", "LEASES", "DONE", "FAILED", "WHY NOT")
    print_table(heads, [_line(each) for each in shown])


def _line(shown: dict[str, Any]) -> tuple[object, ...]:
    one = shown["provider"]
    health = f"{one['health_ppm'] // 10_000} %"
    counts = (f"{one['leases']}/{one['slots']}", one["completed"], one["failed"])
    return (one["id"], one["name"], one["status"], one["stake"], health, *counts, shown["why_not"])


def show(
    provider: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """One provider as it is now, and what it has in hand."""

    async def look(node: Asked) -> tuple[Any, Any]:
        found = await node.call("aicf.getProvider", provider_id=provider)
        return found, await node.call("aicf.listJobs", provider_id=provider, limit=PAGE)

    found, held = run(Place(data, url, token_file, ca), look)
    if as_json:
        print_json({**found, "jobs": held["jobs"]})
        return
    record = dict(found["provider"]) | {"stake_min": found["stake_min"], "why_not": found["why_not"]}
    for name in TIMES:
        record[name.removesuffix("_ms")] = when(record.pop(name) or None)
    print_record(record)
    if held["jobs"]:
        print_held(held["jobs"])
    if held["next_cursor"] is not None:
        print(f"and more: holdfast job list --provider {provider} --cursor {held['next_cursor']}")


def why_not(
    provider: Id,
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Which filter keeps this job from this provider."""
    place = Place(data, url, token_file, ca)
    found = ask(place, "provider.whyNot", provider_id=provider, task_id=task_id)["why_not"]
    print(found or "nothing: it fits")
