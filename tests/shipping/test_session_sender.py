"""Evidence on its way: nothing sent before it is spooled, replay above the node's mark, whatever is cut or lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import make_agent, running_agent, wait_until
from tests.agent.test_lease_executor import LEASE_RECORDS, make_gate

from holdfast.agent.runner import Agent
from holdfast.core.base.values import Kind
from holdfast.shipping.session_sender import SessionSender
from holdfast.spool.writer import Writer


async def wait_all_done(node: FakeNode, leases: list[bytes]) -> None:
    await wait_until(lambda: all(node.submissions[lease] for lease in leases), "every lease is handed in")
    await wait_until(lambda: all(node.record_types(lease)[-1:] == ["BLOCK_FENCE"] for lease in leases))


def live_sender(agent: Agent) -> SessionSender:
    live = agent.emitter._live
    assert live is not None
    return live


def check_complete(node: FakeNode) -> None:
    """No session has a gap, no lease was told twice, no record is there twice."""
    for lines in node.evidence.values():
        assert [json.loads(line)["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    uuids = [record["event_uuid"] for record in node.records()]
    assert len(set(uuids)) == len(uuids)
    assert set(node.delivered().values()) <= {1}
    assert all(count == 1 for count in node.submissions.values())


# ------------------------------------------------------------------------------------------------ spooled first


@pytest.mark.rule("SP-005")
async def test_a_record_is_on_disk_before_the_node_sees_it(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, unspooled = FakeNode.store_record, list[bytes]()

    def look(self: FakeNode, line: bytes, public: bytes) -> None:
        files = list((tmp_path / "spool").rglob("*.spool.jsonl"))
        if not any(line in file.read_bytes().split(b"\n") for file in files):
            unspooled.append(line)
        take(self, line, public)

    monkeypatch.setattr(FakeNode, "store_record", look)
    async with running_agent(node, tmp_path, slots=20):
        await wait_all_done(node, [node.offer(f"job {n}") for n in range(20)])
    assert unspooled == []


@pytest.mark.rule("SP-005")
async def test_while_the_disk_hangs_nothing_is_sent(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records lie in memory, numbered and encoded: that is not spooled."""
    monkeypatch.setattr(Writer, "_commit", lambda self: False)
    agent = make_agent(node, tmp_path)
    await agent.start()
    lease = node.offer("hello")
    await wait_until(lambda: lease in agent.leases.leases)
    await wait_until(lambda: agent.leases.leases[lease].outcome is not None, "the work is done")
    await wait_until(lambda: node.open_streams, "the stream of evidence is open")
    assert node.records_in == 0
    monkeypatch.undo()
    await wait_all_done(node, [lease])
    await agent.stop()


# ------------------------------------------------------------------------------------------------ cuts


async def wait_cut(node: FakeNode, agent: Agent) -> None:
    """What is told one by one does not arrive in one message, however slow the stream is."""
    while node.cut_evidence_after is not None:
        told = await agent.emitter.emit_spooled("PROGRESS", {})
        await wait_until(lambda: len(node.evidence.get(told.session, [])) >= told.sequence)  # noqa: B023


@pytest.mark.rule("EVD-001", "EVD-004")
@pytest.mark.parametrize("messages", [1, 2, 3])
async def test_streams_that_are_cut_again_and_again_lose_nothing(node: FakeNode, tmp_path: Path, messages: int) -> None:
    leases: list[bytes] = []
    async with running_agent(node, tmp_path, slots=20) as agent:
        for round_ in range(6):
            node.cut_evidence_after, node.cut_work_after = messages, messages + round_ % 3
            leases += [node.offer(f"{round_} {n}") for n in range(3)]
            await wait_cut(node, agent)
        node.cut_work_after = None
        await wait_all_done(node, [*leases, *await run_leases(node, agent, 1)])
        await wait_until(lambda: not agent.leases.leases)
        assert live_sender(agent)._backoff.failures == 0, "progress makes the next pause short again"
    check_complete(node)
    assert len(node.hellos) > 6


@pytest.mark.rule("EVD-001")
async def test_lost_acks_mean_that_records_come_again_and_count_once(node: FakeNode, tmp_path: Path) -> None:
    """The answer to the hello says what the node has: only what is above it is sent."""
    leases: list[bytes] = []
    async with running_agent(node, tmp_path, slots=10):
        for n in range(3):
            node.lose_acks = 1
            leases.append(node.offer(f"job {n}"))
            await wait_until(lambda: node.lose_acks == 0, "an ack was lost")
        await wait_all_done(node, leases)
    check_complete(node)
    assert node.duplicates == 0


@pytest.mark.rule("EVD-004")
async def test_what_the_next_hello_acks_is_progress_too(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path) as agent:
        node.lose_acks = 1
        await agent.emitter.emit_spooled("PROGRESS", {})
        await wait_until(lambda: node.lose_acks == 0, "its own ack was lost")
        await wait_until(lambda: live_sender(agent).is_delivered)
        assert live_sender(agent)._backoff.failures == 0, "the next pause is short again"


