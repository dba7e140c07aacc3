"""Records that are refused for good: acknowledged into a dead letter, never in the way, dealt with by an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.doors.agents import Hand, House, housed, refusal, until
from tests.doors.test_evidence_service import unsealed
from tests.simulated.journal import Fault
from tests.simulated.world import DEVELOPMENT, World

from holdfast.core.act import ActDone
from holdfast.core.evidence.letters import DeadLetter, EvidenceBuried, LetterReleased, Standing
from holdfast.core.evidence.marks import Ending, EvidenceTaken
from holdfast.core.lease.acts import CompletionSubmitted
from holdfast.core.policy import EvidencePolicy
from holdfast.core.refusal import Refused
from holdfast.core.state import digest
from holdfast.core.values import EventNo
from holdfast.doors.desk import LOCAL
from holdfast.doors.methods import METHODS
from holdfast.doors.methods.evidence import LetterShown, Release
from holdfast.doors.records import LINE_BYTES_MAX
from holdfast.doors.stored import letter_bytes
from holdfast.engine.outcome import Phase

FEW = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(dead_letters_per_channel_max=3))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
async def oak(house: House) -> Hand:
    oak = Hand(house)
    await oak.register()
    return oak


def letters(house: House) -> list[DeadLetter]:
    return list(house.engine.state.letters.values())


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
    house: House, oak: Hand, how: str
) -> None:
    stream = await oak.tell()
    name, spoil = POISON[how]
    lines = stream.some(1, 4)
    bad = spoil(lines[2])
    assert await stream.acked(1, [*lines[:2], bad, lines[3]]) == 4
    (letter,) = letters(house)
    assert (letter.channel, letter.session, letter.sequence) == (stream.channel, "s1", 3)
    assert (letter.name, letter.size, letter.status) == (name, len(bad), Standing.WAITING)
    assert await letter_bytes(house.engine, letter.event) == bad[: 1 << 20]
    kept = await stream.kept()
    assert [kept[0], kept[1], kept[3]] == [lines[0], lines[1], lines[3]]
    told = msgspec.json.decode(kept[2])
    assert (told["sequence"], told["payload_type"], told["payload"]["name"]) == (3, "DEAD_LETTER", name)
    assert house.evidence.tally.poison == 1


@pytest.mark.rule("EVD-007")
async def test_a_dead_letter_is_in_the_batch_of_its_mark_and_survives_a_restart(tmp_path: Path) -> None:
    world = World()
    async with housed(tmp_path, world) as house:
        oak = Hand(house)
        await oak.register()
        stream = await oak.tell()
        await stream.acked(1, [b"x" * 5_000, *stream.some(2, 2)])
        assert [type(event) for event in house.batches()[-1]] == [EvidenceTaken, EvidenceBuried]
        before = digest(house.engine.state)
        (letter,) = letters(house)
    state = await world.recovered()
    assert list(state.letters) == [letter.event]
    assert state.buried == {stream.channel: 1}
    assert digest(state) == before


@pytest.mark.rule("EVD-003", "EVD-007")
async def test_a_dead_letter_that_comes_again_is_known_and_another_line_in_its_place_is_a_conflict(
    house: House, oak: Hand
) -> None:
    stream = await oak.tell()
    lines = [*stream.some(1, 1), b"poison", *stream.some(3, 3)]
    assert await stream.acked(1, lines) == 3
    assert await stream.acked(1, lines) == 3
    assert len(letters(house)) == 1
    assert (await stream.refused(1, stream.some(1, 3))).name == "SequenceConflict"


@pytest.mark.rule("EVD-007")
@pytest.mark.parametrize(("poison", "is_full"), [(3, False), (4, True)])
async def test_what_waits_for_an_operator_has_a_bound_by_channel(tmp_path: Path, poison: int, is_full: bool) -> None:
    async with housed(tmp_path, World(FEW)) as house:
        oak, ash = Hand(house), Hand(house, "ash")
        await oak.register()
        await ash.register()
        stream = await oak.tell()
        await stream.send(1, [b"x"] * poison)
        if is_full:
            no = (await stream.read("refusal")).refusal
            assert (no.name, no.rule, no.acked_sequence) == ("DeadLettersFull", "EVD-007", 3)
            assert (await refusal(stream.call.read())).code == "RESOURCE_EXHAUSTED"
            assert len(letters(house)) == 3
        else:
            assert (await stream.read("ack")).ack.acked_sequence == 3
        other = await ash.tell()
        assert await other.acked(1, [b"x"]) == 1


@pytest.mark.rule("EVD-007")
async def test_more_letters_at_once_than_may_wait_are_taken_as_an_operator_settles_them(tmp_path: Path) -> None:
    """Also those that ask in vain, which are not counted while lines are looked at."""
    async with housed(tmp_path, World(FEW)) as house:
        oak = Hand(house)
        offer = await oak.leased(await oak.at_work())
        stream = await oak.tell()
        vain = oak.completed(offer, b"the node does not hold these bytes")
        lines = stream.lines(1, ("PROGRESS", {}), *[vain] * 8, ("CHANNEL_TERMINATED", {}))
        for acked in (4, 7, 10):
            await stream.send(1, lines)
            while (told := await stream.call.read()).WhichOneof("message") == "ack" and told.ack.acked_sequence < 10:
                continue
            mark = told.ack.acked_sequence if acked == 10 else told.refusal.acked_sequence
            assert mark == acked
            for letter in letters(house):
                assert letter.name == "NoOutput"
                assert isinstance(await release(house, letter.event), LetterShown)
            stream = await oak.tell()
        assert await stream.kept() == lines
        assert house.engine.state.marks[f"{stream.channel}/s1"].ending == Ending.TERMINATED


@pytest.mark.rule("EVD-007", "SEC-001")
async def test_many_lines_that_are_none_cost_no_more_than_the_bound(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    await stream.send(1, [b""] * 200_000)
    no = (await stream.read("refusal")).refusal
    assert no.name == "DeadLettersFull"
    assert len(letters(house)) <= house.engine.policy.evidence.dead_letters_per_channel_max


# ------------------------------------------------------------------------------------------------ asks in vain


@pytest.mark.rule("EVD-007", "PRV-003")
async def test_a_forged_record_keeps_its_place_and_is_a_dead_letter(house: House) -> None:
    oak = Hand(house)
    offer = await oak.leased(await oak.at_work())
    stream = await oak.tell()
    lines = stream.lines(1, oak.completed(offer, b"out", signature="00" * 64), ("PROGRESS", {}))
    assert await stream.acked(1, lines) == 2
    (letter,) = letters(house)
    assert (letter.name, letter.sequence) == ("Forged", 1)
    assert await stream.kept() == lines
    tally = house.evidence.tally
    assert (tally.unheard, tally.poison) == (1, 0)


async def release(house: House, event: EventNo, **told: Any) -> LetterShown | Refused:
    method = METHODS["evidence.release"]
    return await method.handle(house.desk, LOCAL, Release(event, **told))  # type: ignore[return-value]


@pytest.mark.rule("EVD-007", "RCV-001")
async def test_a_result_whose_bytes_came_late_is_handed_in_when_an_operator_releases_it(house: House) -> None:
    oak = Hand(house)
    offer = await oak.leased(await oak.at_work())
    stream = await oak.tell()
    await stream.acked(1, stream.lines(1, oak.completed(offer, b"out")))
    (letter,) = letters(house)
    assert letter.name == "NoOutput"
    no = await release(house, letter.event, retry=True)
    assert isinstance(no, Refused)
    assert no.rule == "RCV-001"
    assert len(letters(house)) == 1
    await oak.put(offer, b"out")
    shown = await release(house, letter.event, retry=True)
    assert isinstance(shown, LetterShown)
    assert shown.letter.status is Standing.RETRIED
    assert [type(event) for event in house.batches()[-1]] == [ActDone, LetterReleased, CompletionSubmitted]
    assert letters(house) == []


@pytest.mark.rule("EVD-007", "SEC-001")
async def test_a_letter_is_settled_once_with_the_name_of_who_did_it(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    await stream.acked(1, [b"poison"])
    (letter,) = letters(house)
    shown = await release(house, letter.event, note="seen")
    assert isinstance(shown, LetterShown)
    assert (shown.letter.status, shown.letter.note) == (Standing.SETTLED, "seen")
    act, released = house.batches()[-1]
    assert isinstance(act, ActDone)
    assert (act.actor, act.method, type(released)) == ("local", "evidence.release", LetterReleased)
    assert house.engine.state.buried == {}
    assert isinstance(no := await release(house, letter.event), Refused)
    assert no.name == "NotFound"


@pytest.mark.rule("EVD-007")
async def test_what_asks_for_nothing_cannot_be_tried_again(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    await stream.acked(1, [b"poison"])
    assert isinstance(no := await release(house, letters(house)[0].event, retry=True), Refused)
    assert (no.rule, no.name) == ("EVD-007", "InvalidParams")
    assert len(letters(house)) == 1


@pytest.mark.rule("EVD-007", "EVD-002")
async def test_a_failed_disk_leaves_neither_mark_nor_letter(house: House, oak: Hand) -> None:
    stream = await oak.tell()
    house.world.disk.faults = [Fault.FAIL]
    await stream.send(1, [b"poison"])
    assert (await refusal(stream.call.read())).name == "Unavailable"
    await until(lambda: house.engine.phase is Phase.RUNNING)
    again = await oak.tell()
    assert again.ack.acked_sequence == 0
    assert letters(house) == []
    assert await again.acked(1, [b"poison"]) == 1
