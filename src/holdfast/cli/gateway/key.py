"""`holdfast gateway key`: who may upload. A token is shown once and stored nowhere (SEC-001)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.keys.secret_file import write_new
from holdfast.cli import make_app
from holdfast.cli.terminal.abbreviations import choose_key
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.options import ConfigFile, Data, Json, OldestFirst, Yes
from holdfast.cli.terminal.reporting import confirm, load_settings, report_errors, value_or_exit
from holdfast.cli.terminal.tables import format_time, print_json, print_outcome, print_table
from holdfast.config import gateway_folder
from holdfast.core.base.errors import Unavailable
from holdfast.gateway.key_file import KeyFile

app = make_app(no_args_is_help=True, help="Create, list and revoke keys for uploads.")
KEY_FILE = "keys.json"


@app.command(example="holdfast gateway key create --label laptop --output laptop.token")
def create(
    label: Annotated[str, typer.Option(help="A note: for whom or what.")] = "",
    admin: Annotated[bool, typer.Option("--admin", help="May also read every registry and the metrics.")] = False,
    quota_bytes: Annotated[
        int | None, typer.Option(min=0, help="What it may store; 0 is no limit. [default: gateway.quota_bytes]")
    ] = None,
    quota_items: Annotated[
        int | None, typer.Option(min=0, help="How many items; 0 is no limit. [default: gateway.quota_items]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the token into this new file instead of printing it.")
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Create a key and print its token, once, alone on standard output: TOKEN=$(holdfast gateway key create)

    A gateway that runs accepts it at once.
    """
    with report_errors():
        key, token = _keys(data, config).create(
            now_ms(), label, is_admin=admin, quota_bytes=quota_bytes, quota_items=quota_items
        )
        if output is None:
            print_outcome({"id": key.id, "token": token}, token, as_json=as_json)
        elif not write_new(output, f"{token}\n".encode()):
            raise Unavailable("SEC-001", f"{output} exists", "name a file that does not")
        elif as_json:
            print_json({"id": key.id, "file": str(output)})
    print(f"key {key.id}; the token is shown only now", file=sys.stderr)


@app.command("list", example="holdfast gateway key list")
def list_(
    oldest_first: OldestFirst = False, data: Data = None, config: ConfigFile = None, as_json: Json = False
) -> None:
    """List all keys, newest first, without their secrets."""
    with report_errors():
        keys = list(_keys(data, config).keys())
    keys = keys if oldest_first else keys[::-1]
    rows = [
        {
            "id": key.id,
            "label": key.label,
            "is_admin": key.is_admin,
            "quota_bytes": key.quota_bytes,
            "quota_items": key.quota_items,
            "created_ms": key.created_ms,
            "revoked_ms": key.revoked_ms,
        }
        for key in keys
    ]
    if as_json:
        print_json(rows)
        return
    heads = ("ID", "STATE", "CREATED", "QUOTA BYTES", "QUOTA ITEMS", "LABEL")
    print_table(
        heads,
        [
            (
                key.id,
                "revoked" if key.revoked_ms is not None else "admin" if key.is_admin else "valid",
                format_time(key.created_ms),
                key.quota_bytes,
                key.quota_items,
                key.label,
            )
            for key in keys
        ],
    )


@app.command(example="holdfast gateway key revoke laptop --yes")
def revoke(
    id_: Annotated[str, typer.Argument(metavar="KEY", help="The key's id, the beginning of it, or its label.")],
    yes: Yes = False,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Revoke a key: a gateway that runs refuses its token from now on. What it has stored stays."""
    with report_errors():
        file = _keys(data, config)
        listed = list(file.keys())
        known = [{"id": key.id, "label": key.label, "revoked_ms": key.revoked_ms} for key in listed]
        whole_id = choose_key(known, id_, "`holdfast gateway key list` shows ids and labels")
        confirm(f"Revoke key {whole_id}?", "SEC-001", yes=yes)
        key = value_or_exit(file.revoke(whole_id, now_ms()))
    print_outcome({"id": key.id}, f"key {key.id} is revoked", as_json=as_json)


def _keys(data: Path | None, config: Path | None) -> KeyFile:
    return KeyFile(gateway_folder(load_settings(config, {"data": data})) / KEY_FILE)
