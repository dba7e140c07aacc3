"""`python -m tests.spool.crash.prove`: walks until a law does not hold and says which; 0 where all of them do."""

from __future__ import annotations

import sys

from tests.spool.crash.campaign import ROTTEN, SETUPS, plan, steps
from tests.spool.crash.explore import Explorer
from tests.spool.crash.laws import Broken
from tests.spool.crash.rot import Rot


def main() -> int:
    """All setups take turns, short histories first: most faults are seen within a second."""
    walks = [(setup, steps(Explorer(setup, 1), plan(setup, full=False))) for setup in SETUPS.values()]
    damages = [(setup, Rot(setup, 16)) for setup in SETUPS.values()]
    for number in range(10_000):
        for setup, walk in list(walks):
            for says, step in (found for found in [next(walk, None)] if found):
                _try(f"{setup.name}, {says}", step)
        for setup, rot in damages[:3]:
            if number < len(ROTTEN):
                _try(f"{setup.name}, damage in {ROTTEN[number]}", lambda rot=rot: rot.damaged(ROTTEN[number]))
    return 0


def _try(where: str, step: object) -> None:
    assert callable(step)
    try:
        step()
    except Broken as broken:
        print(f"{broken.law} | {where}: {broken.says}")
        sys.exit(1)
    except Exception as fault:
        print(f"it does not fall over | {where}: {fault!r}")
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
