"""Evidence on its way: nothing sent before it is spooled, replay above the node's mark, whatever is cut or lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.house import comes, folders, made, working
from tests.agent.test_agent_way import WAY, gate

from holdfast.agent.delivery import Delivery
from holdfast.agent.runner import Agent
from holdfast.core.values import Kind
from holdfast.spool.writer import Writer


async def all_done(node: FakeNode, leases: list[bytes]) -> None:
    await comes(lambda: all(node.submissions[lease] for lease in leases), "every lease is handed in")
    await comes(lambda: all(node.told(lease)[-1:] == ["BLOCK_FENCE"] for lease in leases))


def live_of(agent: Agent) -> Delivery:
    live = agent.shipper._live
    assert live is not None
    return live


def whole(node: FakeNode) -> None:
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
    take, unspooled = FakeNode.take, list[bytes]()

    def look(self: FakeNode, line: bytes, public: bytes) -> None:
        files = list((tmp_path / "spool").rglob("*.spool.jsonl"))
        if not any(line in file.read_bytes().split(b"\n") for file in files):
            unspooled.append(line)
        take(self, line, public)

    monkeypatch.setattr(FakeNode, "take", look)
    async with working(node, tmp_path, slots=20):
        await all_done(node, [node.offer(f"job {n}") for n in range(20)])
    assert unspooled == []


@pytest.mark.rule("SP-005")
async def test_while_the_disk_hangs_nothing_is_sent(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records lie in memory, numbered and encoded: that is not spooled."""
    monkeypatch.setattr(Writer, "_commit", lambda self: False)
    agent = made(node, tmp_path)
    await agent.start()
    lease = node.offer("hello")
    await comes(lambda: node.outputs, "the work is done and its bytes are with the node")
    await comes(lambda: agent.hands.held[lease].outcome is not None)
    await comes(lambda: node.open_streams, "the stream of evidence is open")
    assert node.records_in == 0
    monkeypatch.undo()
    await all_done(node, [lease])
    await agent.stop()


# ------------------------------------------------------------------------------------------------ cuts


async def until_cut(node: FakeNode, agent: Agent) -> None:
    """What is told one by one does not arrive in one message, however slow the stream is."""
    while node.cut_evidence_after is not None:
        told = await agent.shipper.spool("PROGRESS", {})
        await comes(lambda: len(node.evidence.get(told.session, [])) >= told.sequence)  # noqa: B023


@pytest.mark.rule("EVD-001", "EVD-004")
@pytest.mark.parametrize("messages", [1, 2, 3])
async def test_streams_that_are_cut_again_and_again_lose_nothing(node: FakeNode, tmp_path: Path, messages: int) -> None:
    leases: list[bytes] = []
    async with working(node, tmp_path, slots=20) as agent:
        for round_ in range(6):
            node.cut_evidence_after, node.cut_work_after = messages, messages + round_ % 3
            leases += [node.offer(f"{round_} {n}") for n in range(3)]
            await until_cut(node, agent)
        node.cut_work_after = None
        await all_done(node, [*leases, *await spooled(node, agent, 1)])
        await comes(lambda: not folders(tmp_path))
        assert live_of(agent)._backoff.failures == 0, "progress makes the next pause short again"
    whole(node)
    assert len(node.hellos) > 6


@pytest.mark.rule("EVD-001")
async def test_lost_acks_mean_that_records_come_again_and_count_once(node: FakeNode, tmp_path: Path) -> None:
    """The answer to the hello says what the node has: only what is above it is sent."""
    leases: list[bytes] = []
    async with working(node, tmp_path, slots=10):
        for n in range(3):
            node.lose_acks = 1
            leases.append(node.offer(f"job {n}"))
            await comes(lambda: node.lose_acks == 0, "an ack was lost")
        await all_done(node, leases)
    whole(node)
    assert node.duplicates == 0


@pytest.mark.rule("EVD-004")
async def test_what_the_next_hello_acks_is_progress_too(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path) as agent:
        node.lose_acks = 1
        await agent.shipper.spool("PROGRESS", {})
        await comes(lambda: node.lose_acks == 0, "its own ack was lost")
        await comes(lambda: live_of(agent).is_delivered)
        assert live_of(agent)._backoff.failures == 0, "the next pause is short again"


