"""Methods about money: accounts, reservations and settlement; deposits and withdrawals by treasurers (ESC-003)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.api.node_access import (
    LEDGER_READERS,
    OPERATORS,
    OWNERS,
    TREASURERS,
    NodeAccess,
    Principal,
    RpcCall,
    RpcMethod,
    why_not_own,
)
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.rpc.privileged import CommandResult, command_result, privileged_handler, submit_privileged
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, Height, ReservationId
from holdfast.core.escrow import messages
from holdfast.core.escrow.model import Account, Reservation, TransferKind, TransferStatus
from holdfast.engine import queries
from holdfast.engine.queries.accounts import GetAccount

OPEN_HEIGHT: Final = Height(0)
"""Settled in whichever block is open."""


class AccountParams(msgspec.Struct, frozen=True):
    """The owner of the account."""

    owner: AccountId


class ReservationParams(msgspec.Struct, frozen=True):
    """Which reservation."""

    id: ReservationId


class ListAccountsParams(msgspec.Struct, frozen=True):
    """A page of accounts, by name."""

    after: str = ""
    limit: int = 100


class ListReservationsParams(msgspec.Struct, frozen=True):
    """A page of reservations, by the event that made them; of one owner or in one status, where given."""

    owner: str | None = None
    status: str | None = None
    after: int = 0
    limit: int = 100
    newest_first: bool = False
    """From the newest one down."""


class ListTransfersParams(msgspec.Struct, frozen=True):
    """A page of transfers, oldest first; of one owner, reference, kind or status, where given."""

    owner: str | None = None
    reference: str | None = None
    kind: TransferKind | None = None
    status: TransferStatus | None = None
    after: int = 0
    limit: int = 100
    newest_first: bool = False
    """From the newest one down."""


class ReturnParams(msgspec.Struct, frozen=True):
    """Which withdrawal was not paid outside, and why."""

    reference: str
    reason: str


class ChargeParams(msgspec.Struct, frozen=True):
    """Pay `amount` of a reservation to the payee in the open block, and refund the rest."""

    id: ReservationId
    payee: AccountId
    amount: Amount


class RefundParams(msgspec.Struct, frozen=True):
    """Refund a reservation in the open block."""

    id: ReservationId


async def _get_account(access: NodeAccess, call: RpcCall, params: AccountParams) -> Account | Refused:
    if refusal := why_not_own(call.principal, params.owner):
        return refusal
    account = await access.source.query_durable(GetAccount(params.owner))
    return account or Refused("ESC-001", f"no account {params.owner!r}: it was never paid", name="NotFound")


async def _get_reservation(access: NodeAccess, call: RpcCall, params: ReservationParams) -> Reservation | Refused:
    reservation = await queries.reservation(access.source, params.id)
    if reservation is None:
        return Refused("ESC-001", f"no reservation {params.id.hex()}", name="NotFound")
    return why_not_own(call.principal, reservation.owner) or reservation


async def _list_accounts(access: NodeAccess, _: RpcCall, params: ListAccountsParams) -> queries.Page | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    return await queries.page(access.source, "account", {}, params.after, params.limit)


async def _list_reservations(
    access: NodeAccess, call: RpcCall, params: ListReservationsParams
) -> queries.Page | Refused:
    owner = params.owner if params.owner is not None else call.principal.account
    if owner is not None and (refusal := why_not_own(call.principal, AccountId(owner))):
        return refusal
    if refusal := why_not_limit(params.limit):
        return refusal
    match = filter_of({"owner": owner, "status": params.status})
    return await queries.page(
        access.source, "reservation", match, params.after, params.limit, is_newest_first=params.newest_first
    )


async def _list_transfers(access: NodeAccess, call: RpcCall, params: ListTransfersParams) -> queries.Page | Refused:
    owner = params.owner if params.owner is not None else call.principal.account
    if owner is not None and (refusal := why_not_own(call.principal, AccountId(owner))):
        return refusal
    if refusal := why_not_limit(params.limit):
        return refusal
    match = filter_of(
        {"owner": owner, "reference": params.reference, "kind": params.kind, "status": params.status},
    )
    return await queries.page(
        access.source, "transfer", match, params.after, params.limit, is_newest_first=params.newest_first
    )


async def _return_withdrawal(access: NodeAccess, call: RpcCall, params: ReturnParams) -> CommandResult | Refused:
    """ESC-003: a withdrawal that is payable has left memory; its row names account and amount."""
    stored = await queries.transfer(access.source, params.reference, TransferKind.WITHDRAWAL)
    command = messages.ReturnWithdrawal(params.reference, params.reason, stored)
    return command_result(await submit_privileged(access, call, command))


def _charge(params: ChargeParams, _: Principal) -> messages.Charge:
    return messages.Charge(params.id, OPEN_HEIGHT, params.payee, params.amount)


def _refund(params: RefundParams, _: Principal) -> messages.Refund:
    return messages.Refund(params.id, OPEN_HEIGHT)


def _unchanged(params: Command, _: Principal) -> Command:
    return params


def _operator_method(
    summary: str, params: type[msgspec.Struct], build_command: Callable[[Any, Principal], Command]
) -> RpcMethod:
    return RpcMethod(summary, params, CommandResult, privileged_handler(build_command), OPERATORS, is_write=True)


def _treasurer_method(summary: str, params: type[msgspec.Struct]) -> RpcMethod:
    return RpcMethod(summary, params, CommandResult, privileged_handler(_unchanged), TREASURERS, is_write=True)


METHODS: Final[dict[str, RpcMethod]] = {
    "account.mint": _operator_method("Create money, on development networks.", messages.Mint, _unchanged),
    "account.deposit": _treasurer_method("Book money that came in from outside.", messages.Deposit),
    "account.withdraw": _treasurer_method("Book money that goes out; pay it at withdrawalFinal.", messages.Withdraw),
    "account.returnWithdrawal": RpcMethod(
        "Give a withdrawal that was not paid outside back to its account.",
        ReturnParams,
        CommandResult,
        _return_withdrawal,
        TREASURERS,
        is_write=True,
    ),
    "account.listTransfers": RpcMethod(
        "Deposits, withdrawals and returns, oldest first.",
        ListTransfersParams,
        queries.Page,
        _list_transfers,
        OWNERS | TREASURERS,
    ),
    "account.reserve": _operator_method("Reserve money of an account.", messages.Reserve, _unchanged),
    "account.charge": _operator_method("Pay a part of a reservation in the open block.", ChargeParams, _charge),
    "account.refund": _operator_method("Refund a reservation in the open block.", RefundParams, _refund),
    "account.getAccount": RpcMethod("One account.", AccountParams, Account, _get_account, OWNERS | TREASURERS),
    "account.listAccounts": RpcMethod(
        "All accounts, by name.", ListAccountsParams, queries.Page, _list_accounts, LEDGER_READERS
    ),
    "account.getReservation": RpcMethod("One reservation.", ReservationParams, Reservation, _get_reservation, OWNERS),
    "account.listReservations": RpcMethod(
        "Reservations, oldest first.", ListReservationsParams, queries.Page, _list_reservations, OWNERS
    ),
}
