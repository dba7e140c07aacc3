"""Makes the golden journal of this version: every kind of event, several epochs, undone and final blocks, a payload.

    python -m tests.golden.make

A golden journal belongs to a release and is never made again after it: that a later version still folds it to the same
state is the point. A new kind of event needs a new golden journal, under the version that brings it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.core.books import some_id
from tests.golden.later import Later
from tests.golden.work import Worked
from tests.simulated.journal import SimulatedJournal
from tests.simulated.world import DEVELOPMENT, SimulatedFiles, World

import holdfast.engine.chapters as chapters_module
from holdfast import __version__
from holdfast.adapters.files import Folder
from holdfast.core.escrow.acts import Charge, Finalize, Mint, Refund, Reserve, RollBack
from holdfast.core.law import Command
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount, Height
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.transfer import Manifest, export
from holdfast.ports import Files

HERE: Final = Path(__file__).parent
ALICE, BOB, CAROL = AccountId("alice"), AccountId("bob"), AccountId("carol")
BATCHES_A_CHAPTER: Final = 10

LIVES: Final[tuple[tuple[Command, ...], ...]] = (
    (
        Mint(some_id(1), ALICE, Amount(1_000_000)),
        Mint(some_id(2), BOB, Amount(2**62)),
        *(Reserve(some_id(10 + n), ALICE, Amount(100 + n)) for n in range(8)),
        Reserve(some_id(30), BOB, Amount(5), b"a small memo"),
        Reserve(some_id(31), BOB, Amount(5), b"a memo too large to lie in its event. " * 200),
        Charge(some_id(10), Height(3), CAROL, Amount(60)),
        Charge(some_id(11), Height(3), CAROL, Amount(0)),
        Refund(some_id(12), Height(4)),
    ),
    (
        RollBack(Height(3)),
        Refund(some_id(12), Height(5)),
        Charge(some_id(13), Height(6), BOB, Amount(103)),
        Finalize(Height(5)),
        RollBack(Height(5)),
        Charge(some_id(13), Height(7), CAROL, Amount(1)),
    ),
    (
        Reserve(some_id(40), CAROL, Amount(7), b"money that was earned"),
        Charge(some_id(30), Height(8), ALICE, Amount(5)),
        Charge(some_id(31), Height(8), CAROL, Amount(2)),
        Finalize(Height(8)),
        Charge(some_id(14), Height(9), BOB, Amount(50)),
        Mint(some_id(3), CAROL, Amount(1)),
    ),
)
"""What each owner, one after the other, was asked."""


async def make(files: Files) -> Manifest:
    """Live through it, and export."""
    world = World()
    for number, commands in enumerate(LIVES, start=1):
        world.clock.wall += 1_000_000
        engine = world.engine(owner=f"owner-{number}")
        await engine.start()
        await _live(engine.submit, commands)
        await engine.stop()
    for owner, life in (("owner-at-work", Worked), ("owner-of-later", Later)):
        world.clock.wall += 1_000_000_000  # beyond all that the one before lived through
        engine = world.engine(owner=owner)
        await engine.start()
        await life(world, engine).live()
        await engine.stop()
    length, chapters_module.BATCHES_MAX = chapters_module.BATCHES_MAX, BATCHES_A_CHAPTER  # type: ignore[misc]
    try:
        done = await export(LongJournal(SimulatedJournal(world.disk), SimulatedFiles()), files, DEVELOPMENT)
    finally:
        chapters_module.BATCHES_MAX = length  # type: ignore[misc]
    assert isinstance(done, Manifest), done
    return done


async def _live(submit, commands: Iterable[Command]) -> None:  # type: ignore[no-untyped-def]
    for command in commands:
        outcome = await submit(command)
        assert not isinstance(outcome, Refused), (command, outcome)


def main() -> None:
    """Write it where it belongs; what lies there already is history."""
    target = HERE / f"v{__version__}"
    files = SimulatedFiles()
    manifest = asyncio.run(make(files))
    if target.exists():
        raise SystemExit(f"{target} is there already: delete it if this version was never released")
    for name, raw in files.files.items():
        if not name.endswith(".snapshot"):  # snapshots can always be made again, their format is no promise
            asyncio.run(Folder(target).replace(name, raw))
    print(f"{target}: {manifest}")


if __name__ == "__main__":
    main()