@pytest.mark.rule("EVD-001", "EVD-005")
async def test_work_goes_on_while_the_node_is_down_and_is_handed_in_when_it_is_back(
    node: FakeNode, tmp_path: Path
) -> None:
    busy = gate()
    async with working(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        lease = node.offer("hello", "gate")
        await comes(lambda: "EXECUTION_STARTED" in node.told(lease))
        await node.stop()
        busy.open.set()
        await comes((tmp_path / "work" / lease.hex() / "output").exists, "it is finished without the node")
        await node.start()
        await all_done(node, [lease])
        await comes(lambda: not folders(tmp_path))
    whole(node)
    assert node.told(lease) == WAY


async def test_a_restart_of_the_node_between_completion_and_verdict_ends_well(node: FakeNode, tmp_path: Path) -> None:
    node.judges = False
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await all_done(node, [lease])
        await node.stop()
        await node.start()
        await comes(lambda: node.connected)
        await comes(lambda: node.acts_of(lease).count("ack") >= 2, "the agent asks after it")
        assert folders(tmp_path) == [lease.hex()]
        node.judge(lease)
        await comes(lambda: not folders(tmp_path))
    whole(node)


async def test_a_lease_that_ended_while_nobody_listened_is_cleaned_up(node: FakeNode, tmp_path: Path) -> None:
    node.judges = False
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await all_done(node, [lease])
        await node.stop()
        node.leases[lease].over = "COMPLETED"
        await node.start()
        await comes(lambda: not folders(tmp_path))
    whole(node)


# ------------------------------------------------------------------------------------------------ the node's mark


async def spooled(node: FakeNode, agent: Agent, count: int) -> list[bytes]:
    leases = [node.offer(f"job {n} {len(node.leases)}") for n in range(count)]
    await all_done(node, leases)
    live = live_of(agent)
    await comes(lambda: live.is_delivered)
    return leases


@pytest.mark.rule("SP-ACK-004")
async def test_a_node_that_says_less_than_it_had_acked_gets_the_rest_again(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path) as agent:
        leases = await spooled(node, agent, 3)
        before = node.duplicates
        node.answer_hello = lambda mark: 2
        await node.stop()
        await node.start()
        await comes(lambda: node.duplicates - before == len(WAY) * 3 - 2, "everything above its mark")
        node.answer_hello = lambda mark: mark
        leases += await spooled(node, agent, 1)
    whole(node)


@pytest.mark.rule("SP-ACK-004")
async def test_a_mark_below_what_is_kept_is_told_and_not_passed_over(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path) as agent:
        await spooled(node, agent, 3)
        live = live_of(agent)
        await live.spool.compact()
        assert live.spool.first_available > 3
        node.answer_hello = lambda mark: 1
        sent = node.records_in
        await node.stop()
        await node.start()
        await comes(lambda: live.stuck, "the gap is named")
        assert "SP-ACK-004" in live.stuck
        assert node.records_in == sent
        node.answer_hello = lambda mark: mark
        await spooled(node, agent, 1)
        assert live.stuck == ""


@pytest.mark.rule("SP-ACK-004")
async def test_a_mark_above_what_was_spooled_is_never_stored(node: FakeNode, tmp_path: Path) -> None:
    node.answer_hello = lambda mark: mark + 1_000
    async with working(node, tmp_path) as agent:
        lease = node.offer("hello")
        live = live_of(agent)
        await comes(lambda: live.stuck)
        assert "above the last spooled" in live.stuck
        assert live.spool.acked_sequence == 0
        assert node.records_in == 0
        node.answer_hello = lambda mark: mark
        await all_done(node, [lease])
    whole(node)


@pytest.mark.rule("SP-ACK-004")
async def test_an_ack_above_what_was_sent_breaks_the_stream_and_is_never_stored(node: FakeNode, tmp_path: Path) -> None:
    node.answer_records = lambda mark: mark + 1_000
    async with working(node, tmp_path) as agent:
        live = live_of(agent)
        for n in range(2):
            await agent.shipper.spool("PROGRESS", {"n": n})
            await comes(lambda: len(node.hellos) >= n + 2, "it connects again")  # noqa: B023
        assert live.spool.acked_sequence <= live.spool.spooled_sequence
        node.answer_records = lambda mark: mark
        await all_done(node, [node.offer("hello")])
    acks = [file.read_text() for file in (tmp_path / "spool").rglob("*.ack")]
    assert not any("acked_sequence=10" in text for text in acks)
    whole(node)


async def test_an_ack_that_is_lower_than_the_last_changes_nothing(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, take_ack = list[int](), Delivery.take_ack

    def noted(self: Delivery, sequence: int) -> None:
        take_ack(self, sequence)
        heard.append(sequence)

    monkeypatch.setattr(Delivery, "take_ack", noted)
    node.answer_records = lambda mark: mark - 1
    async with working(node, tmp_path) as agent:
        await all_done(node, [node.offer("hello")])
        live = live_of(agent)
        await comes(lambda: live.spool.acked_sequence == len(WAY) - 1)
        node.answer_records = lambda mark: 1
        await all_done(node, [node.offer("other")])
        await comes(lambda: heard[-1] == 1, "it has heard of the lower one")
        assert live.spool.acked_sequence == len(WAY) - 1
    whole(node)


# ------------------------------------------------------------------------------------------------ older sessions


async def abandoned(node: FakeNode, tmp_path: Path, count: int) -> str:
    """A session that nobody has closed, with some records that were never sent; its name."""
    agent = made(node, tmp_path)
    agent._assemble()
    await agent.shipper.open()
    for n in range(count):
        await agent.shipper.spool("PROGRESS", {"n": n})
    name = agent.shipper.live_session
    live = live_of(agent)
    for each in [live, *agent.shipper.backlog.waiting]:
        await each.spool.aclose()
    await agent._dial.close()
    return name


@pytest.mark.rule("EVD-004")
async def test_older_sessions_are_replayed_oldest_first_beside_the_live_one(node: FakeNode, tmp_path: Path) -> None:
    old = [await abandoned(node, tmp_path, 3 + n) for n in range(3)]
    assert old == sorted(old)
    async with working(node, tmp_path) as agent:
        lease = node.offer("hello")
        await all_done(node, [lease])
        await comes(lambda: all(len(node.evidence.get(name, [])) == 3 + n for n, name in enumerate(old)))
        live = agent.shipper.live_session
    order = [hello.session_id for hello in node.hellos if hello.session_id != live]
    assert order == old
    assert live in {hello.session_id for hello in node.hellos}
    whole(node)


@pytest.mark.rule("EVD-004")
async def test_an_old_session_that_is_stuck_holds_up_nobody(
    node: FakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck, good = await abandoned(node, tmp_path, 3), await abandoned(node, tmp_path, 4)
    file = tmp_path / "spool"
    path = next(file.rglob(f"{stuck}.spool.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"#" * (len(lines[1]) - 1) + b"\n" + lines[2])
    async with working(node, tmp_path):
        lease = node.offer("hello")
        await all_done(node, [lease])
        await comes(lambda: len(node.evidence.get(good, [])) == 4)
    assert len(node.evidence[stuck]) == 1, "up to the hole and no further"
    assert [hello.session_id for hello in node.hellos].count(stuck) == 1
    assert "SP-CRASH-002: record 2 is damaged" in capsys.readouterr().out


@pytest.mark.rule("EVD-004")
async def test_a_session_that_was_ended_and_is_delivered_is_removed(node: FakeNode, tmp_path: Path) -> None:
    await node.stop()
    agent = made(node, tmp_path, drain_ms=0, flush_ms=0)
    await agent.start()
    await agent.shipper.emit("PROGRESS", {"n": 1})
    session = agent.shipper.live_session
    await agent.stop()
    assert list((tmp_path / "spool").rglob(f"{session}.spool.jsonl"))
    await node.start()
    async with working(node, tmp_path):
        await comes(lambda: not list((tmp_path / "spool").rglob(f"{session}*")), "all of its files are gone")
    types = [json.loads(line)["payload_type"] for line in node.evidence[session]]
    assert types == ["PROGRESS", "CHANNEL_TERMINATED"]


async def test_a_delivered_session_without_an_end_is_kept_and_not_sent_again(node: FakeNode, tmp_path: Path) -> None:
    name = await abandoned(node, tmp_path, 2)
    async with working(node, tmp_path) as agent:
        await comes(lambda: name in node.evidence)
        await comes(lambda: all(each.session != name for each in agent.shipper.backlog.waiting), "it knows of the ack")
    assert len(node.evidence[name]) == 2
    async with working(node, tmp_path):
        await comes(lambda: node.connected)
        await all_done(node, [node.offer("hello")])
    assert list((tmp_path / "spool").rglob(f"{name}.spool.jsonl"))
    assert [hello.session_id for hello in node.hellos].count(name) == 1


async def test_sessions_sort_also_where_the_clock_went_back(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await abandoned(node, tmp_path, 1)
    monkeypatch.setattr("holdfast.adapters.clock.MachineClock.wall_ms", lambda self: 1_000)
    assert await abandoned(node, tmp_path, 1) > first


# ------------------------------------------------------------------------------------------------ a spool that ends


async def test_when_the_session_ends_another_one_takes_over(node: FakeNode, tmp_path: Path) -> None:
    async with working(node, tmp_path) as agent:
        await all_done(node, [node.offer("before")])
        live = live_of(agent)
        live.spool._stop_writing("a hole was found")
        await all_done(node, [node.offer("after")])
        assert agent.shipper.live_session > live.session
        await comes(lambda: live not in agent.shipper.backlog.waiting)
    whole(node)
    assert len(node.evidence) == 2
