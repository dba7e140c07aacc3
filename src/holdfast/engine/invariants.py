"""What always holds in a running node: cheap checks at every commit. The whole set is `core.invariants`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Batch, JournalHead
from holdfast.core.state import State


def check_commit(head: JournalHead, batch: Batch, state: State) -> None:
    """Raise Corrupt unless a sealed batch follows the durable head and ends where memory ends.

    It costs a few comparisons, whatever the size of the state. It runs before the batch is appended: a fault of the
    program stops the owner, and the journal holds nothing of it.
    """
    ledger, leases = state.ledger, state.leases
    checks = {
        "the batch follows the durable head": (batch.number, batch.first, batch.parent)
        == (head.number + 1, head.last + 1, head.hash),
        "term and time do not run backwards": batch.term >= head.term and batch.time_ms >= head.time_ms,
        "the batch ends with the last applied event": batch.first <= batch.last == state.last_event,
        "no more is charged and refunded than was reserved": ledger.charged_total + ledger.refunded_total
        <= ledger.reserved_total,
        "every lease has a job": len(leases.by_id) == len(leases.by_job) <= state.queue.depth,
        "every submission has a lease": len(state.submissions) <= len(leases.by_id),
    }
    if broken := [name for name, holds in checks.items() if not holds]:
        raise Corrupt("ENG-001", f"does not hold before batch {batch.number}: {'; '.join(broken)}", _REPORT)


_REPORT: Final = "this is a fault of Holdfast: nothing wrong was stored; report it, and start the node again"
