"""A repeatable run of the engine with every kind of event: several terms, rolled-back and final blocks, a payload.

Owners follow one another and live through it by commands, so everything in the journal could have happened.
`test_pinned_run` compares the run of the owners of version 0.3; a new kind of event is added to `NewestOwner`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.core.commands import some_id
from tests.golden.later_owner import LaterOwner
from tests.golden.newest_owner import NewestOwner
from tests.golden.working_owner import OwnerRun, WorkingOwner
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import DEVELOPMENT, SimulatedFiles, World

import holdfast.history.archive_segments as segments_module
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, Height
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Refund, Reserve, RollBackSettlements
from holdfast.history.export_import import ExportManifest, export_journal
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Files

ALICE, BOB, CAROL = AccountId("alice"), AccountId("bob"), AccountId("carol")
BATCHES_PER_SEGMENT: Final = 10

COMMANDS_BY_OWNER: Final[tuple[tuple[Command, ...], ...]] = (
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
        RollBackSettlements(Height(3)),
        Refund(some_id(12), Height(5)),
        Charge(some_id(13), Height(6), BOB, Amount(103)),
        Finalize(Height(5)),
        RollBackSettlements(Height(5)),
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
"""The commands of each of the first owners, in order."""
LIVES_OF_0_3: Final[dict[str, type[OwnerRun]]] = {"owner-at-work": WorkingOwner, "owner-of-later": LaterOwner}
LIVES: Final = LIVES_OF_0_3 | {"owner-of-now": NewestOwner}
"""The owners after them, by name."""


async def make(files: Files, lives: dict[str, type[OwnerRun]] = LIVES) -> ExportManifest:
    """Run all owners and export the journal."""
    world = World()
    for number, commands in enumerate(COMMANDS_BY_OWNER, start=1):
        world.clock.wall += 1_000_000
        engine = world.engine(owner=f"owner-{number}")
        await engine.start()
        await _submit_all(engine.submit, commands)
        await engine.stop()
    for owner, life in lives.items():
        world.clock.wall += 1_000_000_000  # later than everything the owner before lived through
        engine = world.engine(owner=owner)
        await engine.start()
        await life(world, engine).live()
        await engine.stop()
    length, segments_module.BATCHES_MAX = segments_module.BATCHES_MAX, BATCHES_PER_SEGMENT  # type: ignore[misc]
    try:
        done = await export_journal(FullJournal(SimulatedJournal(world.disk), SimulatedFiles()), files, DEVELOPMENT)
    finally:
        segments_module.BATCHES_MAX = length  # type: ignore[misc]
    assert isinstance(done, ExportManifest), done
    return done


async def _submit_all(submit, commands: Iterable[Command]) -> None:  # type: ignore[no-untyped-def]
    for command in commands:
        outcome = await submit(command)
        assert not isinstance(outcome, Refused), (command, outcome)
