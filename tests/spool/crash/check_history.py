"""`python -m tests.spool.crash.check_history "plain: crashes in oE"`: names the invariant that one history breaks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from tests.spool.crash.campaign import SETUPS
from tests.spool.crash.corruption import Corruption
from tests.spool.crash.explore import Explorer
from tests.spool.crash.invariants import InvariantBroken


def run_walk(walk: str) -> InvariantBroken | None:
    """Up to the first invariant that does not hold; None where all do."""
    name, _, what = walk.partition(": ")
    kind, _, word = what.partition(" in ")
    setup = SETUPS[name]
    walks: dict[str, Callable[[str], object]] = {
        "crashes": Explorer(setup, 1).explore,
        "faults": Explorer(setup, 1).faults,
        "damage": partial(Corruption(setup).damaged, every=16),
    }
    try:
        walks[kind](word)
    except InvariantBroken as broken:
        return broken
    return None


if __name__ == "__main__":
    if broken := run_walk(sys.argv[1]):
        sys.exit(str(broken))
