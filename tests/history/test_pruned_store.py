"""A store whose rows retention has deleted: it passes the check, and export and rebuild still work."""

from __future__ import annotations

import pytest
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.tables import SimulatedTables
from tests.simulation.world import SimulatedFiles
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import PAYLOAD_TAG, JournalHead, make_payload
from holdfast.core.retention.model import Pass
from holdfast.core.state_digest import digest
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.check import check
from holdfast.history.export_import import ExportManifest, export_journal, import_journal
from holdfast.history.full_journal import FullJournal
from holdfast.history.rebuild import rebuild

OUTPUTS = (b"small one", b"small two", b"large" * 300, b"small one")


def journal_on(disk: Disk, archive: SimulatedFiles | None = None) -> FullJournal:
    return FullJournal(SimulatedJournal(disk, ignores_lock=True), archive or SimulatedFiles())


async def aged_node(days: int = 3) -> RetentionNode:
    home = RetentionNode(policy())
    await home.open_with_provider()
    for output in OUTPUTS:
        await home.resolve(output)
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(days)
    return home


async def bad(home: RetentionNode) -> dict[str, str]:
    found = await check(journal_on(home.world.disk), home.world.tables, home.world.files, home.world.policy)
    return {each.name: each.message for each in found if not each.is_good}


@pytest.mark.rule("RET-002", "ENG-004", "ENG-007")
@pytest.mark.parametrize("passes", [[Pass.HOT], [Pass.HOT, Pass.WARM], [Pass.HOT, Pass.WARM, Pass.RECORDS]])
async def test_a_store_without_what_was_deleted_is_sound(passes: list[Pass]) -> None:
    home = await aged_node()
    await home.collector.run_passes(passes)
    await home.engine.wait_tables()
    assert await bad(home) == {}
    found = await check(journal_on(home.world.disk), home.world.tables, home.world.files, home.world.policy)
    (payloads,) = [each.message for each in found if each.name == "payloads"]
    assert payloads == "0 large payloads, all stored; 3 outputs were dropped by retention"


@pytest.mark.rule("ENG-007")
async def test_hot_bytes_that_are_gone_without_a_deletion_are_named() -> None:
    home = await aged_node()
    await home.engine.wait_tables()
    lost, _ = make_payload(OUTPUTS[0], 0)
    home.world.disk.attachments = {
        key: raw for key, raw in home.world.disk.attachments.items() if key[1] != lost.digest
    }
    found = await bad(home)
    assert set(found) == {"payloads"}
    assert found["payloads"].startswith("2 of 3 large payloads: the hot bytes of event")


@pytest.mark.rule("ENG-004", "RET-002")
async def test_a_row_that_should_be_gone_is_found_and_a_rebuild_leaves_it_away() -> None:
    home = await aged_node()
    await home.engine.wait_tables()
    row = next(iter(home.world.tables.rows["result"].values()))
    await home.collector.run_passes()
    await home.engine.wait_tables()
    home.world.tables.rows["result"][row[0]] = row
    assert "1 not in the journal" in (await bad(home))["tables"]
    await home.engine.stop()
    await rebuild(journal_on(home.world.disk), home.world.tables, home.world.files, home.world.policy)
    assert home.world.tables.rows["result"] == {}
    assert len(home.world.tables.rows["tombstone"]) == len(OUTPUTS)
    assert await bad(home) == {}


@pytest.mark.rule("ENG-003", "ENG-004")
async def test_a_snapshot_and_the_journal_after_it_give_the_same_retention() -> None:
    home = await aged_node()
    await home.collector.run_passes([Pass.HOT])
    await home.engine.wait_tables()
    await snapshot_files.make(home.world.files, home.engine.journal, home.world.policy)
    await home.collector.run_passes()
    await home.engine.wait_tables()
    assert digest(await home.world.recovered()) == digest(home.engine.undurable_state)


@pytest.mark.rule("ENG-003", "RET-002")
@pytest.mark.parametrize("when", ["before", "while", "after"])
async def test_an_export_is_whole_whether_rows_went_before_while_or_after_it(when: str) -> None:
    home = await aged_node()
    folder = SimulatedFiles()
    journal = journal_on(home.world.disk)
    if when == "before":
        await home.collector.run_passes()
    if when == "while":  # the rows are gone before they are read, the event that says so comes after the export's end
        end = await journal.tip()
        await home.collector.run_passes()
        journal.tip = lambda: _as(end)  # type: ignore[method-assign]
    manifest = await export_journal(journal, folder, home.world.policy)
    assert isinstance(manifest, ExportManifest)
    if when == "after":
        await home.collector.run_passes()
        assert isinstance(await export_journal(journal_on(home.world.disk), folder, home.world.policy), ExportManifest)
    disk = Disk()
    assert isinstance(await import_journal(folder, journal_on(disk), home.world.policy), ExportManifest)
    state = (await recover(journal_on(disk), SimulatedTables(), SimulatedFiles(), home.world.policy)).state
    if when != "while":
        assert digest(state) == digest(home.engine.undurable_state)


async def _as(value: JournalHead) -> JournalHead:
    return value


@pytest.mark.rule("ENG-007")
async def test_hot_bytes_that_were_altered_are_not_imported() -> None:
    home = await aged_node()
    key = next(iter(home.world.disk.attachments))
    home.world.disk.attachments[key] = b"altered"
    assert H(PAYLOAD_TAG, b"altered") != key[1]
    folder = SimulatedFiles()
    await export_journal(journal_on(home.world.disk), folder, home.world.policy)
    with pytest.raises(Corrupt, match="damaged"):
        await import_journal(folder, journal_on(Disk()), home.world.policy)
