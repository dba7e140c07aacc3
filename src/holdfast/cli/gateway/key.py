"""`holdfast gateway key`: who may upload. A token is shown once and stored nowhere (SEC-001)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.keys.secret_file import write_new
from holdfast.cli import make_app
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.reporting import load_settings, report_errors, value_or_exit
from holdfast.cli.terminal.tables import format_time, print_json, print_table
from holdfast.config import gateway_folder
from holdfast.core.base.errors import Unavailable
from holdfast.gateway.key_file import KeyFile

app = make_app(no_args_is_help=True, help="Create, list and revoke keys for uploads.")
KEY_FILE = "keys.json"


@app.command()
def new(
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
) -> None:
    """Create a key and print its token, once, alone on standard output: TOKEN=$(holdfast gateway key new)

    A gateway that runs accepts it at once.
    """
    with report_errors():
        key, token = _keys(data, config).create(
            now_ms(), label, is_admin=admin, quota_bytes=quota_bytes, quota_items=quota_items
        )
        if output is None:
            print(token)
        elif not write_new(output, f"{token}\n".encode()):
            raise Unavailable("SEC-001", f"{output} exists", "name a file that does not")
    print(f"key {key.id}; the token is shown only now", file=sys.stderr)


@app.command("list")
def list_(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List all keys, oldest first, without their secrets."""
    with report_errors():
        keys = _keys(data, config).keys()
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


@app.command()
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `list` shows it.")],
    data: Data = None,
    config: ConfigFile = None,
) -> None:
    """Revoke a key: a gateway that runs refuses its token from now on. What it has stored stays."""
    with report_errors():
        key = value_or_exit(_keys(data, config).revoke(id_, now_ms()))
    print(f"key {key.id} is revoked")


def _keys(data: Path | None, config: Path | None) -> KeyFile:
    return KeyFile(gateway_folder(load_settings(config, {"data": data})) / KEY_FILE)
