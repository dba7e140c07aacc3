"""`holdfast account`: look at money and move it, on a running node."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import verb
from holdfast.cli.speak import configured, told
from holdfast.client import Client

app = verb(no_args_is_help=True, help="Look at money and move it.")

Data = Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")]
Id = Annotated[
    str | None, typer.Option("--id", help="32 bytes in hex that name this request; repeat it to ask again safely.")
]
Owner = Annotated[str, typer.Argument(metavar="ACCOUNT", help="An account, for example alice.")]
Amount = Annotated[int, typer.Argument(metavar="AMOUNT", min=0, help="In the smallest unit.")]
Hold = Annotated[str, typer.Argument(metavar="HOLD", help="The reservation's id in hex.")]
PATIENCE_S = 5.0


def _say(data: Path | None, method: str, **params: object) -> None:
    async def ask() -> Any:
        async with Client(configured(None, {"data": data}).data, PATIENCE_S) as node:
            return await node.call(method, **params)

    with told():
        print(msgspec.json.format(msgspec.json.encode(asyncio.run(ask())), indent=2).decode())


def _new_id(given: str | None) -> str:
    return given or secrets.token_hex(32)


@app.command()
def show(owner: Owner, data: Data = None) -> None:
    """What an account has: available, held by reservations, pending until its block is final."""
    _say(data, "account.show", owner=owner)


@app.command("list")
def list_(
    after: Annotated[str, typer.Option(help="Go on after this account.")] = "",
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
) -> None:
    """All accounts by name, as of a stated event."""
    _say(data, "account.list", after=after, limit=limit)


@app.command()
def holds(
    owner: Annotated[str | None, typer.Option(help="Only this account's.")] = None,
    status: Annotated[str | None, typer.Option(help="HELD, CHARGED, REFUNDED, PAID or RETURNED.")] = None,
    after: Annotated[int, typer.Option(help="Go on after this event.")] = 0,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
) -> None:
    """Reservations that were made by themselves, open and finished, in the order they were made.

    What is held for a job is in `holdfast job show`, a stake in `holdfast provider show`.
    """
    _say(data, "hold.list", owner=owner, status=status, after=after, limit=limit)


@app.command()
def hold(id_: Hold, data: Data = None) -> None:
    """One reservation."""
    _say(data, "hold.show", id=id_)


@app.command()
def mint(owner: Owner, amount: Amount, id_: Id = None, data: Data = None) -> None:
    """Make money out of nothing, on a development network."""
    _say(data, "account.mint", id=_new_id(id_), owner=owner, amount=amount)


@app.command()
def reserve(
    owner: Owner,
    amount: Amount,
    id_: Id = None,
    memo: Annotated[str, typer.Option(help="What for.")] = "",
    data: Data = None,
) -> None:
    """Set money aside. Prints the hold's id on the second line: charge or refund it by that."""
    hold_id = _new_id(id_)
    _say(data, "account.reserve", id=hold_id, owner=owner, amount=amount, memo=memo.encode().hex())
    print(f"hold {hold_id}")


@app.command()
def charge(id_: Hold, payee: Owner, amount: Amount, data: Data = None) -> None:
    """Pay part of a reservation to somebody in the open block and give the rest back."""
    _say(data, "account.charge", id=id_, payee=payee, amount=amount)


@app.command()
def refund(id_: Hold, data: Data = None) -> None:
    """Give a reservation back in the open block."""
    _say(data, "account.refund", id=id_)