@pytest.mark.rule("EVD-001", "EVD-005")
async def test_work_goes_on_while_the_node_is_down_and_is_submitted_when_it_is_back(
    node: FakeNode, tmp_path: Path
) -> None:
    busy = make_gate()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}) as agent:
        lease = node.offer("hello", "gate")
        await wait_until(lambda: node.leases[lease].is_acked)
        await node.stop()
        busy.open.set()
        run = agent.leases.leases[lease]
        await wait_until(lambda: run.outcome_spooled_at is not None, "it is finished without the node")
        await node.start()
        await wait_all_done(node, [lease])
        await wait_until(lambda: not agent.leases.leases)
    check_complete(node)
    assert node.record_types(lease) == LEASE_RECORDS


async def test_a_restart_of_the_node_between_completion_and_verdict_ends_well(node: FakeNode, tmp_path: Path) -> None:
    node.is_judging = False
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        await wait_all_done(node, [lease])
        await node.stop()
        await node.start()
        await wait_until(lambda: node.connected)
        await wait_until(lambda: node.acts_of(lease), "the agent asks after it")
        assert list(agent.leases.leases) == [lease]
        node.send_verdict(lease)
        await wait_until(lambda: not agent.leases.leases)
    check_complete(node)


async def test_a_lease_that_ended_while_the_stream_was_closed_is_cleaned_up(node: FakeNode, tmp_path: Path) -> None:
    node.is_judging = False
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        await wait_all_done(node, [lease])
        await node.stop()
        node.leases[lease].ended_reason = "COMPLETED"
        await node.start()
        await wait_until(lambda: not agent.leases.leases)
    check_complete(node)


# ------------------------------------------------------------------------------------------------ the node's mark


async def run_leases(node: FakeNode, agent: Agent, count: int) -> list[bytes]:
    leases = [node.offer(f"job {n} {len(node.leases)}") for n in range(count)]
    await wait_all_done(node, leases)
    live = live_sender(agent)
    await wait_until(lambda: live.is_delivered)
    return leases


@pytest.mark.rule("SP-ACK-004")
async def test_a_node_that_acks_less_than_before_gets_the_rest_again(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path) as agent:
        leases = await run_leases(node, agent, 3)
        before = node.duplicates
        node.answer_hello = lambda mark: 2
        await node.stop()
        await node.start()
        await wait_until(lambda: node.duplicates - before == len(LEASE_RECORDS) * 3 - 2, "everything above its mark")
        node.answer_hello = lambda mark: mark
        leases += await run_leases(node, agent, 1)
    check_complete(node)


@pytest.mark.rule("SP-ACK-004")
async def test_a_watermark_below_what_is_kept_is_reported_and_not_passed_over(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path) as agent:
        await run_leases(node, agent, 3)
        live = live_sender(agent)
        await live.spool.compact()
        assert live.spool.first_available > 3
        node.answer_hello = lambda mark: 1
        sent = node.records_in
        await node.stop()
        await node.start()
        await wait_until(lambda: live.stuck_reason, "the gap is named")
        assert "SP-ACK-004" in live.stuck_reason
        assert node.records_in == sent
        node.answer_hello = lambda mark: mark
        await run_leases(node, agent, 1)
        assert live.stuck_reason == ""


@pytest.mark.rule("SP-ACK-004")
async def test_a_watermark_above_what_was_spooled_is_never_stored(node: FakeNode, tmp_path: Path) -> None:
    node.answer_hello = lambda mark: mark + 1_000
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        live = live_sender(agent)
        await wait_until(lambda: live.stuck_reason)
        assert "above the last spooled" in live.stuck_reason
        assert live.spool.acked_sequence == 0
        assert node.records_in == 0
        node.answer_hello = lambda mark: mark
        await wait_all_done(node, [lease])
    check_complete(node)


@pytest.mark.rule("SP-ACK-004")
async def test_an_ack_above_what_was_sent_breaks_the_stream_and_is_never_stored(node: FakeNode, tmp_path: Path) -> None:
    node.answer_records = lambda mark: mark + 1_000
    async with running_agent(node, tmp_path) as agent:
        live = live_sender(agent)
        for n in range(2):
            await agent.emitter.emit_spooled("PROGRESS", {"n": n})
            await wait_until(lambda: len(node.hellos) >= n + 2, "it connects again")  # noqa: B023
        assert live.spool.acked_sequence <= live.spool.spooled_sequence
        node.answer_records = lambda mark: mark
        await wait_all_done(node, [node.offer("hello")])
    acks = [file.read_text() for file in (tmp_path / "spool").rglob("*.ack")]
    assert not any("acked_sequence=10" in text for text in acks)
    check_complete(node)


