"""`holdfast evidence dead-letter`: records that were refused for good, and what an operator does about them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Ca, Data, Json, Place, TokenFile, Url, ask
from holdfast.cli.columns import print_json, print_record, print_table, when

app = verb(no_args_is_help=True, help="Records that were refused for good.")
Id = Annotated[int, typer.Argument(metavar="ID", min=1, help="The dead letter's id, as `list` says.")]


@app.command("list")
def list_(
    channel: Annotated[str | None, typer.Option(help="Only this channel's.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that were dealt with.")] = False,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    cursor: Annotated[int, typer.Option(min=0, help="Go on after this one.")] = 0,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Dead letters, the oldest first."""
    told = {"channel": channel, "status": None if every else "WAITING", "limit": limit, "cursor": cursor}
    found = ask(Place(data, url, token_file, ca), "evidence.listDeadLetters", **told)
    if as_json:
        print_json(found)
        return
    heads = ("ID", "CHANNEL", "SESSION", "SEQUENCE", "NAME", "WHEN", "STATUS", "REASON")
    print_table(heads, [_line(one) for one in found["rows"]])


def _line(one: dict[str, Any]) -> tuple[object, ...]:
    where = (one["event"], one["channel"], one["session"], one["sequence"])
    return (*where, one["name"], when(one["at_ms"]), one["status"], one["reason"])


@app.command()
def show(
    id_: Id,
    raw: Annotated[bool, typer.Option("--raw", help="Nothing but its bytes.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """One dead letter with its bytes."""
    found = ask(Place(data, url, token_file, ca), "evidence.getDeadLetter", event=id_)
    if raw:
        sys.stdout.buffer.write(bytes.fromhex(found["raw"] or ""))
    elif as_json:
        print_json(found)
    else:
        _print(found)


@app.command()
def release(
    id_: Id,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what the record asked for; the letter stays if that is refused.")
    ] = False,
    note: Annotated[str, typer.Option(help="What was done about it.")] = "",
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Deal with a dead letter: say that it is settled, or try it again. It is recorded who did it."""
    found = ask(Place(data, url, token_file, ca), "evidence.release", event=id_, retry=retry, note=note)
    print_json(found) if as_json else _print(found)


def _print(found: dict[str, Any]) -> None:
    letter = dict(found["letter"])
    for name in ("at_ms", "ended_ms"):
        letter[name.removesuffix("_ms")] = when(letter.pop(name) or None)
    shown = bytes.fromhex(found["raw"] or "")
    letter["bytes"] = repr(shown[:200])[2:-1] + (" …" if len(shown) > 200 else "")
    print_record(letter)
