"""The as-run writer: every record once in the log of its channel, whatever is pruned or damaged meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.api.evidence.retrovue_sender import RetrovueSender
from tests.api.grpc.agent_driver import AgentNode, agent_node
from tests.simulation.world import DEVELOPMENT, SimulatedFiles, World

from holdfast.api.evidence.reader import read_range
from holdfast.core.evidence.messages import PruneEvidence
from holdfast.core.evidence.model import SessionWatermark
from holdfast.core.policy import EvidencePolicy, UnstakedEvidence
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.workers.as_run_writer import AsRunWriter

pytestmark = pytest.mark.rule("EVD-009")
AT_ONCE = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, retain_days=0))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path, World(AT_ONCE)) as node:
        yield node


async def store_session(node: AgentNode, channel: str) -> None:
    """A session of four records in several rows, with its end."""
    air = RetrovueSender(node, channel)
    stream = await air.connect_with_hello()
    for first in (1, 3):
        await stream.send(*air.messages(first, first + 1))
        await stream.acks_until(first + 1)
    await stream.send(air.message(5, "channel_terminated"))
    await stream.acks_until(5)
    await node.engine.wait_tables()


async def prune_first(node: AgentNode, channel: str) -> None:
    page = await queries.page(node.engine, "evidence", {"channel": channel}, 0, 1)
    row = page.rows[0]
    outcome = await node.engine.submit(PruneEvidence(channel, row.session, row.last_sequence, (row.event,)))
    assert isinstance(outcome, Accepted)
    await node.engine.wait_tables()


def written(files: SimulatedFiles) -> list[int]:
    raw = b"".join(content for name, content in sorted(files.files.items()) if name.endswith(".jsonl"))
    return sorted(msgspec.json.decode(line)["sequence"] for line in raw.splitlines())


@pytest.mark.rule("EVD-008")
async def test_records_pruned_while_they_are_read_leave_no_gap_in_the_rest(node: AgentNode) -> None:
    await store_session(node, "classic-1")
    asked = list[int]()

    async def lines(engine: Engine, mark: SessionWatermark, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        if not asked:
            await prune_first(node, "classic-1")  # the pruner was faster
        asked.append(first)
        async for found in read_range(engine, mark, first, last):
            yield found

    folders: dict[str, SimulatedFiles] = defaultdict(SimulatedFiles)
    await AsRunWriter(node.engine, folders.__getitem__, lines).run_once()
    first, again = asked
    assert 1 == first < again < 4
    assert written(folders["classic-1"]) == list(range(again, 6))


@pytest.mark.parametrize(
    ("name", "raw"), [("written.json", b"{"), ("1970-01-01.asrun.jsonl", b"a remark\n"), ("1970-01-01.asrun", b"\xff")]
)
async def test_a_log_that_was_changed_does_not_stop_the_others(node: AgentNode, name: str, raw: bytes) -> None:
    folders: dict[str, SimulatedFiles] = defaultdict(SimulatedFiles)
    for channel in ("classic-1", "classic-2"):
        await store_session(node, channel)
    folders["classic-1"].files[name] = raw
    writer = AsRunWriter(node.engine, folders.__getitem__, read_range)
    await writer.run_once()
    assert folders["classic-1"].files[name] == raw
    assert written(folders["classic-2"]) == [1, 2, 3, 4, 5]
    del folders["classic-1"].files[name]
    await writer.run_once()
    assert written(folders["classic-1"]) == [1, 2, 3, 4, 5]
