"""`holdfast tls`: certificates of your own authority, for the node and for those who must show one (SEC-001)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.keys.authority import DAYS, LOCAL_NAMES, Pair, make_client_certificate, make_tls
from holdfast.adapters.keys.certificate import describe_file
from holdfast.cli import verb
from holdfast.cli.columns import print_table, when
from holdfast.cli.speak import configured, given, told

app = verb(no_args_is_help=True, help="Certificates of your own authority, in DATA/keys.")
KEYS: Final = "keys"
Data = Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")]
Days = Annotated[int, typer.Option(min=1, help="How long it is good.")]


@app.command()
def server(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Host names and addresses of the node.")],
    days: Days = DAYS,
    data: Data = None,
) -> None:
    """Make the node's certificate, and an authority where there is none yet.

    Nothing is overwritten: to renew, move server.pem and server.key away first. The authority stays, so clients need
    nothing new. Set certificate and key of http and grpc to what it made.
    """
    with told():
        every = list(dict.fromkeys((*names, *LOCAL_NAMES)))
        _say(given(make_tls(_folder(data), _now_ms(), every, days)))


@app.command()
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who shows it, for example oak.")],
    days: Days = DAYS,
    data: Data = None,
) -> None:
    """Make a certificate for somebody who must show one, where client_ca is set to ca.pem."""
    with told():
        _say(given(make_client_certificate(_folder(data), name, _now_ms(), days)))


@app.command("list")
def list_(data: Data = None) -> None:
    """What there is, for whom, and until when."""
    with told():
        found = [(path.name, describe_file(path)) for path in sorted(_folder(data).glob("*.pem")) if _is_one(path)]
    rows = [(name, each.subject, each.names, when(each.until_ms)) for name, each in found]
    print_table(("FILE", "SUBJECT", "NAMES", "GOOD UNTIL"), rows)


def _folder(data: Path | None) -> Path:
    return configured(None, {"data": data}).data / KEYS


def _is_one(path: Path) -> bool:
    return b"BEGIN CERTIFICATE" in path.read_bytes()


def _say(made: Pair) -> None:
    print(f"made  {made.certificate}, good until {when(describe_file(made.certificate).until_ms)}")
    print(f"made  {made.key}, for its owner alone")
    print(f"whoever is to trust it needs {made.authority}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
