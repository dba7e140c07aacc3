"""`holdfast job dead-letter`: list jobs that failed too often, and requeue them (RTY-001)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Ca, Data, Json, TokenFile, Url
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import format_time, print_json, print_table, repeat_note
from holdfast.client import NodeRefused
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind

app = make_app(no_args_is_help=True, help="Jobs that failed too often: list and requeue them.")
PAGE: Final = 500
CallerOption = Annotated[str | None, typer.Option(help="Only this account's.")]
KindOption = Annotated[Kind | None, typer.Option(help="Only of this kind.")]


@app.command("list")
def list_(
    caller: CallerOption = None,
    kind: KindOption = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    cursor: Annotated[int, typer.Option(min=0, help="Continue after this one.")] = 0,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """List jobs whose attempts are exhausted, and their last failure. Their reservations were refunded."""
    params = {"caller": caller, "kind": kind, "limit": limit, "cursor": cursor}
    page = call_node(NodeAddress(data, url, token_file, ca), "job.listDeadLetters", **params)
    if as_json:
        print_json(page)
        return
    heads = ("TASK ID", "KIND", "CALLER", "MAX FEE", "ATTEMPTS", "REQUEUED", "LAST FAILURE", "SINCE")
    columns = ("id", "kind", "caller", "max_fee", "attempts", "requeues", "reason")
    print_table(heads, [(*(row[name] for name in columns), format_time(row["failed_ms"])) for row in page["rows"]])
    if page["next_after"] is not None:
        print(f"more: --cursor {page['next_after']}")


@app.command()
def requeue(
    task_id: Annotated[str | None, typer.Argument(metavar="TASK_ID", help="The job's id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, or all of --caller and --kind.")] = False,
    caller: CallerOption = None,
    kind: KindOption = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Requeue a job: its failures start at zero, with a new time to live. Its fee is reserved again."""
    address = NodeAddress(data, url, token_file, ca)
    if (task_id is not None) == everything:
        refuse(Refused("RTY-001", "pass a TASK_ID, or --all", name="InvalidParams"))
    if task_id is not None:
        answer = call_node(address, "job.requeue", task_id=task_id)
        print(f"it waits in the queue again ({repeat_note(answer)})")
        return
    requeued, refused = run_on_node(address, lambda node: _requeue_all(node, caller, kind))
    print(f"{requeued} requeued" + (f", {refused} refused" if refused else ""))
    if refused:
        raise typer.Exit(1)


async def _requeue_all(node: NodeSession, caller: str | None, kind: Kind | None) -> tuple[int, int]:
    """One by one: a job that cannot be paid or does not fit into the queue is reported and skipped."""
    requeued = refused = 0
    async for row in _dead_letters(node, caller, kind):
        try:
            await node.call("job.requeue", task_id=row["id"])
            requeued += 1
        except NodeRefused as refusal:
            refused += 1
            print(f"{row['id']}: {refusal}", file=sys.stderr)
    return requeued, refused


async def _dead_letters(node: NodeSession, caller: str | None, kind: Kind | None) -> AsyncIterator[dict[str, Any]]:
    cursor: int | None = 0
    while cursor is not None:
        page = await node.call("job.listDeadLetters", caller=caller, kind=kind, limit=PAGE, cursor=cursor)
        for row in page["rows"]:
            yield row
        cursor = page["next_after"]
