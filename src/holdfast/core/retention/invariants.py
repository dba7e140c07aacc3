"""What must hold of retention after every event: passes follow each other and skip only what they reached (RET-002)."""

from __future__ import annotations

from itertools import pairwise

from holdfast.core.retention.model import HasRetention, Pass, pass_position


def broken_invariants(state: HasRetention) -> list[str]:
    positions = [pass_position(state, pass_) for pass_ in (Pass.HOT, Pass.WARM, Pass.RECORDS, Pass.AUDIT)]
    hot, warm, *_ = positions
    checks = {
        "no pass is ahead of the one before it": all(earlier >= later for earlier, later in pairwise(positions)),
        "no pass is ahead of the journal": hot <= state.last_event,
        "a pass skips only results that it reached": all(event <= hot for event in state.skipped_hot)
        and all(event <= warm for event in state.skipped_warm),
        "pending hot deletions are ranges that the pass reached": all(
            after < until <= hot for after, until in state.hot_deletes_pending.items()
        ),
        "pending warm deletions are of results that the pass reached": all(
            event <= warm for event in state.warm_deletes_pending.values()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]
