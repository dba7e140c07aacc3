"""`holdfast queue`: show the queue, pause and resume kinds of jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import format_time, print_json, print_outcome, print_record, print_table, repeat_note
from holdfast.core.base.values import Kind

app = make_app(no_args_is_help=True, help="Show the queue, pause and resume kinds of jobs.")
KindArgument = Annotated[Kind, typer.Argument(metavar="KIND", help="AI, QUANTUM or COMPUTE.")]


@app.command(example="holdfast queue show")
@on_node
def show(address: NodeAddress, as_json: Json = False) -> None:
    """Show the queue: its depth, what waits and for how long, what is leased, which kinds are paused."""
    status = call_node(address, "queue.getStatus")
    print_json(status) if as_json else _print(status)


@app.command(example='holdfast queue pause AI --reason "model server is down"')
@on_node
def pause(
    address: NodeAddress,
    kind: KindArgument,
    reason: Annotated[str, typer.Option(help="Why; shown with the queue.")] = "",
    as_json: Json = False,
) -> None:
    """Assign no more jobs of a kind. Jobs are still admitted and wait, leases go on, and times to live run on."""
    answer = call_node(address, "queue.pause", kind=kind.value, reason=reason)
    print_outcome(answer, f"{kind.value} is paused ({repeat_note(answer)})", as_json=as_json)


@app.command(example="holdfast queue resume AI")
@on_node
def resume(address: NodeAddress, kind: KindArgument, as_json: Json = False) -> None:
    """Assign jobs of a kind again."""
    answer = call_node(address, "queue.resume", kind=kind.value)
    outcome = "was not paused" if answer["is_repeat"] else f"is resumed (event {answer['event']})"
    print_outcome(answer, f"{kind.value} {outcome}", as_json=as_json)


def _oldest_age(status: dict[str, Any], kind: str) -> str | None:
    """How long the oldest job that could be assigned now has waited."""
    since_ms = status["oldest_ms"].get(kind)
    return None if since_ms is None else f"{max(0, status['time_ms'] - since_ms) / 1000:.0f} s"


def _print(status: dict[str, Any]) -> None:
    leased = [f"{count} {kind}" for kind, count in sorted(status["by_kind"].items())]
    print_record({"depth": status["depth"], "leased": leased or 0, "retrying": status["retrying"]})
    rows = [(kind, count, _oldest_age(status, kind)) for kind, count in sorted(status["waiting"].items())]
    print_table(("KIND", "WAITING", "OLDEST"), rows)
    for kind, pause_state in sorted(status["paused"].items()):
        reason = f": {pause_state['reason']}" if pause_state["reason"] else ""
        print(f"{kind} is paused since {format_time(pause_state['since_ms'])}{reason}")
