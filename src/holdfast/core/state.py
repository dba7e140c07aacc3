"""All that lives, in memory: the parts of every station, its digest and its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha3_256
from typing import Any, Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.claim import Claims
from holdfast.core.escrow.books import Account, Hold, Ledger, Touched
from holdfast.core.event import OwnershipTaken, Tip
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt
from holdfast.core.values import Digest, EventNo, Height, HoldId

SNAPSHOT_TAG: Final = "holdfast.snapshot.v1"
MAGIC: Final = b"holdfast snapshot 1\n"
TABLES: Final = ("account", "hold")
"""The tables of the projection; every record that a station touches is a row of one of them."""
_pack = msgspec.msgpack.Encoder().encode


class State(msgspec.Struct):
    """What the stations decide against. `claims` and `touched` serve the engine and are no part of the digest."""

    policy: Policy
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    last_event: EventNo = EventNo(0)
    owner: OwnershipTaken | None = None
    """Who decides now."""
    claims: Claims = msgspec.field(default_factory=Claims)
    touched: Touched = msgspec.field(default_factory=lambda: {table: {} for table in TABLES})
    """Records changed since the last batch was sealed, by table and key: what the projection must write."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A state at the end of a batch, as stored; `digest` is the state's."""

    tip: Tip
    digest: Digest
    accounts: list[Account]
    holds: list[Hold]
    settled: dict[Height, list[HoldId]]
    totals: tuple[Height, int, int, int]
    owner: OwnershipTaken | None


def digest(state: State) -> Digest:
    """ENG-003: equal states, equal digests, whatever the order in which their entries came to be."""
    ledger = state.ledger
    totals = _totals(ledger)
    parts = (_digest_of(ledger.accounts), _digest_of(ledger.holds), _digest_of(ledger.settled))
    return H("holdfast.state.v1", state.last_event, _pack((totals, state.owner)), *parts)


def _totals(ledger: Ledger) -> tuple[Height, int, int, int]:
    return ledger.finalized, ledger.reserved_total, ledger.charged_total, ledger.refunded_total


def _digest_of(entries: Mapping[Any, object]) -> bytes:
    hasher = sha3_256()
    for key in sorted(entries):
        hasher.update(_pack((key, entries[key])))
    return hasher.digest()


def snapshot(state: State, tip: Tip) -> bytes:
    """The state as bytes that carry their own hash; `tip` is the batch it is the fold of."""
    ledger = state.ledger
    accounts, holds = list(ledger.accounts.values()), list(ledger.holds.values())
    body = _pack(Snapshot(tip, digest(state), accounts, holds, ledger.settled, _totals(ledger), state.owner))
    return MAGIC + H(SNAPSHOT_TAG, body) + body


def restore(raw: bytes, policy: Policy) -> tuple[State, Tip]:
    """The state that `snapshot` packed, or Corrupt where any bit of it changed.

    Whether it is the fold of its journal is asked when it is made and by `holdfast db check`, not at every start.
    """
    magic, hash_, body = raw[: len(MAGIC)], raw[len(MAGIC) : len(MAGIC) + 32], raw[len(MAGIC) + 32 :]
    if magic != MAGIC:
        raise Corrupt("ENG-003", f"not a snapshot of this version: it begins with {magic!r}")
    if hash_ != H(SNAPSHOT_TAG, body):
        raise Corrupt("ENG-003", "the snapshot does not have the hash it is stored with")
    try:
        stored = msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.DecodeError as fault:
        raise Corrupt("ENG-003", f"the snapshot cannot be read: {fault}") from fault
    accounts, holds = {each.owner: each for each in stored.accounts}, {each.id: each for each in stored.holds}
    ledger = Ledger(accounts, holds, stored.settled, *stored.totals)
    return State(policy, ledger, stored.tip.last, stored.owner), stored.tip
