"""Queries about money and keys: accounts, reservations, balances, API keys."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, EventNo, KeyId, ProviderId, ReservationId
from holdfast.core.escrow.model import Account, Reservation
from holdfast.core.key.decide import authenticate
from holdfast.core.key.model import Key
from holdfast.core.state import State
from holdfast.engine.queries.query import Query, copy_record


class GetAccount(Query[Account | None], frozen=True):
    """An account; accounts never leave memory."""

    owner: AccountId


class GetOpenReservation(Query[Reservation | None], frozen=True):
    """A reservation that is not final yet."""

    id: ReservationId


class LedgerCounts(msgspec.Struct, frozen=True):
    """How many accounts there are, and how many reservations are open."""

    accounts: int
    reservations: int


class CountLedger(Query[LedgerCounts], frozen=True):
    """How large the ledger is."""


class BalanceSource(msgspec.Struct, frozen=True):
    """An account with its stake, all as of one event. What does not exist is None."""

    owner: AccountId | None
    """The provider's account where a provider was named."""
    account: Account | None
    stake: int
    unstaking: int
    """Of the provider that was named, else of all providers of the account."""
    as_of: EventNo


class GetBalance(Query[BalanceSource], frozen=True):
    """An account by its owner, or the account of a provider."""

    owner: AccountId | None
    provider_id: ProviderId = ProviderId(b"")


class AuthenticateKey(Query[Key | Refused], frozen=True):
    """SEC-001: the key that a token names. The query holds the secret: it is never logged or shown."""

    key_id: str
    secret: bytes
    now_ms: int

    def __repr__(self) -> str:
        return f"AuthenticateKey(key_id={self.key_id!r})"


class GetKey(Query[Key | None], frozen=True):
    """One key."""

    id: KeyId


class ListKeys(Query[list[Key]], frozen=True):
    """All keys, oldest first."""


def _get_account(state: State, query: GetAccount) -> Account | None:
    return copy_record(state.ledger.accounts.get(query.owner))


def _get_open_reservation(state: State, query: GetOpenReservation) -> Reservation | None:
    return copy_record(state.ledger.reservations.peek(query.id))


def _count_ledger(state: State, _: CountLedger) -> LedgerCounts:
    return LedgerCounts(len(state.ledger.accounts), len(state.ledger.reservations))


def _get_balance(state: State, query: GetBalance) -> BalanceSource:
    provider = state.providers.get(query.provider_id)
    owner = query.owner if not query.provider_id else None if provider is None else provider.account
    account = state.ledger.accounts.get(owner) if owner is not None else None
    staked = (
        [provider] if provider is not None else [each for each in state.providers.values() if each.account == owner]
    )
    stake, unstaking = sum(each.stake for each in staked), sum(each.unstaking for each in staked)
    return BalanceSource(owner, copy_record(account), stake, unstaking, state.last_event)


def _authenticate_key(state: State, query: AuthenticateKey) -> Key | Refused:
    key = authenticate(state, query.key_id, query.secret, query.now_ms)
    return key if isinstance(key, Refused) else msgspec.structs.replace(key)


def _get_key(state: State, query: GetKey) -> Key | None:
    return copy_record(state.keys.get(query.id))


def _list_keys(state: State, _: ListKeys) -> list[Key]:
    return [msgspec.structs.replace(key) for key in state.keys.values()]


QUERIES: Final = {
    GetAccount: _get_account,
    GetOpenReservation: _get_open_reservation,
    CountLedger: _count_ledger,
    GetBalance: _get_balance,
    AuthenticateKey: _authenticate_key,
    GetKey: _get_key,
    ListKeys: _list_keys,
}
