"""Records that are rejected for good: acknowledged into a dead letter, never in the way, resolved by an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.evidence.test_evidence_service import unsealed
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node, refusal, until
from tests.simulation.journal import Fault
from tests.simulation.world import DEVELOPMENT, World

from holdfast.api.evidence.reader import dead_letter_bytes
from holdfast.api.evidence.validation import LINE_BYTES_MAX
from holdfast.api.node_access import LOCAL, RpcCall
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.methods.evidence import DeadLetterView, ResolveDeadLetterParams
from holdfast.core.base.errors import Refused
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import EventNo
from holdfast.core.evidence.messages import DeadLetterResolved, EvidenceStored, RecordDeadLettered
from holdfast.core.evidence.model import DeadLetter, DeadLetterStatus, SessionEnd
from holdfast.core.lease.messages import CompletionSubmitted
from holdfast.core.policy import EvidencePolicy, UnstakedEvidence
from holdfast.core.state_digest import digest
from holdfast.engine.outcome import EngineStatus

FEW = msgspec.structs.replace(
    DEVELOPMENT, evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, dead_letters_per_channel_max=3)
)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path) as node:
        yield node


@pytest.fixture
async def oak(node: AgentNode) -> AgentDriver:
    oak = AgentDriver(node)
    await oak.register()
    return oak


def dead_letters(node: AgentNode) -> list[DeadLetter]:
    return list(node.engine.undurable_state.dead_letters.values())


POISON: dict[str, tuple[str, Any]] = {
    "CRC damage": ("Malformed", lambda line: line.replace(b"PROGRESS", b"PROGRASS")),
    "torn": ("Malformed", lambda line: line[:-30]),
    "no JSON": ("Malformed", lambda line: b"hello"),
    "empty": ("Malformed", lambda line: b""),
    "NUL": ("Malformed", lambda line: bytes(40)),
    "no UTF-8": ("Malformed", lambda line: unsealed(line).replace(b"PROGRESS", b"PROG\xff")),
    "two lines in one": ("Malformed", lambda line: unsealed(line).replace(b",", b",\n", 1)),
    "another channel": ("Malformed", lambda line: unsealed(line, channel_id="ash")),
    "another session": ("Malformed", lambda line: unsealed(line, playout_session_id="s2")),
    "another sequence": ("Malformed", lambda line: unsealed(line, sequence=9)),
    "sequence 0": ("Malformed", lambda line: unsealed(line, sequence=0)),
    "a giant sequence": ("Malformed", lambda line: unsealed(line, sequence=2**64)),
    "no payload": ("Malformed", lambda line: unsealed(line, payload=None)),
    "no event_uuid": ("Malformed", lambda line: unsealed(line, event_uuid="")),
    "another schema": ("WrongSchema", lambda line: unsealed(line, schema_version=2)),
    "our own type": ("Malformed", lambda line: unsealed(line, payload_type="DEAD_LETTER")),
    "too large": ("TooLarge", lambda line: line + b" " * LINE_BYTES_MAX),
}


@pytest.mark.rule("EVD-007", "EVD-002")
@pytest.mark.parametrize("how", POISON)
async def test_a_line_that_is_no_record_is_acked_into_a_dead_letter_and_stops_nothing(
    node: AgentNode, oak: AgentDriver, how: str
) -> None:
    stream = await oak.open_evidence()
    name, spoil = POISON[how]
    lines = stream.progress_lines(1, 4)
    bad = spoil(lines[2])
    assert await stream.send_and_ack(1, [*lines[:2], bad, lines[3]]) == 4
    (dead_letter,) = dead_letters(node)
    assert (dead_letter.channel, dead_letter.session, dead_letter.sequence) == (stream.channel, "s1", 3)
    assert (dead_letter.name, dead_letter.size, dead_letter.status) == (name, len(bad), DeadLetterStatus.WAITING)
    assert await dead_letter_bytes(node.engine, dead_letter.event) == bad[: 1 << 20]
    kept = await stream.stored_lines()
    assert [kept[0], kept[1], kept[3]] == [lines[0], lines[1], lines[3]]
    told = msgspec.json.decode(kept[2])
    assert (told["sequence"], told["payload_type"], told["payload"]["name"]) == (3, "DEAD_LETTER", name)
    assert node.evidence_metrics.malformed == 1


@pytest.mark.rule("EVD-007")
async def test_a_dead_letter_is_in_the_batch_of_its_watermark_and_survives_a_restart(tmp_path: Path) -> None:
    world = World()
    async with agent_node(tmp_path, world) as node:
        oak = AgentDriver(node)
        await oak.register()
        stream = await oak.open_evidence()
        await stream.send_and_ack(1, [b"x" * 5_000, *stream.progress_lines(2, 2)])
        assert [type(event) for event in node.batches()[-1]] == [EvidenceStored, RecordDeadLettered]
        before = digest(node.engine.undurable_state)
        (dead_letter,) = dead_letters(node)
    state = await world.recovered()
    assert list(state.dead_letters) == [dead_letter.event]
    assert state.dead_letters_waiting == {stream.channel: 1}
    assert digest(state) == before


@pytest.mark.rule("EVD-003", "EVD-007")
async def test_a_dead_letter_that_comes_again_is_known_and_another_line_in_its_place_is_a_conflict(
    node: AgentNode, oak: AgentDriver
) -> None:
    stream = await oak.open_evidence()
    lines = [*stream.progress_lines(1, 1), b"poison", *stream.progress_lines(3, 3)]
    assert await stream.send_and_ack(1, lines) == 3
    assert await stream.send_and_ack(1, lines) == 3
    assert len(dead_letters(node)) == 1
    assert (await stream.send_and_refusal(1, stream.progress_lines(1, 3))).name == "SequenceConflict"


@pytest.mark.rule("EVD-007")
@pytest.mark.parametrize(("poison", "is_full"), [(3, False), (4, True)])
async def test_what_waits_for_an_operator_has_a_bound_by_channel(tmp_path: Path, poison: int, is_full: bool) -> None:
    async with agent_node(tmp_path, World(FEW)) as node:
        oak, ash = AgentDriver(node), AgentDriver(node, "ash")
        await oak.register()
        await ash.register()
        stream = await oak.open_evidence()
        await stream.send(1, [b"x"] * poison)
        if is_full:
            no = (await stream.read("refusal")).refusal
            assert (no.name, no.rule, no.acked_sequence) == ("DeadLettersFull", "EVD-007", 3)
            assert (await refusal(stream.call.read())).code == "RESOURCE_EXHAUSTED"
            assert len(dead_letters(node)) == 3
        else:
            assert (await stream.read("ack")).ack.acked_sequence == 3
        other = await ash.open_evidence()
        assert await other.send_and_ack(1, [b"x"]) == 1


@pytest.mark.rule("EVD-007")
async def test_more_dead_letters_at_once_than_may_wait_are_stored_as_an_operator_resolves_them(tmp_path: Path) -> None:
    """Also those that ask in vain, which are not counted while lines are looked at."""
    async with agent_node(tmp_path, World(FEW)) as node:
        oak = AgentDriver(node)
        offer = await oak.lease_job(await oak.start_work())
        stream = await oak.open_evidence()
        vain = oak.completed_record(offer, b"the node does not hold these bytes")
        lines = stream.lines(1, ("PROGRESS", {}), *[vain] * 8, ("CHANNEL_TERMINATED", {}))
        for acked in (4, 7, 10):
            await stream.send(1, lines)
            while (told := await stream.call.read()).WhichOneof("message") == "ack" and told.ack.acked_sequence < 10:
                continue
            mark = told.ack.acked_sequence if acked == 10 else told.refusal.acked_sequence
            assert mark == acked
            for dead_letter in dead_letters(node):
                assert dead_letter.name == "NoOutput"
                assert isinstance(await retry_dead_letter(node, dead_letter.event), DeadLetterView)
            stream = await oak.open_evidence()
        assert await stream.stored_lines() == lines
        assert node.engine.undurable_state.watermarks[f"{stream.channel}/s1"].ending == SessionEnd.TERMINATED


@pytest.mark.rule("EVD-007", "SEC-001")
async def test_many_lines_that_are_none_cost_no_more_than_the_bound(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    await stream.send(1, [b""] * 200_000)
    no = (await stream.read("refusal")).refusal
    assert no.name == "DeadLettersFull"
    assert len(dead_letters(node)) <= node.engine.policy.evidence.dead_letters_per_channel_max


# ------------------------------------------------------------------------------------------------ asks in vain


@pytest.mark.rule("EVD-007", "PRV-003")
async def test_a_forged_record_keeps_its_place_and_is_a_dead_letter(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    lines = stream.lines(1, oak.completed_record(offer, b"out", signature="00" * 64), ("PROGRESS", {}))
    assert await stream.send_and_ack(1, lines) == 2
    (dead_letter,) = dead_letters(node)
    assert (dead_letter.name, dead_letter.sequence) == ("Forged", 1)
    assert await stream.stored_lines() == lines
    metrics = node.evidence_metrics
    assert (metrics.invalid_requests, metrics.malformed) == (1, 0)


async def retry_dead_letter(node: AgentNode, event: EventNo, **told: Any) -> DeadLetterView | Refused:
    method = METHODS["evidence.resolveDeadLetter"]
    call = RpcCall("evidence.resolveDeadLetter", LOCAL)
    return await method.handle(node.access, call, ResolveDeadLetterParams(event, **told))  # type: ignore[return-value]


@pytest.mark.rule("EVD-007", "RCV-001")
async def test_a_result_whose_bytes_came_late_is_submitted_when_an_operator_retries_it(node: AgentNode) -> None:
    oak = AgentDriver(node)
    offer = await oak.lease_job(await oak.start_work())
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, stream.lines(1, oak.completed_record(offer, b"out")))
    (dead_letter,) = dead_letters(node)
    assert dead_letter.name == "NoOutput"
    no = await retry_dead_letter(node, dead_letter.event, retry=True)
    assert isinstance(no, Refused)
    assert no.rule == "RCV-001"
    assert len(dead_letters(node)) == 1
    await oak.put(offer, b"out")
    shown = await retry_dead_letter(node, dead_letter.event, retry=True)
    assert isinstance(shown, DeadLetterView)
    assert shown.dead_letter.status is DeadLetterStatus.RETRIED
    assert [type(event) for event in node.batches()[-1]] == [
        PrivilegedActRecorded,
        DeadLetterResolved,
        CompletionSubmitted,
    ]
    assert dead_letters(node) == []


@pytest.mark.rule("EVD-007", "SEC-001")
async def test_a_dead_letter_is_resolved_once_with_the_name_of_who_did_it(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, [b"poison"])
    (dead_letter,) = dead_letters(node)
    shown = await retry_dead_letter(node, dead_letter.event, note="seen")
    assert isinstance(shown, DeadLetterView)
    assert (shown.dead_letter.status, shown.dead_letter.note) == (DeadLetterStatus.SETTLED, "seen")
    act, released = node.batches()[-1]
    assert isinstance(act, PrivilegedActRecorded)
    assert (act.actor, act.method, type(released)) == ("local", "evidence.resolveDeadLetter", DeadLetterResolved)
    assert node.engine.undurable_state.dead_letters_waiting == {}
    assert isinstance(no := await retry_dead_letter(node, dead_letter.event), Refused)
    assert no.name == "NotFound"


@pytest.mark.rule("EVD-007")
async def test_what_asks_for_nothing_cannot_be_tried_again(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    await stream.send_and_ack(1, [b"poison"])
    assert isinstance(no := await retry_dead_letter(node, dead_letters(node)[0].event, retry=True), Refused)
    assert (no.rule, no.name) == ("EVD-007", "InvalidParams")
    assert len(dead_letters(node)) == 1


@pytest.mark.rule("EVD-007", "EVD-002")
async def test_a_failed_disk_leaves_neither_watermark_nor_dead_letter(node: AgentNode, oak: AgentDriver) -> None:
    stream = await oak.open_evidence()
    node.world.disk.faults = [Fault.FAIL]
    await stream.send(1, [b"poison"])
    assert (await refusal(stream.call.read())).name == "Unavailable"
    await until(lambda: node.engine.status is EngineStatus.RUNNING)
    again = await oak.open_evidence()
    assert again.ack.acked_sequence == 0
    assert dead_letters(node) == []
    assert await again.send_and_ack(1, [b"poison"]) == 1
