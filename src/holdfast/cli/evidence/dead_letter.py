"""`holdfast evidence dead-letter`: records that were rejected for good, and how an operator resolves them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeAddress, call_node
from holdfast.cli.terminal.options import Ca, Data, Json, TokenFile, Url
from holdfast.cli.terminal.tables import format_time, print_json, print_record, print_table

app = make_app(no_args_is_help=True, help="Records that were rejected for good.")
DeadLetterId = Annotated[int, typer.Argument(metavar="ID", min=1, help="The dead letter's id, as `list` shows it.")]


@app.command("list")
def list_(
    channel: Annotated[str | None, typer.Option(help="Only this channel's.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were resolved.")] = False,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    cursor: Annotated[int, typer.Option(min=0, help="Continue after this one.")] = 0,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """List dead letters, oldest first."""
    params = {"channel": channel, "status": None if every else "WAITING", "limit": limit, "cursor": cursor}
    page = call_node(NodeAddress(data, url, token_file, ca), "evidence.listDeadLetters", **params)
    if as_json:
        print_json(page)
        return
    heads = ("ID", "CHANNEL", "SESSION", "SEQUENCE", "NAME", "WHEN", "STATUS", "REASON")
    print_table(heads, [_row(dead_letter) for dead_letter in page["rows"]])


def _row(dead_letter: dict[str, Any]) -> tuple[object, ...]:
    at = format_time(dead_letter["at_ms"])
    columns = ("event", "channel", "session", "sequence", "name")
    return (*(dead_letter[name] for name in columns), at, dead_letter["status"], dead_letter["reason"])


@app.command()
def show(
    id_: DeadLetterId,
    raw: Annotated[bool, typer.Option("--raw", help="Only the record's bytes.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Show a dead letter with the record's bytes."""
    answer = call_node(NodeAddress(data, url, token_file, ca), "evidence.getDeadLetter", event=id_)
    if raw:
        sys.stdout.buffer.write(bytes.fromhex(answer["raw"] or ""))
    elif as_json:
        print_json(answer)
    else:
        _print_dead_letter(answer)


@app.command()
def resolve(
    id_: DeadLetterId,
    retry: Annotated[
        bool, typer.Option("--retry", help="Apply the record again; the dead letter stays if that is refused.")
    ] = False,
    note: Annotated[str, typer.Option(help="What was done about it.")] = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Resolve a dead letter: mark it as settled, or retry it. The journal records who did it."""
    answer = call_node(
        NodeAddress(data, url, token_file, ca), "evidence.resolveDeadLetter", event=id_, retry=retry, note=note
    )
    print_json(answer) if as_json else _print_dead_letter(answer)


def _print_dead_letter(answer: dict[str, Any]) -> None:
    record = dict(answer["dead_letter"])
    for name in ("at_ms", "ended_ms"):
        record[name.removesuffix("_ms")] = format_time(record.pop(name) or None)
    raw = bytes.fromhex(answer["raw"] or "")
    record["bytes"] = repr(raw[:200])[2:-1] + (" …" if len(raw) > 200 else "")
    print_record(record)