async def test_an_ack_that_is_lower_than_the_last_changes_nothing(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, on_ack = list[int](), SessionSender.on_ack

    def noted(self: SessionSender, sequence: int) -> None:
        on_ack(self, sequence)
        heard.append(sequence)

    monkeypatch.setattr(SessionSender, "on_ack", noted)
    node.answer_records = lambda mark: mark - 1
    async with running_agent(node, tmp_path) as agent:
        await wait_all_done(node, [node.offer("hello")])
        live = live_sender(agent)
        await wait_until(lambda: live.spool.acked_sequence == len(LEASE_RECORDS) - 1)
        node.answer_records = lambda mark: 1
        await wait_all_done(node, [node.offer("other")])
        await wait_until(lambda: heard[-1] == 1, "it has heard of the lower one")
        assert live.spool.acked_sequence == len(LEASE_RECORDS) - 1
    check_complete(node)


# ------------------------------------------------------------------------------------------------ older sessions


async def abandon_session(node: FakeNode, tmp_path: Path, count: int) -> str:
    """A session that was not closed, with some records that were never sent; its name."""
    agent = make_agent(node, tmp_path)
    agent._assemble()
    await agent.emitter.open()
    for n in range(count):
        await agent.emitter.emit_spooled("PROGRESS", {"n": n})
    name = agent.emitter.live_session
    live = live_sender(agent)
    for each in [live, *agent.emitter.backlog.senders]:
        await each.spool.aclose()
    await agent._connection.close()
    return name


@pytest.mark.rule("EVD-004")
async def test_older_sessions_are_replayed_oldest_first_beside_the_live_one(node: FakeNode, tmp_path: Path) -> None:
    old = [await abandon_session(node, tmp_path, 3 + n) for n in range(3)]
    assert old == sorted(old)
    async with running_agent(node, tmp_path) as agent:
        lease = node.offer("hello")
        await wait_all_done(node, [lease])
        await wait_until(lambda: all(len(node.evidence.get(name, [])) == 3 + n for n, name in enumerate(old)))
        live = agent.emitter.live_session
    order = [hello.session_id for hello in node.hellos if hello.session_id != live]
    assert order == old
    assert live in {hello.session_id for hello in node.hellos}
    check_complete(node)


@pytest.mark.rule("EVD-004")
async def test_an_old_session_that_is_stuck_blocks_no_other(
    node: FakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck, good = await abandon_session(node, tmp_path, 3), await abandon_session(node, tmp_path, 4)
    file = tmp_path / "spool"
    path = next(file.rglob(f"{stuck}.spool.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"#" * (len(lines[1]) - 1) + b"\n" + lines[2])
    async with running_agent(node, tmp_path):
        lease = node.offer("hello")
        await wait_all_done(node, [lease])
        await wait_until(lambda: len(node.evidence.get(good, [])) == 4)
    assert len(node.evidence[stuck]) == 1, "up to the hole and no further"
    assert [hello.session_id for hello in node.hellos].count(stuck) == 1
    logged = capsys.readouterr()  # where to is a matter of the process's settings
    assert "SP-CRASH-002: record 2 is damaged" in logged.out + logged.err


@pytest.mark.rule("EVD-004")
async def test_a_session_that_was_ended_and_is_delivered_is_removed(node: FakeNode, tmp_path: Path) -> None:
    await node.stop()
    agent = make_agent(node, tmp_path, drain_ms=0, flush_ms=0)
    await agent.start()
    await agent.emitter.emit("PROGRESS", {"n": 1})
    session = agent.emitter.live_session
    await agent.stop()
    assert list((tmp_path / "spool").rglob(f"{session}.spool.jsonl"))
    await node.start()
    async with running_agent(node, tmp_path):
        await wait_until(lambda: not list((tmp_path / "spool").rglob(f"{session}*")), "all of its files are gone")
    types = [json.loads(line)["payload_type"] for line in node.evidence[session]]
    assert types == ["PROGRESS", "CHANNEL_TERMINATED"]


async def test_a_delivered_session_without_an_end_is_kept_and_not_sent_again(node: FakeNode, tmp_path: Path) -> None:
    name = await abandon_session(node, tmp_path, 2)
    async with running_agent(node, tmp_path) as agent:
        await wait_until(lambda: name in node.evidence)
        await wait_until(
            lambda: all(each.session != name for each in agent.emitter.backlog.senders), "it knows of the ack"
        )
    assert len(node.evidence[name]) == 2
    async with running_agent(node, tmp_path):
        await wait_until(lambda: node.connected)
        await wait_all_done(node, [node.offer("hello")])
    assert list((tmp_path / "spool").rglob(f"{name}.spool.jsonl"))
    assert [hello.session_id for hello in node.hellos].count(name) == 1


async def test_sessions_sort_also_where_the_clock_went_back(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await abandon_session(node, tmp_path, 1)
    monkeypatch.setattr("holdfast.adapters.clock.MachineClock.wall_ms", lambda self: 1_000)
    assert await abandon_session(node, tmp_path, 1) > first


# ------------------------------------------------------------------------------------------------ a spool that ends


async def test_when_the_session_ends_another_one_takes_over(node: FakeNode, tmp_path: Path) -> None:
    async with running_agent(node, tmp_path) as agent:
        await wait_all_done(node, [node.offer("before")])
        live = live_sender(agent)
        live.spool._stop_writing("a hole was found")
        await wait_all_done(node, [node.offer("after")])
        assert agent.emitter.live_session > live.session
        await wait_until(lambda: live not in agent.emitter.backlog.senders)
    check_complete(node)
    assert len(node.evidence) == 2
