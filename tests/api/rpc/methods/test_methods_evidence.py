"""Evidence asked for at the doors: sessions with their marks, records byte for byte, letters, and what is pruned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.evidence.retrovue_sender import RetrovueSender
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, EvidenceStreamDriver, agent_node
from tests.simulation.world import DEVELOPMENT, World

from holdfast.api.http.metrics.requests import HttpMetrics
from holdfast.api.node_access import LOCAL, RpcCall
from holdfast.api.rpc.methods import METHODS, evidence
from holdfast.core.base.errors import Refused
from holdfast.core.evidence.messages import PruneEvidence
from holdfast.core.policy import EvidencePolicy, UnstakedEvidence
from holdfast.engine import queries
from holdfast.workers.evidence_pruner import EvidencePruner

KEPT_A_DAY = msgspec.structs.replace(
    DEVELOPMENT, evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, retain_days=1, prune_rows_max=2)
)
DAY_MS = 86_400_000


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path, World(KEPT_A_DAY)) as node:
        yield node


@pytest.fixture
async def stream(node: AgentNode) -> EvidenceStreamDriver:
    oak = AgentDriver(node)
    await oak.register()
    return await oak.open_evidence(last_sequence_emitted=12)


async def ask(node: AgentNode, method: str, **told: Any) -> Any:
    await node.engine.wait_tables()
    asked = METHODS[method]
    return await asked.handle(node.access, RpcCall(method, LOCAL), asked.params(**told))


async def refused(node: AgentNode, method: str, **told: Any) -> Refused:
    no = await ask(node, method, **told)
    assert isinstance(no, Refused), no
    return no


@pytest.mark.rule("EVD-001", "RPC-001")
async def test_sessions_are_listed_with_watermarks_lag_and_end(node: AgentNode, stream: EvidenceStreamDriver) -> None:
    await stream.send_and_ack(1, stream.progress_lines(1, 5))
    await (air := await RetrovueSender(node).connect_with_hello()).send(
        RetrovueSender(node).message(1, "channel_terminated")
    )
    await air.acks_until(1)
    listed = await ask(node, "evidence.listSessions")
    ours = next(each for each in listed.sessions if each.channel == stream.channel)
    assert (ours.acked, ours.lag, ours.streams, ours.is_final, ours.owner) == (5, 7, 1, False, "")
    older = next(each for each in listed.sessions if each.channel == "classic-1")
    assert (older.acked, older.lag, older.is_final, older.ending, older.owner) == (
        1,
        0,
        True,
        "TERMINATED",
        "classic-1",
    )
    one = await ask(node, "evidence.listSessions", channel="classic-1", limit=1)
    assert [each.session for each in one.sessions] == ["PS-1"]
    rest = await ask(node, "evidence.listSessions", channel="classic-1", limit=1, cursor=one.next_cursor)
    assert (rest.sessions, rest.next_cursor) == ([], None)
    stream.call.cancel()
    air.call.cancel()


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(
    ("after", "limit", "first", "last"), [(None, 100, 1, 30), (0, 3, 1, 3), (10, 7, 11, 17), (29, 9, 30, 30)]
)
async def test_records_come_back_byte_for_byte_in_pages(
    node: AgentNode, stream: EvidenceStreamDriver, after: int | None, limit: int, first: int, last: int
) -> None:
    lines = stream.progress_lines(1, 30)
    for at in range(0, 30, 4):
        await stream.send_and_ack(at + 1, lines[at : at + 4])
    told = {"channel": stream.channel, "session": "s1", "after": after, "limit": limit}
    found = await ask(node, "evidence.listRecords", **told)
    assert (found.first, found.acked) == (first, 30)
    assert [line.encode() for line in found.lines] == lines[first - 1 : last]


async def test_what_is_not_there_is_named(node: AgentNode, stream: EvidenceStreamDriver) -> None:
    await stream.send_and_ack(1, stream.progress_lines(1, 1))
    assert (await refused(node, "evidence.listRecords", channel="c", session="s")).name == "NotFound"
    assert (await refused(node, "evidence.listRecords", channel="c", session="s", limit=0)).name == "InvalidParams"
    assert (await refused(node, "evidence.listSessions", limit=1_001)).name == "InvalidParams"
    assert (await refused(node, "evidence.listDeadLetters", limit=0)).name == "InvalidParams"
    assert (await refused(node, "evidence.getDeadLetter", event=1)).name == "NotFound"
    assert (await refused(node, "evidence.resolveDeadLetter", event=1)).name == "NotFound"
    found = await ask(node, "evidence.listRecords", channel=stream.channel, session="s1", after=1)
    assert found.lines == []


async def test_large_records_come_in_smaller_pages(node: AgentNode, stream: EvidenceStreamDriver) -> None:
    lines = stream.lines(1, *(("PROGRESS", {"text": "x" * 300_000}) for _ in range(3)))
    for sequence, line in enumerate(lines, start=1):
        await stream.send_and_ack(sequence, [line])
    found = await ask(node, "evidence.listRecords", channel=stream.channel, session="s1")
    assert [line.encode() for line in found.lines] == lines[:1]


@pytest.mark.rule("EVD-007")
async def test_dead_letters_are_listed_shown_and_filtered(node: AgentNode, stream: EvidenceStreamDriver) -> None:
    await stream.send_and_ack(1, [b"one", b"two", b"x" * 9_000])
    listed: queries.Page = await ask(node, "evidence.listDeadLetters", channel=stream.channel)
    assert [(each.sequence, each.status) for each in listed.rows] == [(1, "WAITING"), (2, "WAITING"), (3, "WAITING")]
    first, _, third = (each.event for each in listed.rows)
    assert (await ask(node, "evidence.getDeadLetter", event=third)).raw == b"x" * 9_000
    await ask(node, "evidence.resolveDeadLetter", event=first, note="seen")
    left = await ask(node, "evidence.listDeadLetters")
    assert [each.sequence for each in left.rows] == [2, 3]
    every = await ask(node, "evidence.listDeadLetters", status=None)
    assert [each.status for each in every.rows] == ["SETTLED", "WAITING", "WAITING"]
    shown = await ask(node, "evidence.getDeadLetter", event=first)
    assert (shown.dead_letter.note, shown.raw) == ("seen", b"one")


# ------------------------------------------------------------------------------------------------ pruning


@pytest.mark.rule("EVD-008")
async def test_a_final_session_is_pruned_in_bounded_runs_and_its_watermark_stays(
    node: AgentNode, stream: EvidenceStreamDriver
) -> None:
    lines = stream.progress_lines(1, 9)
    for at in range(0, 9, 2):
        await stream.send_and_ack(at + 1, lines[at : at + 2])
    weeder = EvidencePruner(node.engine)
    node.pass_time(DAY_MS)
    await weeder.run_once()
    assert weeder.pruned == 0, "it has no end"
    end = stream.lines(10, ("CHANNEL_TERMINATED", {}))
    await stream.send_and_ack(10, end)
    node.pass_time(DAY_MS - 1)
    await weeder.run_once()
    assert weeder.pruned == 0, "a day is not over"
    node.pass_time(1)
    await node.engine.wait_tables()
    await weeder.run_once()
    await node.engine.wait_tables()
    assert weeder.pruned == 10
    assert node.world.tables.rows["evidence"] == {}
    told = {"channel": stream.channel, "session": "s1"}
    found = await ask(node, "evidence.listRecords", **told)
    assert (found.lines, found.acked, found.pruned) == ([], 10, 10)
    assert (await refused(node, "evidence.listRecords", **told, after=3)).name == "EvidencePruned"
    assert await stream.send_and_ack(1, lines) == 10, "what comes again is known by its number"
    assert await stream.send_and_ack(11, stream.progress_lines(11, 11)) == 11
    found = await ask(node, "evidence.listRecords", **told)
    assert [line.encode() for line in found.lines] == stream.progress_lines(11, 11)


@pytest.mark.rule("EVD-008", "EVD-003")
async def test_pruning_under_an_open_stream_leaves_no_gap_for_it(node: AgentNode, stream: EvidenceStreamDriver) -> None:
    lines = [*stream.progress_lines(1, 4), *stream.lines(5, ("CHANNEL_TERMINATED", {}))]
    await stream.send_and_ack(1, lines[:2])
    await stream.send_and_ack(3, lines[2:])
    node.pass_time(DAY_MS)
    await node.engine.wait_tables()
    row = (await queries.page(node.engine, "evidence", {"channel": stream.channel}, 0, 1)).rows[0]
    await node.do(PruneEvidence(stream.channel, "s1", 2, (row.event,)))
    await node.engine.wait_tables()
    assert await stream.send_and_ack(1, lines) == 5


@pytest.mark.rule("EVD-008")
async def test_records_pruned_while_they_are_read_are_reported_as_pruned(
    node: AgentNode, stream: EvidenceStreamDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*stream.progress_lines(1, 4), *stream.lines(5, ("CHANNEL_TERMINATED", {}))]
    await stream.send_and_ack(1, lines[:2])
    await stream.send_and_ack(3, lines[2:])
    node.pass_time(DAY_MS)
    await node.engine.wait_tables()
    paged = queries.page

    async def overtaken(source: Any, table: str, *told: Any) -> Any:
        monkeypatch.setattr(queries, "page", paged)
        row = (await paged(source, table, {"channel": stream.channel}, 0, 1)).rows[0]
        await node.do(PruneEvidence(stream.channel, "s1", 2, (row.event,)))
        await node.engine.wait_tables()
        return await paged(source, table, *told)

    monkeypatch.setattr(queries, "page", overtaken)
    found = await ask(node, "evidence.listRecords", channel=stream.channel, session="s1")
    assert (found.first, found.pruned, [line.encode() for line in found.lines]) == (3, 2, lines[2:])


@pytest.mark.rule("EVD-008", "ENG-003")
async def test_what_was_pruned_stays_pruned_after_a_restart(tmp_path: Path) -> None:
    world = World(KEPT_A_DAY)
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node)
        await oak.register()
        stream = await oak.open_evidence()
        await stream.send_and_ack(1, stream.lines(1, ("PROGRESS", {}), ("CHANNEL_TERMINATED", {})))
        await node.engine.wait_tables()
        node.pass_time(DAY_MS)
        await EvidencePruner(node.engine).run_once()
    state = await world.recovered()
    assert [(mark.acked, mark.pruned) for mark in state.watermarks.values()] == [(2, 2)]


async def test_evidence_is_kept_for_ever_unless_policy_says_otherwise(tmp_path: Path) -> None:
    async with agent_node(tmp_path) as node:
        oak = AgentDriver(node)
        await oak.register()
        stream = await oak.open_evidence()
        await stream.send_and_ack(1, stream.lines(1, ("CHANNEL_TERMINATED", {})))
        node.pass_time(10_000 * DAY_MS)
        await EvidencePruner(node.engine).run_once()
        assert len(await stream.stored_lines()) == 1


# ------------------------------------------------------------------------------------------------ counting


@pytest.mark.rule("OBS-001")
async def test_evidence_is_counted_for_whoever_watches(node: AgentNode, stream: EvidenceStreamDriver) -> None:
    await stream.send_and_ack(1, [*stream.progress_lines(1, 3), b"poison"])
    await stream.send_and_ack(1, stream.progress_lines(1, 2))
    await stream.send_and_refusal(9, stream.progress_lines(9, 9))
    text = HttpMetrics(node.access, node.world.clock).text().decode()
    told = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("holdfast_evidence"))
    counted = {
        name: float(told[f"holdfast_evidence_{name}_total"]) for name in ("records", "duplicates", "gaps", "malformed")
    }
    assert counted == {"records": 4, "duplicates": 2, "gaps": 1, "malformed": 1}
    assert float(told["holdfast_evidence_dead_letters"]) == 1
    assert float(told["holdfast_evidence_open_streams"]) == 1
    assert float(told['holdfast_evidence_lag_records{at="max"}']) == 8
    assert float(told['holdfast_evidence_batch_records_bucket{le="5"}']) == 1
    assert float(told["holdfast_evidence_batch_records_sum"]) == 4
    assert not any("channel=" in name for name in told)


async def test_who_asks_for_evidence_is_described(node: AgentNode) -> None:
    assert set(evidence.METHODS) <= set(METHODS)
