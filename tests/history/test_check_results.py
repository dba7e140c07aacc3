"""The check and results: a nullifier for two tasks is named, even where the hash chain is intact (RES-001)."""

from __future__ import annotations

import msgspec
import pytest
from tests.api.result_node import ResultNode, result_node
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles

from holdfast.core import journal_codec
from holdfast.core.base.event import head_of
from holdfast.core.proof.messages import ProofAccepted
from holdfast.history.check import CheckResult, check
from holdfast.history.full_journal import FullJournal

pytestmark = pytest.mark.rule("RES-001", "ENG-005")


async def check_by_name(here: ResultNode) -> dict[str, CheckResult]:
    world = here.world
    journal = FullJournal(SimulatedJournal(world.disk, ignores_lock=True), SimulatedFiles())
    return {each.name: each for each in await check(journal, world.tables, world.files, world.policy)}


async def test_one_to_one_links_pass_the_check() -> None:
    async with result_node() as here:
        for _ in range(3):
            await here.resolved()
        await here.engine.wait_tables()
        assert all(each.is_good for each in (await check_by_name(here)).values())


async def test_a_nullifier_that_two_tasks_have_is_named() -> None:
    async with result_node() as here:
        first, _ = await here.resolved(), await here.resolved()
        nullifier = here.engine.undurable_state.results[first].proof_nullifier
        await here.engine.wait_tables()
        batches = here.world.disk.batches
        (told,) = journal_codec.unpack(batches[-1])
        assert isinstance(told, ProofAccepted)
        forged = msgspec.structs.replace(told, nullifier=nullifier)
        batches[-1] = journal_codec.pack(head_of(batches[-2]), batches[-1].term, [forged], batches[-1].time_ms)
        here.world.tables.at = head_of(batches[-1])
        ids = (await check_by_name(here))["ids"]
        assert not ids.is_good
        assert ids.message.startswith(f"1 claimed more than once: claim n:{nullifier.hex()}")
