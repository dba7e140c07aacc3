"""`python -m tests.spool.crash.prove "plain: crashes in oE"`: walks one history and says which law does not hold."""

from __future__ import annotations

import sys

from tests.spool.crash.campaign import SETUPS
from tests.spool.crash.explore import Explorer
from tests.spool.crash.laws import Broken
from tests.spool.crash.rot import Rot


def main() -> int:
    """0 where all laws hold."""
    name, _, what = sys.argv[1].partition(": ")
    kind, _, word = what.partition(" in ")
    setup = SETUPS[name]
    walks = {
        "crashes": Explorer(setup, 1).history,
        "faults": Explorer(setup, 1).faults,
        "damage": Rot(setup, 16).damaged,
    }
    try:
        walks[kind](word)
    except Broken as broken:
        print(f"{broken.law}: {broken.says}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
