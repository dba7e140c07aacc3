"""`holdfast account`: show accounts and move money."""

from __future__ import annotations

import csv
import secrets
import sys
from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.abbreviations import find_reservation
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import AfterEvent, Json, Limit, NodeAddress, OldestFirst, Wide, on_node
from holdfast.cli.terminal.tables import (
    print_json,
    print_more,
    print_outcome,
    print_record,
    print_table,
    repeat_note,
)
from holdfast.core.escrow.model import ReservationStatus, TransferKind, TransferStatus

app = make_app(no_args_is_help=True, help="Show accounts and move money.")

RequestId = Annotated[
    str | None,
    typer.Option("--id", metavar="HEX", help="32 bytes in hex that name this request; repeat it to retry safely."),
]
AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="An account, for example alice.")]
Amount = Annotated[int, typer.Argument(metavar="AMOUNT", min=0, help="In the smallest unit.")]
ReservationArgument = Annotated[
    str, typer.Argument(metavar="RESERVATION", help="The reservation's id, or the beginning of it.")
]
OwnerOption = Annotated[str | None, typer.Option(help="Only this account's.")]
Reference = Annotated[
    str, typer.Option("--reference", help="Its name in the outside world, used once for ever; repeat it to retry.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the transfer.")]


def _new_id(given: str | None) -> str:
    return given or secrets.token_hex(32)


def _print_event(answer: dict[str, Any], what: str, *, as_json: bool) -> None:
    print_outcome(answer, f"{what} ({repeat_note(answer)})", as_json=as_json)


# ------------------------------------------------------------------------------------------------ reading


@app.command(example="holdfast account show alice")
@on_node
def show(address: NodeAddress, owner: AccountArgument, as_json: Json = False) -> None:
    """Show an account: available, reserved, and pending until its block is final."""
    account = call_node(address, "account.getAccount", owner=owner)
    print_json(account) if as_json else print_record(account)


