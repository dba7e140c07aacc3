"""Evidence asked for at the doors: sessions with their marks, records byte for byte, letters, and what is pruned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.doors.agents import Hand, HandEvidence, House, housed
from tests.doors.legacy_sender import Air
from tests.simulated.world import DEVELOPMENT, World

from holdfast.core.evidence.sessions import PruneEvidence
from holdfast.core.policy import EvidencePolicy
from holdfast.core.refusal import Refused
from holdfast.doors.desk import LOCAL
from holdfast.doors.http.tally import Tally
from holdfast.doors.methods import METHODS, evidence
from holdfast.duties.weeder import Weeder
from holdfast.engine import read

KEPT_A_DAY = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(retain_days=1, prune_rows_max=2))
DAY_MS = 86_400_000


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path, World(KEPT_A_DAY)) as house:
        yield house


@pytest.fixture
async def stream(house: House) -> HandEvidence:
    oak = Hand(house)
    await oak.register()
    return await oak.tell(last_sequence_emitted=12)


async def ask(house: House, method: str, **told: Any) -> Any:
    await house.engine.projector.drain()
    asked = METHODS[method]
    return await asked.handle(house.desk, LOCAL, asked.params(**told))


async def refused(house: House, method: str, **told: Any) -> Refused:
    no = await ask(house, method, **told)
    assert isinstance(no, Refused), no
    return no


@pytest.mark.rule("EVD-001", "RPC-001")
async def test_sessions_are_listed_with_marks_lag_and_end(house: House, stream: HandEvidence) -> None:
    await stream.acked(1, stream.some(1, 5))
    await (air := await Air(house).greeted()).say(Air(house).message(1, "channel_terminated"))
    await air.until(1)
    listed = await ask(house, "evidence.listSessions")
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
    one = await ask(house, "evidence.listSessions", channel="classic-1", limit=1)
    assert [each.session for each in one.sessions] == ["PS-1"]
    rest = await ask(house, "evidence.listSessions", channel="classic-1", limit=1, cursor=one.next_cursor)
    assert (rest.sessions, rest.next_cursor) == ([], None)
    stream.call.cancel()
    air.call.cancel()


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize(
    ("after", "limit", "first", "last"), [(None, 100, 1, 30), (0, 3, 1, 3), (10, 7, 11, 17), (29, 9, 30, 30)]
)
async def test_records_come_back_byte_for_byte_in_pages(
    house: House, stream: HandEvidence, after: int | None, limit: int, first: int, last: int
) -> None:
    lines = stream.some(1, 30)
    for at in range(0, 30, 4):
        await stream.acked(at + 1, lines[at : at + 4])
    told = {"channel": stream.channel, "session": "s1", "after": after, "limit": limit}
    found = await ask(house, "evidence.getRecords", **told)
    assert (found.first, found.acked) == (first, 30)
    assert [line.encode() for line in found.lines] == lines[first - 1 : last]


async def test_what_is_not_there_is_named(house: House, stream: HandEvidence) -> None:
    await stream.acked(1, stream.some(1, 1))
    assert (await refused(house, "evidence.getRecords", channel="c", session="s")).name == "NotFound"
    assert (await refused(house, "evidence.getRecords", channel="c", session="s", limit=0)).name == "InvalidParams"
    assert (await refused(house, "evidence.listSessions", limit=1_001)).name == "InvalidParams"
    assert (await refused(house, "evidence.listDeadLetters", limit=0)).name == "InvalidParams"
    assert (await refused(house, "evidence.getDeadLetter", event=1)).name == "NotFound"
    assert (await refused(house, "evidence.release", event=1)).name == "NotFound"
    found = await ask(house, "evidence.getRecords", channel=stream.channel, session="s1", after=1)
    assert found.lines == []


async def test_large_records_come_in_smaller_pages(house: House, stream: HandEvidence) -> None:
    lines = stream.lines(1, *(("PROGRESS", {"text": "x" * 300_000}) for _ in range(3)))
    for sequence, line in enumerate(lines, start=1):
        await stream.acked(sequence, [line])
    found = await ask(house, "evidence.getRecords", channel=stream.channel, session="s1")
    assert [line.encode() for line in found.lines] == lines[:1]


@pytest.mark.rule("EVD-007")
async def test_letters_are_listed_shown_and_filtered(house: House, stream: HandEvidence) -> None:
    await stream.acked(1, [b"one", b"two", b"x" * 9_000])
    listed: read.Listing = await ask(house, "evidence.listDeadLetters", channel=stream.channel)
    assert [(each.sequence, each.status) for each in listed.rows] == [(1, "WAITING"), (2, "WAITING"), (3, "WAITING")]
    first, _, third = (each.event for each in listed.rows)
    assert (await ask(house, "evidence.getDeadLetter", event=third)).raw == b"x" * 9_000
    await ask(house, "evidence.release", event=first, note="seen")
    left = await ask(house, "evidence.listDeadLetters")
    assert [each.sequence for each in left.rows] == [2, 3]
    every = await ask(house, "evidence.listDeadLetters", status=None)
    assert [each.status for each in every.rows] == ["SETTLED", "WAITING", "WAITING"]
    shown = await ask(house, "evidence.getDeadLetter", event=first)
    assert (shown.letter.note, shown.raw) == ("seen", b"one")


# ------------------------------------------------------------------------------------------------ pruning


@pytest.mark.rule("EVD-008")
async def test_a_final_session_is_let_go_of_in_lots_and_its_mark_stays(house: House, stream: HandEvidence) -> None:
    lines = stream.some(1, 9)
    for at in range(0, 9, 2):
        await stream.acked(at + 1, lines[at : at + 2])
    weeder = Weeder(house.engine, house.world.clock)
    house.pass_time(DAY_MS)
    await weeder.look()
    assert weeder.pruned == 0, "it has no end"
    end = stream.lines(10, ("CHANNEL_TERMINATED", {}))
    await stream.acked(10, end)
    house.pass_time(DAY_MS - 1)
    await weeder.look()
    assert weeder.pruned == 0, "a day is not over"
    house.pass_time(1)
    await house.engine.projector.drain()
    await weeder.look()
    await house.engine.projector.drain()
    assert weeder.pruned == 10
    assert house.world.tables.rows["evidence"] == {}
    told = {"channel": stream.channel, "session": "s1"}
    found = await ask(house, "evidence.getRecords", **told)
    assert (found.lines, found.acked, found.pruned) == ([], 10, 10)
    assert (await refused(house, "evidence.getRecords", **told, after=3)).name == "EvidencePruned"
    assert await stream.acked(1, lines) == 10, "what comes again is known by its number"
    assert await stream.acked(11, stream.some(11, 11)) == 11
    found = await ask(house, "evidence.getRecords", **told)
    assert [line.encode() for line in found.lines] == stream.some(11, 11)


@pytest.mark.rule("EVD-008", "EVD-003")
async def test_what_is_let_go_of_under_an_open_stream_is_no_hole_for_it(house: House, stream: HandEvidence) -> None:
    lines = [*stream.some(1, 4), *stream.lines(5, ("CHANNEL_TERMINATED", {}))]
    await stream.acked(1, lines[:2])
    await stream.acked(3, lines[2:])
    house.pass_time(DAY_MS)
    await house.engine.projector.drain()
    row = (await read.page(house.engine, "evidence", {"channel": stream.channel}, 0, 1)).rows[0]
    await house.do(PruneEvidence(stream.channel, "s1", 2, (row.event,)))
    await house.engine.projector.drain()
    assert await stream.acked(1, lines) == 5


@pytest.mark.rule("EVD-008")
async def test_what_is_let_go_of_while_it_is_read_is_told_as_such(
    house: House, stream: HandEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*stream.some(1, 4), *stream.lines(5, ("CHANNEL_TERMINATED", {}))]
    await stream.acked(1, lines[:2])
    await stream.acked(3, lines[2:])
    house.pass_time(DAY_MS)
    await house.engine.projector.drain()
    paged = read.page

    async def overtaken(source: Any, table: str, *told: Any) -> Any:
        monkeypatch.setattr(read, "page", paged)
        row = (await paged(source, table, {"channel": stream.channel}, 0, 1)).rows[0]
        await house.do(PruneEvidence(stream.channel, "s1", 2, (row.event,)))
        await house.engine.projector.drain()
        return await paged(source, table, *told)

    monkeypatch.setattr(read, "page", overtaken)
    found = await ask(house, "evidence.getRecords", channel=stream.channel, session="s1")
    assert (found.first, found.pruned, [line.encode() for line in found.lines]) == (3, 2, lines[2:])


@pytest.mark.rule("EVD-008", "ENG-003")
async def test_what_was_pruned_stays_pruned_after_a_restart(tmp_path: Path) -> None:
    world = World(KEPT_A_DAY)
    async with housed(tmp_path, world) as house:
        oak = Hand(house)
        await oak.register()
        stream = await oak.tell()
        await stream.acked(1, stream.lines(1, ("PROGRESS", {}), ("CHANNEL_TERMINATED", {})))
        await house.engine.projector.drain()
        house.pass_time(DAY_MS)
        await Weeder(house.engine, house.world.clock).look()
    state = await world.recovered()
    assert [(mark.acked, mark.pruned) for mark in state.marks.values()] == [(2, 2)]


async def test_evidence_is_kept_for_ever_unless_policy_says_otherwise(tmp_path: Path) -> None:
    async with housed(tmp_path) as house:
        oak = Hand(house)
        await oak.register()
        stream = await oak.tell()
        await stream.acked(1, stream.lines(1, ("CHANNEL_TERMINATED", {})))
        house.pass_time(10_000 * DAY_MS)
        await Weeder(house.engine, house.world.clock).look()
        assert len(await stream.kept()) == 1


# ------------------------------------------------------------------------------------------------ counting


@pytest.mark.rule("OBS-001")
async def test_evidence_is_counted_for_whoever_watches(house: House, stream: HandEvidence) -> None:
    await stream.acked(1, [*stream.some(1, 3), b"poison"])
    await stream.acked(1, stream.some(1, 2))
    await stream.refused(9, stream.some(9, 9))
    text = Tally(house.desk, house.world.clock).text().decode()
    told = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("holdfast_evidence"))
    counted = {
        name: float(told[f"holdfast_evidence_{name}_total"]) for name in ("records", "duplicates", "gaps", "poison")
    }
    assert counted == {"records": 4, "duplicates": 2, "gaps": 1, "poison": 1}
    assert float(told["holdfast_evidence_dead_letters"]) == 1
    assert float(told["holdfast_evidence_open_streams"]) == 1
    assert float(told['holdfast_evidence_lag_records{at="max"}']) == 8
    assert float(told['holdfast_evidence_batch_records_bucket{le="5.0"}']) == 1
    assert float(told["holdfast_evidence_batch_records_sum"]) == 4
    assert not any("channel=" in name for name in told)


async def test_who_asks_for_evidence_is_described(house: House) -> None:
    assert set(evidence.METHODS) <= set(METHODS)
