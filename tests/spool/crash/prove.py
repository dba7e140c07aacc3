"""`python -m tests.spool.crash.prove SETUP`: walks until a law does not hold and says which; 0 where all of them do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from tests.spool.crash.campaign import ROTTEN, SETUPS, plan, steps
from tests.spool.crash.explore import Explorer
from tests.spool.crash.laws import Broken
from tests.spool.crash.life import Setup
from tests.spool.crash.rot import Rot


def _walk(setup: Setup) -> Iterator[tuple[str, Callable[[], object]]]:
    rot = Rot(setup, 16)
    yield from steps(Explorer(setup, 1), plan(setup, full=False))
    for word in ROTTEN:
        yield f"damage in {word}", partial(rot.damaged, word)


def main() -> int:
    for where, step in _walk(SETUPS[sys.argv[1]]):
        try:
            step()
        except Broken as broken:
            print(f"{broken.law} | {where}: {broken.says}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
