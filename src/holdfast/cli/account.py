"""`holdfast account`: show accounts and move money, on the node of this folder."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeAddress, call_node
from holdfast.cli.terminal.options import Data
from holdfast.cli.terminal.tables import print_json

app = make_app(no_args_is_help=True, help="Show accounts and move money.")

RequestId = Annotated[
    str | None, typer.Option("--id", help="32 bytes in hex that name this request; repeat it to retry safely.")
]
AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="An account, for example alice.")]
Amount = Annotated[int, typer.Argument(metavar="AMOUNT", min=0, help="In the smallest unit.")]
ReservationArgument = Annotated[str, typer.Argument(metavar="RESERVATION", help="The reservation's id in hex.")]


def _call_and_print(data: Path | None, method: str, **params: object) -> None:
    print_json(call_node(NodeAddress(data), method, **params))


def _new_id(given: str | None) -> str:
    return given or secrets.token_hex(32)


@app.command()
def show(owner: AccountArgument, data: Data = None) -> None:
    """Show an account: available, reserved, and pending until its block is final."""
    _call_and_print(data, "account.getAccount", owner=owner)


@app.command("list")
def list_(
    after: Annotated[str, typer.Option(help="Continue after this account.")] = "",
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
) -> None:
    """List all accounts by name, as of a stated event."""
    _call_and_print(data, "account.listAccounts", after=after, limit=limit)


@app.command()
def reservations(
    owner: Annotated[str | None, typer.Option(help="Only this account's.")] = None,
    status: Annotated[str | None, typer.Option(help="HELD, CHARGED, REFUNDED, PAID or RETURNED.")] = None,
    after: Annotated[int, typer.Option(help="Continue after this event.")] = 0,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
) -> None:
    """List reservations made with `account reserve`, open and settled, oldest first.

    The reservation of a job is in `holdfast job show`, a stake in `holdfast provider show`.
    """
    _call_and_print(data, "account.listReservations", owner=owner, status=status, after=after, limit=limit)


@app.command()
def reservation(id_: ReservationArgument, data: Data = None) -> None:
    """Show one reservation."""
    _call_and_print(data, "account.getReservation", id=id_)


@app.command()
def mint(owner: AccountArgument, amount: Amount, id_: RequestId = None, data: Data = None) -> None:
    """Create money, on a development network."""
    _call_and_print(data, "account.mint", id=_new_id(id_), owner=owner, amount=amount)


@app.command()
def reserve(
    owner: AccountArgument,
    amount: Amount,
    id_: RequestId = None,
    memo: Annotated[str, typer.Option(help="What for.")] = "",
    data: Data = None,
) -> None:
    """Reserve money. The last line printed is the reservation's id, for `charge` and `refund`."""
    reservation_id = _new_id(id_)
    _call_and_print(data, "account.reserve", id=reservation_id, owner=owner, amount=amount, memo=memo.encode().hex())
    print(f"reservation {reservation_id}")


@app.command()
def charge(id_: ReservationArgument, payee: AccountArgument, amount: Amount, data: Data = None) -> None:
    """Pay part of a reservation to an account in the open block and return the rest."""
    _call_and_print(data, "account.charge", id=id_, payee=payee, amount=amount)


@app.command()
def refund(id_: ReservationArgument, data: Data = None) -> None:
    """Return a reservation in the open block."""
    _call_and_print(data, "account.refund", id=id_)
