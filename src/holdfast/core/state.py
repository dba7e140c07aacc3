"""All that lives, in memory: the parts of every station, its digest and its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha3_256
from typing import Any, Final

import msgspec

from holdfast.core.canon import H
from holdfast.core.claim import Claims
from holdfast.core.escrow.books import Ledger
from holdfast.core.event import Tip
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt
from holdfast.core.values import Digest, EventNo

SNAPSHOT_VERSION: Final = 1
_pack = msgspec.msgpack.Encoder().encode


class State(msgspec.Struct):
    """What the stations decide against. `claims` and `touched` serve the engine and are no part of the digest."""

    policy: Policy
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    last_event: EventNo = EventNo(0)
    claims: Claims = msgspec.field(default_factory=Claims)
    touched: dict[tuple[str, object], msgspec.Struct] = {}
    """Records changed since the last batch was sealed, by table and key: what the projection must write."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A state at the end of a batch, as stored; `digest` is the state's."""

    version: int
    tip: Tip
    digest: Digest
    ledger: Ledger


def digest(state: State) -> Digest:
    """ENG-003: equal states, equal digests, whatever the order in which their entries came to be."""
    ledger = state.ledger
    totals = (ledger.finalized, ledger.reserved_total, ledger.charged_total, ledger.refunded_total)
    parts = (_digest_of(ledger.accounts), _digest_of(ledger.holds), _digest_of(ledger.settled))
    return H("holdfast.state.v1", state.last_event, _pack(totals), *parts)


def _digest_of(entries: Mapping[Any, object]) -> bytes:
    hasher = sha3_256()
    for key in sorted(entries):
        hasher.update(_pack((key, entries[key])))
    return hasher.digest()


def snapshot(state: State, tip: Tip) -> bytes:
    """The state as bytes; `tip` is the batch it is the fold of."""
    return _pack(Snapshot(SNAPSHOT_VERSION, tip, digest(state), state.ledger))


def restore(raw: bytes, policy: Policy) -> tuple[State, Tip]:
    """The state that `snapshot` packed, or Corrupt where bytes and digest disagree."""
    try:
        stored = msgspec.msgpack.decode(raw, type=Snapshot)
    except msgspec.DecodeError as fault:
        raise Corrupt("ENG-003", f"the snapshot cannot be read: {fault}") from fault
    if stored.version > SNAPSHOT_VERSION:
        raise Corrupt("ENG-003", f"the snapshot has version {stored.version}, newer than this program")
    state = State(policy, stored.ledger, stored.tip.last)
    if digest(state) != stored.digest:
        raise Corrupt("ENG-003", "the snapshot does not have the digest it is stored with")
    return state, stored.tip
