"""What evidence asks for: results and failures are decided by the batch that stores them, once, if they are true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.doors.agents import Hand, House, housed, refusal, until
from tests.simulated.journal import Fault

from holdfast.core.event import Event
from holdfast.core.evidence.marks import EvidenceTaken, mark_id
from holdfast.core.lease.acts import CompletionSubmitted, LeaseClosed
from holdfast.core.provider.acts import HealthMoved
from holdfast.core.result import result_digest
from holdfast.core.values import TaskId
from holdfast.engine.outcome import Phase


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
async def oak(house: House) -> Hand:
    oak = Hand(house)
    await oak.register()
    return oak


def batch_with(house: House, kind: type[Event]) -> list[type[Event]]:
    """The kinds of events of the one batch that holds this kind."""
    (found,) = [events for events in house.batches() if any(isinstance(event, kind) for event in events)]
    return [type(event) for event in found]


# ------------------------------------------------------------------------------------------------ what records ask for


@pytest.mark.rule("EVD-005", "RCV-001")
async def test_a_result_is_handed_in_by_the_batch_that_stores_its_evidence(house: House) -> None:
    oak = Hand(house)
    work = await oak.at_work()
    offer = await oak.leased(work)
    await oak.put(offer, b"out")
    stream = await oak.tell()
    told = [("LEASE_ACCEPTED", {}), oak.completed(offer, b"out"), ("BLOCK_FENCE", {})]
    assert await stream.acked(1, stream.lines(1, *told)) == 3
    assert batch_with(house, CompletionSubmitted) == [EvidenceTaken, CompletionSubmitted]
    await house.judge(offer.lease_id)
    assert (await work.read("verdict")).verdict.is_accepted
    assert house.engine.state.results[TaskId(offer.task_id)].result_digest == result_digest(b"out")


@pytest.mark.rule("EVD-005")
async def test_a_failure_is_decided_by_the_batch_that_stores_its_evidence(house: House) -> None:
    oak = Hand(house)
    work = await oak.at_work()
    offer = await oak.leased(work)
    stream = await oak.tell()
    assert await stream.acked(1, stream.lines(1, oak.failed(offer))) == 1
    assert batch_with(house, LeaseClosed) == [EvidenceTaken, LeaseClosed, HealthMoved]
    lost = (await work.read("lost")).lost
    assert (lost.lease_id, lost.reason) == (offer.lease_id, "PROVIDER_FAIL")


@pytest.mark.rule("EVD-005", "PRV-003")
@pytest.mark.parametrize("replay", ["the same stream", "another stream", "another session"])
async def test_evidence_that_comes_again_hands_nothing_in_again(house: House, replay: str) -> None:
    oak = Hand(house)
    offer = await oak.leased(await oak.at_work())
    await oak.put(offer, b"out")
    stream = await oak.tell()
    await stream.acked(1, stream.lines(1, oak.completed(offer, b"out")))
    if replay != "the same stream":
        stream = await oak.tell("s1" if replay == "another stream" else "s2")
    assert await stream.acked(1, stream.lines(1, oak.completed(offer, b"out"))) == 1
    submitted = [event for batch in house.batches() for event in batch if isinstance(event, CompletionSubmitted)]
    assert len(submitted) == 1


@pytest.mark.rule("RCV-001", "PRV-003")
@pytest.mark.parametrize("wrong", ["no bytes", "signature", "no hex", "no fields", "type", "another's lease", "method"])
async def test_a_completion_that_is_not_good_is_kept_as_evidence_and_nothing_else(house: House, wrong: str) -> None:
    oak, ash = Hand(house), Hand(house, "ash")
    offer = await oak.leased(await oak.at_work())
    await ash.register()
    if wrong != "no bytes":
        await oak.put(offer, b"out")
    told: dict[str, dict[str, Any]] = {
        "signature": {"signature": "00" * 64},
        "no hex": {"body": "zz"},
        "no fields": {"body": None},
        "type": {"type": -1},
        "method": {"method": "\ud7ff" * 3},
    }
    who = ash if wrong == "another's lease" else oak
    stream = await who.tell()
    lines = stream.lines(1, who.completed(offer, b"out", **told.get(wrong, {})), ("PROGRESS", {}))
    with capture_logs() as logs:
        assert await stream.acked(1, lines) == 2
    assert await stream.kept() == lines
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert lease.submitted is None
    tally = house.evidence.tally
    assert (tally.unheard, tally.refused) == ((0, 1) if wrong == "another's lease" else (1, 0))
    assert [line["event"] for line in logs] == ["evidence without effect"]


@pytest.mark.rule("PRV-003")
async def test_a_failure_that_its_provider_did_not_sign_ends_no_lease(house: House) -> None:
    oak, ash = Hand(house), Hand(house, "ash")
    offer = await oak.leased(await oak.at_work())
    await ash.register()
    forged, another = await oak.tell(), await ash.tell()
    kind, payload = oak.failed(offer)
    assert await forged.acked(1, forged.lines(1, (kind, payload | {"reason": "other"}))) == 1
    assert await another.acked(1, another.lines(1, ash.failed(offer))) == 1
    assert house.lease(offer.lease_id) is not None


async def test_what_the_rules_do_not_allow_any_more_does_not_hold_up_the_channel(house: House) -> None:
    oak = Hand(house)
    offer = await oak.leased(await oak.at_work())
    await oak.put(offer, b"out")
    house.pass_time(600_000)
    stream = await oak.tell()
    lines = stream.lines(1, oak.completed(offer, b"out"), oak.failed(offer), ("PROGRESS", {}))
    assert await stream.acked(1, lines) == 3
    assert house.evidence.tally.refused == 2


@pytest.mark.rule("EVD-005", "EVD-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER])
async def test_when_the_disk_fails_evidence_and_result_are_stored_together_or_not_at_all(
    house: House, fault: Fault
) -> None:
    oak = Hand(house)
    offer = await oak.leased(await oak.at_work())
    await oak.put(offer, b"out")
    stream = await oak.tell()
    lines = stream.lines(1, oak.completed(offer, b"out"))
    house.world.disk.faults = [fault]
    await stream.send(1, lines)
    assert (await refusal(stream.call.read())).name == "Unavailable"
    await until(lambda: house.engine.phase is Phase.RUNNING)
    mark = house.engine.state.marks.get(mark_id(stream.channel, stream.session))
    lease = house.lease(offer.lease_id)
    assert lease is not None
    assert (mark is not None) == (lease.submitted is not None) == (fault is Fault.FAIL_AFTER)
    again = await oak.tell()
    assert again.ack.acked_sequence == (1 if fault is Fault.FAIL_AFTER else 0)
    assert await again.acked(1, lines) == 1
    assert batch_with(house, CompletionSubmitted) == [EvidenceTaken, CompletionSubmitted]
