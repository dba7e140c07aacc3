"""The check reads every output: a damaged one and a missing one are named, one that retention dropped is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.adapters.sqlite.small_blobs import FILE_NAME
from holdfast.adapters.warm_store import WarmStore
from holdfast.core.result import result_digest
from holdfast.history.check import CheckResult, check
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Blobs

pytestmark = pytest.mark.rule("TIER-001")
LARGE = bytes(range(100))


async def check_outputs(node: RetentionNode, blobs: Blobs | None = None) -> CheckResult:
    world = node.world
    await node.engine.wait_tables()
    journal = FullJournal(SimulatedJournal(world.disk, ignores_lock=True), SimulatedFiles())
    results = await check(journal, world.tables, world.files, world.policy, blobs=blobs or node.blobs)
    (outputs,) = [each for each in results if each.name == "outputs"]
    return outputs


async def test_outputs_that_are_held_and_undamaged_pass() -> None:
    node = RetentionNode(policy())
    await node.open_with_provider()
    for number in range(3):
        await node.resolve(LARGE + bytes([number]))
    found = await check_outputs(node)
    assert (found.is_good, found.message) == (True, f"3 outputs of {3 * 101} bytes, all undamaged")
    await node.kill()


async def test_a_damaged_and_a_missing_output_are_named() -> None:
    node = RetentionNode(policy())
    await node.open_with_provider()
    for number in range(3):
        await node.resolve(LARGE + bytes([number]))
    rotten, lost = result_digest(LARGE + b"\x00"), result_digest(LARGE + b"\x02")
    node.blobs.held[rotten] = b"rotten"
    del node.blobs.held[lost]
    found = await check_outputs(node)
    assert (found.is_good, found.message) == (False, f"1 damaged: {rotten.hex()}; 1 missing: {lost.hex()}")
    assert "backup" in found.hint
    await node.kill()


async def test_an_output_that_retention_dropped_is_not_missing() -> None:
    node = RetentionNode(policy())
    await node.open_with_provider()
    await node.resolve(LARGE, seals=1)
    await node.archive_all()
    await node.pass_days(2)
    await node.collector.resume_deletes()
    await node.collector.run_passes()
    assert node.blobs.held == {}
    assert (await check_outputs(node)).message == "0 outputs of 0 bytes, all undamaged"
    await node.kill()


async def test_a_file_of_small_outputs_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"rotten" * 1_000)
    node = RetentionNode(policy())
    await node.open_with_provider()
    found = await check_outputs(node, WarmStore(tmp_path))
    assert not found.is_good
    assert FILE_NAME in found.message
    await node.kill()
