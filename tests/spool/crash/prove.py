"""`python -m tests.spool.crash.prove "plain: crashes in oE"`: walks one history and says which law does not hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from tests.spool.crash.campaign import SETUPS
from tests.spool.crash.explore import Explorer
from tests.spool.crash.laws import Broken
from tests.spool.crash.rot import Rot


def walked(walk: str) -> Broken | None:
    """Up to the first law that does not hold; None where all do."""
    name, _, what = walk.partition(": ")
    kind, _, word = what.partition(" in ")
    setup = SETUPS[name]
    walks: dict[str, Callable[[str], object]] = {
        "crashes": Explorer(setup, 1).history,
        "faults": Explorer(setup, 1).faults,
        "damage": partial(Rot(setup).damaged, every=16),
    }
    try:
        walks[kind](word)
    except Broken as broken:
        return broken
    return None


if __name__ == "__main__":
    if broken := walked(sys.argv[1]):
        sys.exit(str(broken))
