"""`holdfast job dead-letter`: list jobs that failed too often, and requeue them (RTY-001)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import AfterEvent, Json, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import format_time, print_json, print_more, print_outcome, print_table, repeat_note
from holdfast.client import NodeRefused
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind

app = make_app(no_args_is_help=True, help="Jobs that failed too often: list and requeue them.")
PAGE: Final = 500
CallerOption = Annotated[str | None, typer.Option(help="Only this account's.")]
KindOption = Annotated[Kind | None, typer.Option(help="Only of this kind.")]


@app.command("list", example="holdfast job dead-letter list --caller alice")
@on_node
def list_(
    address: NodeAddress,
    caller: CallerOption = None,
    kind: KindOption = None,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List jobs whose attempts are exhausted, newest first. Their reservations were refunded."""
    params = {"caller": caller, "kind": kind, "limit": limit, "cursor": after, "newest_first": not oldest_first}
    page = call_node(address, "job.listDeadLetters", **params)
    if as_json:
        print_json(page)
        return
    heads = ("TASK ID", "KIND", "CALLER", "MAX FEE", "ATTEMPTS", "REQUEUED", "LAST FAILURE", "SINCE")
    columns = ("id", "kind", "caller", "max_fee", "attempts", "requeues", "reason")
    rows = [(*(row[name] for name in columns), format_time(row["failed_ms"])) for row in page["rows"]]
    print_table(heads, rows, wide=wide)
    print_more(page["next_after"])


@app.command(example="holdfast job dead-letter requeue --all --caller alice")
@on_node
def requeue(
    address: NodeAddress,
    task_id: Annotated[
        str | None, typer.Argument(metavar="TASK_ID", help="The job's id, or the beginning of it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, or all of --caller and --kind.")] = False,
    caller: CallerOption = None,
    kind: KindOption = None,
    as_json: Json = False,
) -> None:
    """Requeue a job: its failures start at zero, with a new time to live. Its fee is reserved again."""
    if (task_id is not None) == everything:
        hint = "`holdfast job dead-letter list` shows them"
        refuse(Refused("RTY-001", "pass a TASK_ID, or --all", hint, "InvalidParams"))
    if task_id is not None:
        answer = call_node(address, "job.requeue", task_id=task_id)
        print_outcome(answer, f"it waits in the queue again ({repeat_note(answer)})", as_json=as_json)
        return
    requeued, refused = run_on_node(address, lambda node: _requeue_all(node, caller, kind))
    outcome = f"{requeued} requeued" + (f", {refused} refused" if refused else "")
    print_outcome({"requeued": requeued, "refused": refused}, outcome, as_json=as_json)
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
