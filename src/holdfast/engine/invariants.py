"""What always holds in a running node: cheap checks at every commit. The whole set is `core.invariants`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Term
from holdfast.core.state import State


def check_commit(head: JournalHead, count: int, term: Term, time_ms: int, state: State) -> None:
    """Raise Corrupt unless a batch of `count` events follows the durable head and ends where memory ends.

    It costs a few comparisons, whatever the size of the state. It runs before the batch is appended: a fault of the
    program stops the owner, and the journal holds nothing of it.
    """
    ledger, leases = state.ledger, state.leases
    checks = {
        "term and time do not run backwards": term >= head.term and time_ms >= head.time_ms,
        "the batch ends with the last applied event": 0 < count == state.last_event - head.last,
        "no more is charged and refunded than was reserved": ledger.charged_total + ledger.refunded_total
        <= ledger.reserved_total,
        "every lease has a job": len(leases.by_id) == len(leases.by_job) <= state.queue.depth,
        "every submission has a lease": len(state.submissions) <= len(leases.by_id),
    }
    if broken := [name for name, holds in checks.items() if not holds]:
        raise Corrupt("ENG-001", f"does not hold before batch {head.number + 1}: {'; '.join(broken)}", _REPORT)


_REPORT: Final = "this is a fault of Holdfast: nothing wrong was stored; report it, and start the node again"
