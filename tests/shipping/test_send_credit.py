"""Credit: no more is on its way than the node has room for, and only what was sent can be acked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import running_agent, wait_until
from tests.shipping.test_session_sender import check_complete, live_sender

from holdfast.shipping.session_sender import split_batch
from holdfast.spool import RecordBatch


@pytest.mark.rule("EVD-001")
async def test_no_more_is_on_its_way_than_the_node_gave_credit_for(node: FakeNode, tmp_path: Path) -> None:
    node.credit = 2_000
    node.may_ack.clear()
    await node.stop()
    async with running_agent(node, tmp_path) as agent:
        for n in range(200):
            await agent.emitter.emit_spooled("PROGRESS", {"n": n})
        await node.start()  # only now, so that the first message is as full as it may be
        await wait_until(lambda: node.records_in)
        for _ in range(20):
            await agent.client.register()  # as many ways there and back as would bring the next records
        assert 1_000 < node.bytes_unacked <= 2_000
        node.may_ack.set()
        await wait_until(lambda: len(node.records()) == 200)
    check_complete(node)


@pytest.mark.rule("EVD-001")
async def test_a_record_larger_than_the_credit_goes_alone(node: FakeNode, tmp_path: Path) -> None:
    node.credit = 1_000
    async with running_agent(node, tmp_path) as agent:
        for n in range(3):
            await agent.emitter.emit("PROGRESS", {"n": n, "text": "x" * 5_000})
        await wait_until(lambda: len(node.records()) == 3)
    check_complete(node)


def test_a_batch_is_cut_into_messages_of_bounded_size() -> None:
    batch = RecordBatch(7, [b"x" * 40] * 5)
    assert [(first, len(lines)) for first, lines in split_batch(batch, 100)] == [(7, 2), (9, 2), (11, 1)]
    assert [(first, len(lines)) for first, lines in split_batch(batch, 10)] == [(n, 1) for n in range(7, 12)]


@pytest.mark.rule("SP-ACK-004")
async def test_an_ack_of_records_that_wait_for_credit_is_never_stored(node: FakeNode, tmp_path: Path) -> None:
    """They are spooled, so the spool itself would take it; but they were never sent."""
    node.credit, node.answer_records = 1_000, lambda mark: mark + 50
    node.may_ack.clear()
    async with running_agent(node, tmp_path) as agent:
        for n in range(200):
            await agent.emitter.emit_spooled("PROGRESS", {"n": n})
        node.may_ack.set()
        await wait_until(lambda: len(node.hellos) >= 3)
        session = agent.emitter.live_session
        assert live_sender(agent).spool.acked_sequence <= len(node.evidence[session]) < 200
        node.answer_records = lambda mark: mark
        await wait_until(lambda: len(node.evidence[session]) == 200, "and nothing is missing in the end")
    check_complete(node)
