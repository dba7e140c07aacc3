"""`holdfast tls`: certificates of your own CA, for the node and for clients that must present one (SEC-001)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.adapters.keys.authority import DAYS, LOCAL_NAMES, CertificateFiles, make_client_certificate, make_tls
from holdfast.adapters.keys.certificate import describe_file
from holdfast.cli import make_app
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.key_files import KEYS_FOLDER
from holdfast.cli.terminal.options import Data, Json
from holdfast.cli.terminal.reporting import load_settings, report_errors, value_or_exit
from holdfast.cli.terminal.tables import format_time, print_json, print_outcome, print_table

app = make_app(no_args_is_help=True, help="Create certificates of your own CA, in DATA/keys.")
Days = Annotated[int, typer.Option(min=1, help="How long it is valid.")]


@app.command(example="holdfast tls server node.example 192.0.2.7")
def server(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Host names and addresses of the node.")],
    days: Days = DAYS,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create the node's certificate, and a CA if there is none yet.

    Nothing is overwritten: to renew, move server.pem and server.key away first. The CA stays, so clients need nothing
    new. Set certificate and key of http and grpc to the created files.
    """
    with report_errors():
        all_names = list(dict.fromkeys((*names, *LOCAL_NAMES)))
        _print_pair(value_or_exit(make_tls(_folder(data), now_ms(), all_names, days)), as_json=as_json)


@app.command(example="holdfast tls client oak")
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who presents it, for example oak.")],
    days: Days = DAYS,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a client certificate, for a node with client_ca = ca.pem."""
    with report_errors():
        _print_pair(value_or_exit(make_client_certificate(_folder(data), name, now_ms(), days)), as_json=as_json)


@app.command("list", example="holdfast tls list")
def list_(data: Data = None, as_json: Json = False) -> None:
    """List certificates: for whom, and until when."""
    with report_errors():
        paths = [path for path in sorted(_folder(data).glob("*.pem")) if _is_certificate(path)]
        described = [(path.name, describe_file(path)) for path in paths]
    if as_json:
        print_json(
            [
                {"file": name, "subject": each.subject, "names": each.names, "until_ms": each.until_ms}
                for name, each in described
            ]
        )
        return
    rows = [(name, each.subject, each.names, format_time(each.until_ms)) for name, each in described]
    print_table(("FILE", "SUBJECT", "NAMES", "VALID UNTIL"), rows)


def _folder(data: Path | None) -> Path:
    return load_settings(None, {"data": data}).data / KEYS_FOLDER


def _is_certificate(path: Path) -> bool:
    return b"BEGIN CERTIFICATE" in path.read_bytes()


def _print_pair(files: CertificateFiles, *, as_json: bool) -> None:
    until_ms = describe_file(files.certificate).until_ms
    paths = {"certificate": files.certificate, "key": files.key, "ca_certificate": files.ca_certificate}
    print_outcome(
        {name: str(path) for name, path in paths.items()} | {"until_ms": until_ms},
        f"created  {files.certificate}, valid until {format_time(until_ms)}",
        f"created  {files.key}, readable by its owner alone",
        f"clients that should trust it need {files.ca_certificate}",
        as_json=as_json,
    )
