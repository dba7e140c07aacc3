"""`holdfast job quote`: which providers could run a job now, its place in the queue, why others cannot (JOB-008)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.job.payload import invalid_option, payload_from_file
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.labels import parse_labels
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, Wide, on_node
from holdfast.cli.terminal.reporting import value_or_exit
from holdfast.cli.terminal.run_at import At, In, parse_run_at_ms
from holdfast.cli.terminal.tables import format_time, print_json, print_table
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind


@on_node
def quote(
    address: NodeAddress,
    task_id: Annotated[str | None, typer.Argument(metavar="[TASK_ID]", help="A job that waits in the queue.")] = None,
    max_fee: Annotated[int, typer.Option(min=1, help="What it may cost at most.")] = 1_000,
    caller: Annotated[
        str | None, typer.Option(help="The account that would submit it. [default: the key's account]")
    ] = None,
    model: Annotated[str | None, typer.Option(help="For a job of kind AI: which model.")] = None,
    runtime: Annotated[str | None, typer.Option(help="For a job of kind COMPUTE: which program.")] = None,
    units: Annotated[int, typer.Option(min=1, help="Without --file: units of work.")] = 1,
    region: Annotated[str | None, typer.Option(help="Without --file: where it must run.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A label that it requires: gpu=a100."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The whole payload as JSON instead of the options; - is standard input.")
    ] = None,
    at: At = None,
    in_: In = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Show which providers could run a job now: a waiting one, by its id, or one that you describe.

    Nothing is submitted and nothing is reserved. If no provider could run it, the refusing filter is shown for each.
    """
    params: dict[str, Any] = {"task_id": task_id}
    if task_id is None:
        payload = value_or_exit(_payload(model, runtime, units, region, file))
        if label:
            payload["labels"] = value_or_exit(parse_labels(label))
        params = {"payload": payload, "max_fee": max_fee, "caller": caller, "not_before_ms": parse_run_at_ms(at, in_)}
    answer = call_node(address, "cap.getQuote", **params)
    print_json(answer) if as_json else _print(answer, wide=wide)


def _payload(
    model: str | None, runtime: str | None, units: int, region: str | None, file: Path | None
) -> dict[str, Any] | Refused:
    if sum(given is not None for given in (model, runtime, file)) != 1:
        hint = "holdfast job quote --model echo"
        return invalid_option("TASK_ID, --model, --runtime or --file: pass one of them", hint)
    if file is not None:
        return payload_from_file(file)
    ai = {"kind": Kind.AI.value, "spec": {"model": model, "prompt": "?"}}
    payload = ai if model is not None else {"kind": Kind.COMPUTE.value, "spec": {"runtime": runtime}}
    return payload | {"units": units} | ({"region": region} if region is not None else {})


def _print(answer: dict[str, Any], *, wide: bool) -> None:
    total = answer["could"] + answer["could_not"]
    print(f"{answer['could']} of {total} providers could run it now")
    print(f"{answer['position']} of {answer['waiting']} waiting jobs are before it")
    if answer["not_before_ms"] > now_ms():
        print(f"it waits until {format_time(answer['not_before_ms'])}")
    if answer["providers"]:
        heads = ("PROVIDER", "NAME", "REGION", "COST", "FREE SLOTS")
        columns = ("provider_id", "name", "region", "cost", "free_slots")
        print_table(heads, [tuple(each[name] for name in columns) for each in answer["providers"]], wide=wide)
        return
    if answer["refused"]:
        rows = [(each["provider_id"], each["name"], each["why_not"]) for each in answer["refused"]]
        print_table(("PROVIDER", "NAME", "WHY NOT"), rows, wide=wide)
    if answer["could_not"] > len(answer["refused"]):
        print(f"and {answer['could_not'] - len(answer['refused'])} more")
