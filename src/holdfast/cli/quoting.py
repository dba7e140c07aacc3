"""`holdfast job quote`: who could run this now, at which place it stands, and if nobody can, why not (JOB-008)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.asking import Ca, Data, Json, Place, TokenFile, Url, ask
from holdfast.cli.columns import print_json, print_table
from holdfast.cli.papers import Unreadable, json_of
from holdfast.cli.speak import given
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind


def quote(
    task_id: Annotated[str | None, typer.Argument(metavar="[TASK_ID]", help="A job that waits.")] = None,
    max_fee: Annotated[int, typer.Option(min=1, help="What it may cost at most.")] = 1_000,
    caller: Annotated[str | None, typer.Option(help="Whose job it would be. [default: the key's account]")] = None,
    model: Annotated[str | None, typer.Option(help="For a job of kind AI: which model.")] = None,
    units: Annotated[int, typer.Option(min=1, help="With --model: units of work.")] = 1,
    region: Annotated[str | None, typer.Option(help="With --model: where it is to run.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="The whole payload as JSON instead of the flags; - is standard input.")
    ] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Who could run a job now: one that waits, by its id, or one that you describe.

    Nothing is handed over and nothing is reserved. If nobody could, it says for each provider which filter refuses.
    """
    asked: dict[str, Any] = {"task_id": task_id}
    if task_id is None:
        asked = {"payload": given(_payload(model, units, region, file)), "max_fee": max_fee, "caller": caller}
    found = ask(Place(data, url, token_file, ca), "cap.quote", **asked)
    print_json(found) if as_json else _print(found)


def _payload(model: str | None, units: int, region: str | None, file: Path | None) -> dict[str, Any] | Refused:
    if (model is None) == (file is None):
        return _bad("TASK_ID, --model or --file: name one of them", "holdfast job quote --model echo")
    if file is None:
        told = {"kind": Kind.AI.value, "spec": {"model": model, "prompt": "?"}, "units": units}
        return told | ({"region": region} if region is not None else {})
    try:
        return json_of(file, dict[str, Any])
    except Unreadable as fault:
        return _bad(f"--file: {file}: {fault}", 'expected {"kind": "AI", "spec": {"model": …, "prompt": …}}')


def _bad(says: str, hint: str) -> Refused:
    return Refused("JOB-003", says, hint, "InvalidParams")


def _print(found: dict[str, Any]) -> None:
    everybody = found["could"] + found["could_not"]
    print(f"{found['could']} of {everybody} providers could run it now")
    print(f"{found['position']} of {found['waiting']} jobs that wait stand before it")
    if found["providers"]:
        heads = ("PROVIDER", "NAME", "REGION", "COST", "FREE SLOTS")
        columns = ("provider_id", "name", "region", "cost", "free_slots")
        print_table(heads, [tuple(each[name] for name in columns) for each in found["providers"]])
        return
    if found["refused"]:
        rows = [(each["provider_id"], each["name"], each["why_not"]) for each in found["refused"]]
        print_table(("PROVIDER", "NAME", "WHY NOT"), rows)
    if found["could_not"] > len(found["refused"]):
        print(f"and {found['could_not'] - len(found['refused'])} more")