@app.command("list", example="holdfast account list --limit 20")
@on_node
def list_(
    address: NodeAddress,
    after: Annotated[str, typer.Option(metavar="ACCOUNT", help="Continue after this account.")] = "",
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List all accounts by name."""
    page = call_node(address, "account.listAccounts", after=after, limit=limit)
    if as_json:
        print_json(page)
        return
    columns = ("owner", "available", "held", "pending")
    print_table(
        ("ACCOUNT", "AVAILABLE", "RESERVED", "PENDING"), [[row[name] for name in columns] for row in page["rows"]]
    )
    print_more(page["next_after"])


@app.command(example="holdfast account reservations --owner alice --status held")
@on_node
def reservations(
    address: NodeAddress,
    owner: OwnerOption = None,
    status: Annotated[ReservationStatus | None, typer.Option(help="Only in this status.")] = None,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """List reservations made with `account reserve`, open and settled, newest first.

    The reservation of a job is in `holdfast job show`, a stake in `holdfast provider show`.
    """
    params = {"owner": owner, "status": status, "after": after, "limit": limit, "newest_first": not oldest_first}
    page = call_node(address, "account.listReservations", **params)
    if as_json:
        print_json(page)
        return
    columns = ("event", "id", "owner", "amount", "status", "payee", "charged")
    heads = tuple(name.upper() for name in columns)
    print_table(heads, [[row.get(name) for name in columns] for row in page["rows"]], wide=wide)
    print_more(page["next_after"])


@app.command(example="holdfast account reservation 3f9c0a1b")
@on_node
def reservation(address: NodeAddress, id_: ReservationArgument, as_json: Json = False) -> None:
    """Show one reservation."""

    async def read(node: NodeSession) -> Any:
        return await node.call("account.getReservation", id=await find_reservation(node, id_))

    found = run_on_node(address, read)
    print_json(found) if as_json else print_record(found)


@app.command(example="holdfast account transfers --status final")
@on_node
def transfers(
    address: NodeAddress,
    owner: OwnerOption = None,
    reference: Annotated[str | None, typer.Option(help="Only this reference.")] = None,
    status: Annotated[TransferStatus | None, typer.Option(help="FINAL withdrawals are payable.")] = None,
    after: AfterEvent = 0,
    limit: Limit = 100,
    oldest_first: OldestFirst = False,
    as_json: Json = False,
) -> None:
    """List deposits, withdrawals and returns, newest first."""
    params = {"owner": owner, "reference": reference, "status": status, "after": after, "limit": limit}
    page = call_node(address, "account.listTransfers", **params, newest_first=not oldest_first)
    if as_json:
        print_json(page)
        return
    columns = ("event", "kind", "owner", "amount", "status", "height", "reference", "reason")
    print_table(tuple(name.upper() for name in columns), [[row[name] for name in columns] for row in page["rows"]])
    print_more(page["next_after"])


# ------------------------------------------------------------------------------------------------ moving money


@app.command(example="holdfast account mint alice 1000000")
@on_node
def mint(
    address: NodeAddress, owner: AccountArgument, amount: Amount, id_: RequestId = None, as_json: Json = False
) -> None:
    """Create money, on a development network."""
    answer = call_node(address, "account.mint", id=_new_id(id_), owner=owner, amount=amount)
    _print_event(answer, f"{amount} minted for {owner}", as_json=as_json)


@app.command(example='holdfast account deposit alice 5000 --reference wire-2026-17 --reason "invoice 17"')
@on_node
def deposit(
    address: NodeAddress,
    owner: AccountArgument,
    amount: Amount,
    reference: Reference,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Book money that came in from outside. It needs a treasurer's token; the money is available at once."""
    params = {"owner": owner, "amount": amount, "reference": reference, "reason": reason}
    _print_event(call_node(address, "account.deposit", **params), f"{amount} deposited for {owner}", as_json=as_json)


@app.command(example='holdfast account withdraw alice 5000 --reference payout-9 --reason "paid out"')
@on_node
def withdraw(
    address: NodeAddress,
    owner: AccountArgument,
    amount: Amount,
    reference: Reference,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Book money that goes out. It needs a treasurer's token. Pay it outside when it is FINAL, never before."""
    params = {"owner": owner, "amount": amount, "reference": reference, "reason": reason}
    answer = call_node(address, "account.withdraw", **params)
    hint = f"pay it when `holdfast account transfers --reference {reference}` says FINAL"
    _print_event(answer, f"{amount} of {owner} will go out: {hint}", as_json=as_json)


@app.command("return", example='holdfast account return payout-9 --reason "the bank refused it"')
@on_node
def return_(
    address: NodeAddress,
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Of the withdrawal.")],
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Give a withdrawal that was not paid outside back to its account, once. It needs a treasurer's token."""
    answer = call_node(address, "account.returnWithdrawal", reference=reference, reason=reason)
    _print_event(answer, f"{reference} was given back", as_json=as_json)


@app.command(example="holdfast account reserve alice 500 --memo hosting")
@on_node
def reserve(
    address: NodeAddress,
    owner: AccountArgument,
    amount: Amount,
    id_: RequestId = None,
    memo: Annotated[str, typer.Option(help="What for.")] = "",
    as_json: Json = False,
) -> None:
    """Reserve money. The last line printed is the reservation's id, for `charge` and `refund`."""
    reservation_id, memo_hex = _new_id(id_), memo.encode().hex()
    answer = call_node(address, "account.reserve", id=reservation_id, owner=owner, amount=amount, memo=memo_hex)
    lines = (f"{amount} of {owner} reserved ({repeat_note(answer)})", f"reservation {reservation_id}")
    print_outcome({"id": reservation_id, **answer}, *lines, as_json=as_json)


@app.command(example="holdfast account charge 3f9c0a1b bob 300")
@on_node
def charge(
    address: NodeAddress, id_: ReservationArgument, payee: AccountArgument, amount: Amount, as_json: Json = False
) -> None:
    """Pay part of a reservation to an account in the open block and return the rest."""

    async def pay(node: NodeSession) -> Any:
        return await node.call("account.charge", id=await find_reservation(node, id_), payee=payee, amount=amount)

    _print_event(run_on_node(address, pay), f"{amount} paid to {payee}", as_json=as_json)


@app.command(example="holdfast account refund 3f9c0a1b")
@on_node
def refund(address: NodeAddress, id_: ReservationArgument, as_json: Json = False) -> None:
    """Return a reservation in the open block."""

    async def give_back(node: NodeSession) -> Any:
        return await node.call("account.refund", id=await find_reservation(node, id_))

    _print_event(run_on_node(address, give_back), "refunded", as_json=as_json)


# ------------------------------------------------------------------------------------------------ statements


@app.command(example="holdfast account statement alice --csv > alice.csv")
@on_node
def statement(
    address: NodeAddress,
    owner: AccountArgument,
    from_height: Annotated[int, typer.Option(min=1, help="Jobs resolved in this block or later.")] = 1,
    until_height: Annotated[int | None, typer.Option(min=1, help="Jobs resolved in this block or earlier.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, for a spreadsheet.")] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Print what an account has paid for jobs, and what came in and went out, with the account's balance at the end.

    Payments are by the block that resolved their job; deposits and withdrawals follow, oldest first.
    """

    async def read(node: NodeSession) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
        heights = {"from_height": from_height, "until_height": until_height}
        paid = await _all_rows(node, "cap.listResults", "cursor", caller=owner, **heights)
        moved = await _all_rows(node, "account.listTransfers", "after", owner=owner)
        return paid, moved, await node.call("account.getAccount", owner=owner)

    paid, moved, account = run_on_node(address, read)
    rows = [*map(_payment_row, paid), *map(_transfer_row, moved)]
    if as_json:
        print_json({"entries": [dict(zip(STATEMENT_HEADS, row, strict=True)) for row in rows], "account": account})
        return
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerows([STATEMENT_HEADS, *rows])
    else:
        print_table(tuple(head.upper() for head in STATEMENT_HEADS), rows, wide=wide)
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
