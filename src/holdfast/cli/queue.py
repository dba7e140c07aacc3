"""`holdfast queue`: how much waits, and kinds of work that are stopped for a while."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Ca, Data, Json, Place, TokenFile, Url, ask
from holdfast.cli.columns import print_json, print_record, print_table, when
from holdfast.core.values import Kind

app = verb(no_args_is_help=True, help="How much waits, and kinds of work that are stopped for a while.")
Which = Annotated[Kind, typer.Argument(metavar="KIND", help="AI or QUANTUM.")]


@app.command()
def show(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """How deep the queue is, what waits and for how long, what is leased, which kinds are paused."""
    found = ask(Place(data, url, token_file, ca), "queue.show")
    print_json(found) if as_json else _print(found)


@app.command()
def pause(
    kind: Which,
    reason: Annotated[str, typer.Option(help="Why; whoever looks at the queue is told.")] = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Give no job of a kind to anybody. Jobs are taken in and wait; what is leased goes on; times to live too."""
    done = ask(Place(data, url, token_file, ca), "queue.pause", kind=kind.value, reason=reason)
    print(f"{kind.value} is paused (event {done['event']}{', as before' if done['is_repeat'] else ''})")


@app.command()
def resume(kind: Which, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None) -> None:
    """Give jobs of a kind out again."""
    done = ask(Place(data, url, token_file, ca), "queue.resume", kind=kind.value)
    was = " was not paused" if done["is_repeat"] else f" goes on (event {done['event']})"
    print(f"{kind.value}{was}")


def _age(found: dict[str, Any], kind: str) -> str | None:
    """How long the oldest job that could be given now has waited."""
    since_ms = found["oldest_ms"].get(kind)
    return None if since_ms is None else f"{max(0, found['time_ms'] - since_ms) / 1000:.0f} s"


def _print(found: dict[str, Any]) -> None:
    leased = [f"{count} {kind}" for kind, count in sorted(found["by_kind"].items())]
    print_record({"depth": found["depth"], "leased": leased or 0, "retrying": found["retrying"]})
    rows = [(kind, count, _age(found, kind)) for kind, count in sorted(found["waiting"].items())]
    print_table(("KIND", "WAITING", "OLDEST"), rows)
    for kind, paused in sorted(found["paused"].items()):
        why = f": {paused['reason']}" if paused["reason"] else ""
        print(f"{kind} is paused since {when(paused['since_ms'])}{why}")
