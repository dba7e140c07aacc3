"""`holdfast account`: show accounts and move money, on the node of this folder."""

from __future__ import annotations

import csv
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeAddress, NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Ca, Data, TokenFile, Url
from holdfast.cli.terminal.tables import print_json, print_table
from holdfast.core.escrow.model import TransferKind, TransferStatus

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


Reference = Annotated[
    str, typer.Option("--reference", help="Its name in the outside world, used once for ever; repeat it to retry.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the transfer.")]


@app.command()
def deposit(
    owner: AccountArgument,
    amount: Amount,
    reference: Reference,
    reason: Reason,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Book money that came in from outside. It needs a treasurer's token; the money is available at once."""
    params = {"owner": owner, "amount": amount, "reference": reference, "reason": reason}
    print_json(call_node(NodeAddress(data, url, token_file, ca), "account.deposit", **params))


@app.command()
def withdraw(
    owner: AccountArgument,
    amount: Amount,
    reference: Reference,
    reason: Reason,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Book money that goes out. It needs a treasurer's token. Pay it outside when it is FINAL, never before."""
    params = {"owner": owner, "amount": amount, "reference": reference, "reason": reason}
    print_json(call_node(NodeAddress(data, url, token_file, ca), "account.withdraw", **params))


@app.command("return")
def return_(
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of the withdrawal.")],
    reason: Reason,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Give a withdrawal that was not paid outside back to its account, once. It needs a treasurer's token."""
    address = NodeAddress(data, url, token_file, ca)
    print_json(call_node(address, "account.returnWithdrawal", reference=reference, reason=reason))


@app.command()
def transfers(
    owner: Annotated[str | None, typer.Option(help="Only this account's.")] = None,
    reference: Annotated[str | None, typer.Option(help="Only this reference.")] = None,
    status: Annotated[TransferStatus | None, typer.Option(help="FINAL withdrawals are payable.")] = None,
    after: Annotated[int, typer.Option(help="Continue after this event.")] = 0,
    limit: Annotated[int, typer.Option(help="How many.")] = 100,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """List deposits, withdrawals and returns, oldest first."""
    params = {"owner": owner, "reference": reference, "status": status, "after": after, "limit": limit}
    print_json(call_node(NodeAddress(data, url, token_file, ca), "account.listTransfers", **params))


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


@app.command()
def statement(
    owner: AccountArgument,
    from_height: Annotated[int, typer.Option(min=1, help="Jobs resolved in this block or later.")] = 1,
    until_height: Annotated[int | None, typer.Option(min=1, help="Jobs resolved in this block or earlier.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, for a spreadsheet.")] = False,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Print what an account has paid for jobs, and what came in and went out, with the account's balance at the end.

    Payments are by the block that resolved their job; deposits and withdrawals follow, oldest first.
    """

    async def read(node: NodeSession) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
        heights = {"from_height": from_height, "until_height": until_height}
        paid = await _all_rows(node, "cap.listResults", "cursor", caller=owner, **heights)
        moved = await _all_rows(node, "account.listTransfers", "after", owner=owner)
        return paid, moved, await node.call("account.getAccount", owner=owner)

    paid, moved, account = run_on_node(NodeAddress(data, url, token_file, ca), read)
    rows = [*map(_payment_row, paid), *map(_transfer_row, moved)]
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerows([STATEMENT_HEADS, *rows])
    else:
        print_table(tuple(head.upper() for head in STATEMENT_HEADS), rows)
    total = sum(row[4] for row in rows)
    balance = ", ".join(f"{account[name]} {name}" for name in ("available", "held", "pending"))
    print(f"{len(rows)} entries, {total} in all; now {balance}", file=sys.stderr)


STATEMENT_HEADS: Final = ("height", "entry", "reference", "with", "amount", "status")
PAGE: Final = 500


def _payment_row(result: dict[str, Any]) -> tuple[Any, ...]:
    height, paid = result["height_resolved"], -result["charged"]
    return height, "job", result["task_id"], result["payee"], paid, result["status"]


def _transfer_row(transfer: dict[str, Any]) -> tuple[Any, ...]:
    sign = -1 if transfer["kind"] == TransferKind.WITHDRAWAL else 1
    amount = sign * transfer["amount"]
    return (
        transfer["height"] or "",
        transfer["kind"],
        transfer["reference"],
        transfer["reason"],
        amount,
        transfer["status"],
    )


async def _all_rows(node: NodeSession, method: str, cursor_name: str, **params: object) -> list[dict[str, Any]]:
    rows, cursor = list[dict[str, Any]](), 0
    while cursor is not None:
        page = await node.call(method, limit=PAGE, **{cursor_name: cursor}, **params)
        rows += page["rows"]
        cursor = page["next_after"]
    return rows
