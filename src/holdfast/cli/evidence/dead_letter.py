"""`holdfast evidence dead-letter`: records that were rejected for good, and how an operator resolves them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import AfterEvent, Json, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.tables import format_time, print_json, print_more, print_record, print_table

app = make_app(no_args_is_help=True, help="Records that were rejected for good.")
DeadLetterId = Annotated[int, typer.Argument(metavar="ID", min=1, help="The dead letter's id, as `list` shows it.")]


@app.command("list", example="holdfast evidence dead-letter list --all")
@on_node
def list_(
    address: NodeAddress,
    channel: Annotated[str | None, typer.Option(help="Only this channel's.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were resolved.")] = False,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List dead letters, newest first."""
    params: dict[str, object] = {
        "channel": channel,
        "status": None if every else "WAITING",
        "limit": limit,
        "cursor": after,
    }
    params["newest_first"] = not oldest_first
    page = call_node(address, "evidence.listDeadLetters", **params)
    if as_json:
        print_json(page)
        return
    heads = ("ID", "CHANNEL", "SESSION", "SEQUENCE", "NAME", "WHEN", "STATUS", "REASON")
    print_table(heads, [_row(dead_letter) for dead_letter in page["rows"]], wide=wide)
    print_more(page["next_after"])


def _row(dead_letter: dict[str, Any]) -> tuple[object, ...]:
    at = format_time(dead_letter["at_ms"])
    columns = ("event", "channel", "session", "sequence", "name")
    return (*(dead_letter[name] for name in columns), at, dead_letter["status"], dead_letter["reason"])


@app.command(example="holdfast evidence dead-letter show 1207 --raw")
@on_node
def show(
    address: NodeAddress,
    id_: DeadLetterId,
    raw: Annotated[bool, typer.Option("--raw", help="Only the record's bytes.")] = False,
    as_json: Json = False,
) -> None:
    """Show a dead letter with the record's bytes."""
    answer = call_node(address, "evidence.getDeadLetter", event=id_)
    if raw:
        sys.stdout.buffer.write(bytes.fromhex(answer["raw"] or ""))
    elif as_json:
        print_json(answer)
    else:
        _print_dead_letter(answer)


@app.command(example='holdfast evidence dead-letter resolve 1207 --note "sender was mended"')
@on_node
def resolve(
    address: NodeAddress,
    id_: DeadLetterId,
    retry: Annotated[
        bool, typer.Option("--retry", help="Apply the record again; the dead letter stays if that is refused.")
    ] = False,
    note: Annotated[str, typer.Option(help="What was done about it.")] = "",
    as_json: Json = False,
) -> None:
    """Resolve a dead letter: mark it as settled, or retry it. The journal records who did it."""
    answer = call_node(address, "evidence.resolveDeadLetter", event=id_, retry=retry, note=note)
    print_json(answer) if as_json else _print_dead_letter(answer)


def _print_dead_letter(answer: dict[str, Any]) -> None:
    record = dict(answer["dead_letter"])
    for name in ("at_ms", "ended_ms"):
        record[name.removesuffix("_ms")] = format_time(record.pop(name) or None)
    raw = bytes.fromhex(answer["raw"] or "")
    record["bytes"] = repr(raw[:200])[2:-1] + (" …" if len(raw) > 200 else "")
    print_record(record)
