"""`holdfast provider`: who does the work, what they have at stake, and why one gets no job."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table, when

app = verb(no_args_is_help=True, help="Who does the work, and what they have at stake.")
Id = Annotated[str, typer.Argument(metavar="PROVIDER", help="The provider's id, as its agent prints it.")]


@app.command("list")
def list_(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """All providers; WHY NOT says what keeps one from getting work."""
    found = ask(Place(data, url, token_file, ca), "aicf.listProviders")
    if as_json:
        print_json(found)
        return
    heads = ("PROVIDER", "NAME", "STATUS", "STAKE", "LEASES", "DONE", "FAILED", "WHY NOT")
    print_table(heads, [_line(each) for each in found["providers"]])


def _line(shown: dict[str, Any]) -> tuple[object, ...]:
    one = shown["provider"]
    leases = f"{one['leases']}/{one['slots']}"
    counts = (leases, one["completed"], one["failed"])
    return (one["id"], one["name"], one["status"], one["stake"], *counts, shown["why_not"])


@app.command()
def show(
    provider: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """One provider as it is now."""
    found = ask(Place(data, url, token_file, ca), "aicf.getProvider", provider_id=provider)
    if as_json:
        print_json(found)
        return
    record = dict(found["provider"]) | {"stake_min": found["stake_min"], "why_not": found["why_not"]}
    for name in ("attested_until_ms", "registered_ms", "heartbeat_ms"):
        record[name.removesuffix("_ms")] = when(record.pop(name) or None)
    print_record(record)


@app.command()
def stake(
    provider: Id,
    amount: Annotated[int, typer.Argument(metavar="AMOUNT", min=1, help="In the smallest unit.")],
    mint: Annotated[
        bool, typer.Option("--mint", help="Make the money first, on a development network, for the provider's account.")
    ] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Put money of the provider's account at stake; enough of it, and a heartbeat, make it active."""
    request, minted = secrets.token_hex(32), secrets.token_hex(32)

    async def work(node: Asked) -> Any:
        if mint:
            account = (await node.call("aicf.getProvider", provider_id=provider))["provider"]["account"]
            await node.call("account.mint", id=minted, owner=account, amount=amount)
        await node.call("provider.stake", provider_id=provider, amount=amount, request=request)
        return await node.call("aicf.getProvider", provider_id=provider)

    found = run(Place(data, url, token_file, ca), work)
    one = found["provider"]
    print(f"{one['name']} has {one['stake']} at stake, of {found['stake_min']} that it needs; it is {one['status']}")


@app.command("why-not")
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
