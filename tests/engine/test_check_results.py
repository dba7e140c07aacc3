"""The check and results: a nullifier for two tasks is named, however well the chain of batches fits (RES-001)."""

from __future__ import annotations

import msgspec
import pytest
from tests.doors.results import Shop, shop
from tests.simulated.journal import SimulatedJournal
from tests.simulated.world import SimulatedFiles

from holdfast.core import law
from holdfast.core.event import tip_of
from holdfast.core.proof.acts import ProofAccepted
from holdfast.engine.check import Finding, check
from holdfast.engine.longjournal import LongJournal

pytestmark = pytest.mark.rule("RES-001", "ENG-005")


async def looked_at(here: Shop) -> dict[str, Finding]:
    world = here.world
    journal = LongJournal(SimulatedJournal(world.disk, ignores_lock=True), SimulatedFiles())
    return {each.name: each for each in await check(journal, world.tables, world.files, world.policy)}


async def test_one_to_one_links_pass_the_check() -> None:
    async with shop() as here:
        for _ in range(3):
            await here.resolved()
        await here.engine.projector.drain()
        assert all(each.is_good for each in (await looked_at(here)).values())


async def test_a_nullifier_that_two_tasks_have_is_named() -> None:
    async with shop() as here:
        first, _ = await here.resolved(), await here.resolved()
        nullifier = here.engine.state.results[first].proof_nullifier
        await here.engine.projector.drain()
        batches = here.world.disk.batches
        (told,) = law.unpack(batches[-1])
        assert isinstance(told, ProofAccepted)
        forged = msgspec.structs.replace(told, nullifier=nullifier)
        batches[-1] = law.pack(tip_of(batches[-2]), batches[-1].epoch, [forged], batches[-1].time_ms)
        here.world.tables.at = tip_of(batches[-1])
        ids = (await looked_at(here))["ids"]
        assert not ids.is_good
        assert ids.says.startswith(f"1 claimed more than once: claim n:{nullifier.hex()}")
