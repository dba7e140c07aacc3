"""`holdfast job dead-letter`: jobs that failed too often, to look at and to put back (RTY-001)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_table, when
from holdfast.cli.speak import refuse
from holdfast.client import NodeRefused
from holdfast.core.refusal import Refused
from holdfast.core.values import Kind

app = verb(no_args_is_help=True, help="Jobs that failed too often: look at them, put them back.")
PAGE: Final = 500
Caller = Annotated[str | None, typer.Option(help="Only this account's.")]
OfKind = Annotated[Kind | None, typer.Option(help="Only of this kind.")]


@app.command("list")
def list_(
    caller: Caller = None,
    kind: OfKind = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    cursor: Annotated[int, typer.Option(min=0, help="Go on after this one.")] = 0,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Jobs whose attempts are exhausted, and what failed last. Their money went back."""
    asked = {"caller": caller, "kind": kind, "limit": limit, "cursor": cursor}
    found = ask(Place(data, url, token_file, ca), "job.deadLetters", **asked)
    if as_json:
        print_json(found)
        return
    heads = ("TASK ID", "KIND", "CALLER", "MAX FEE", "ATTEMPTS", "PUT BACK", "FAILED LAST", "SINCE")
    columns = ("id", "kind", "caller", "max_fee", "attempts", "requeues", "reason")
    print_table(heads, [(*(row[name] for name in columns), when(row["failed_ms"])) for row in found["rows"]])
    if found["next_after"] is not None:
        print(f"more: --cursor {found['next_after']}")


@app.command()
def requeue(
    task_id: Annotated[str | None, typer.Argument(metavar="TASK_ID", help="The job's id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All there are, or all of --caller and --kind.")] = False,
    caller: Caller = None,
    kind: OfKind = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Put a job back: its failures begin anew, with a fresh time to live. Its fee is reserved once more."""
    place = Place(data, url, token_file, ca)
    if (task_id is not None) == everything:
        refuse(Refused("RTY-001", "which? give a TASK_ID, or --all", name="InvalidParams"))
    if task_id is not None:
        done = ask(place, "job.requeue", task_id=task_id)
        print(f"it waits again (event {done['event']}{', as before' if done['is_repeat'] else ''})")
        return
    back, refused = run(place, lambda node: _all(node, caller, kind))
    print(f"{back} put back" + (f", {refused} not" if refused else ""))
    if refused:
        raise typer.Exit(1)


async def _all(node: Asked, caller: str | None, kind: Kind | None) -> tuple[int, int]:
    """One by one: what cannot be paid or has no room is told and passed over."""
    back = refused = 0
    async for row in _rows(node, caller, kind):
        try:
            await node.call("job.requeue", task_id=row["id"])
            back += 1
        except NodeRefused as no:
            refused += 1
            print(f"{row['id']}: {no}", file=sys.stderr)
    return back, refused


async def _rows(node: Asked, caller: str | None, kind: Kind | None) -> AsyncIterator[dict[str, Any]]:
    cursor: int | None = 0
    while cursor is not None:
        page = await node.call("job.deadLetters", caller=caller, kind=kind, limit=PAGE, cursor=cursor)
        for row in page["rows"]:
            yield row
        cursor = page["next_after"]
