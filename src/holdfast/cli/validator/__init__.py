"""`holdfast validator`: who may propose blocks and archive their blobs, and what waits for keys that have left."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import pluralize, print_json, print_outcome, print_table, repeat_note

app = make_app(no_args_is_help=True, help="Show and change who may propose blocks and archive their blobs.")
Key = Annotated[str, typer.Argument(metavar="KEY", help="A node's public key, 64 hexadecimal digits.")]


@app.command("list", example="holdfast validator list")
@on_node
def list_(address: NodeAddress, as_json: Json = False) -> None:
    """List the keys that are or were validators, since when, and what waits for them."""
    views = call_node(address, "validator.list")
    if as_json:
        print_json(views)
        return
    heads = ("KEY", "SINCE", "UNTIL", "SUCCESSORS", "UNCONFIRMED")
    rows = [(each["key"], each["since"], each["ended"], each["successors"], each["unconfirmed"]) for each in views]
    print_table(heads, rows)
    for view in views:
        if heights := view["pending_heights"]:
            print(f"{view['key']} has left, and only it can archive {pluralize(len(heights), 'height')}: {heights}")


@app.command(example=f"holdfast validator add {'ab' * 32}")
@on_node
def add(address: NodeAddress, key: Key, as_json: Json = False) -> None:
    """Let a key propose and archive, from the next block on: do this before its node takes over."""
    answer = call_node(address, "validator.add", key=key)
    print_outcome(answer, f"{key} is a validator ({repeat_note(answer)})", as_json=as_json)


@app.command(example=f"holdfast validator remove {'ab' * 32}")
@on_node
def remove(address: NodeAddress, key: Key, as_json: Json = False) -> None:
    """Let a key not count any more, from the next block on. It still archives the heights that it has proposed."""
    answer = call_node(address, "validator.remove", key=key)
    views: list[dict[str, Any]] = call_node(address, "validator.list")
    waiting: list[int] = next((view["pending_heights"] for view in views if view["key"] == key), [])
    keep = [f"keep it until these heights are archived: {waiting}"] if waiting else []
    outcome = f"{key} is no validator any more ({repeat_note(answer)})"
    print_outcome({**answer, "pending_heights": waiting}, outcome, *keep, as_json=as_json)
