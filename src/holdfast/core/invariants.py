"""The invariants of all domains as one list: what must hold of the state after every decision."""

from __future__ import annotations

from holdfast.core.blob import invariants as blob
from holdfast.core.chain import invariants as chain
from holdfast.core.escrow import invariants as escrow
from holdfast.core.evidence import invariants as evidence
from holdfast.core.key import invariants as key
from holdfast.core.lease import invariants as lease
from holdfast.core.provider import invariants as provider
from holdfast.core.queue import invariants as queue
from holdfast.core.result import invariants as result
from holdfast.core.retention import invariants as retention
from holdfast.core.schedule import invariants as schedule
from holdfast.core.state import State


def broken_invariants(state: State) -> list[str]:
    """Every invariant that does not hold, by its sentence; empty for a correct state. It walks the whole state."""
    return [
        *key.broken_invariants(state),
        *escrow.broken_invariants(state.ledger),
        *provider.broken_invariants(state),
        *queue.broken_invariants(state.queue, state.ledger),
        *lease.broken_invariants(state),
        *evidence.broken_invariants(state),
        *chain.broken_invariants(state),
        *result.broken_invariants(state),
        *retention.broken_invariants(state),
        *blob.broken_invariants(state),
        *schedule.broken_invariants(state.schedules),
    ]
