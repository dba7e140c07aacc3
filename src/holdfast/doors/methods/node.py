"""The node itself at the doors: how it is, what its state digests to."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast import __version__
from holdfast.core.state import digest
from holdfast.core.values import Digest, EventNo, Network
from holdfast.doors.desk import READERS, Desk, Method, Visitor


class Nothing(msgspec.Struct, frozen=True):
    """A method without parameters."""


class Status(msgspec.Struct, frozen=True):
    """Where a node stands."""

    version: str
    network: Network
    chain_id: int
    role: str
    phase: str
    batch: int
    epoch: int
    event: int
    time_ms: int
    tables_as_of: int
    accounts: int
    holds_open: int


class StateDigest(msgspec.Struct, frozen=True):
    """What the state folds to, as of an event: equal on every node that has come so far."""

    event: EventNo
    digest: Digest


async def status(desk: Desk) -> Status:
    """Where this node stands now."""
    source = desk.source
    counts = await source.ask(lambda state: (len(state.ledger.accounts), len(state.ledger.holds)))
    standing = source.standing()
    tip, policy = standing.tip, source.policy
    here = (tip.number, tip.epoch, tip.last, tip.time_ms, standing.tables_as_of)
    return Status(__version__, policy.network, policy.chain_id, standing.role, standing.phase, *here, *counts)


async def _status(desk: Desk, _: Visitor, __: Nothing) -> Status:
    return await status(desk)


async def _digest(desk: Desk, _: Visitor, __: Nothing) -> StateDigest:
    return await desk.source.ask(lambda state: StateDigest(state.last_event, digest(state)))


METHODS: Final[dict[str, Method]] = {
    "node.status": Method("Where the node stands.", Nothing, Status, _status),
    "node.digest": Method("The digest of all state; it walks everything.", Nothing, StateDigest, _digest, READERS),
}
