"""The service that v0.1 senders speak: the same store, the same rules, and every known misbehaviour of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.doors.agents import EOF, Hand, House, housed, refusal
from tests.doors.grpc_house import client_of, dialled, opened, tls_folder
from tests.doors.legacy_sender import KINDS, Air
from tests.simulated.world import DEVELOPMENT, World, ended

from holdfast.core.evidence.marks import Ending, is_final, mark_id
from holdfast.core.evidence.sessions import AssignChannel
from holdfast.core.policy import EvidencePolicy
from holdfast.doors.grpc.legacy import SESSIONS_MAX
from holdfast.doors.grpc.settings import GrpcSettings, LegacyEvidence, why_not_open
from holdfast.wire.airline import line_of

pytestmark = pytest.mark.rule("EVD-009")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path) as house:
        yield house


@pytest.fixture
def air(house: House) -> Air:
    return Air(house)


def lines_of(messages: list[Any]) -> list[Any]:
    return [line_of(message) for message in messages]


# ------------------------------------------------------------------------------------------------ as it should be


@pytest.mark.rule("EVD-001", "EVD-002")
async def test_every_kind_of_record_is_acked_and_kept_as_the_line_of_its_source(house: House, air: Air) -> None:
    stream = await air.greeted()
    messages = [air.message(sequence, kind) for sequence, kind in enumerate(KINDS, start=1)]
    await stream.say(*messages)
    await stream.until(5)
    kept = await air.kept()
    assert kept == lines_of(messages)
    fence = msgspec.json.decode(kept[3])
    assert list(fence) == [
        *("schema_version", "channel_id", "playout_session_id", "sequence", "event_uuid", "emitted_utc"),
        *("payload_type", "payload"),
    ]
    assert (fence["payload_type"], fence["payload"]["total_frames_emitted"]) == ("BLOCK_FENCE", 2**63)


@pytest.mark.rule("EVD-001", "SP-ACK-004")
async def test_a_hello_is_answered_with_the_true_mark_over_streams_and_restarts(tmp_path: Path) -> None:
    world = World()
    async with housed(tmp_path, world) as house:
        stream = await Air(house).greeted()
        await stream.say(*Air(house).some(1, 4))
        await stream.until(4)
        stream.call.cancel()
        assert (await Air(house).greeted(9)).mark == 4
    async with housed(tmp_path, world) as house:
        stream = await Air(house).greeted(4)
        assert stream.mark == 4
        await stream.say(Air(house).hello(4))
        assert (await stream.ack()).acked_sequence == 4
        assert house.witness.tally.replays == 0


async def test_a_sender_that_has_said_all_gets_its_acks_and_a_good_end(house: House, air: Air) -> None:
    stream = await air.greeted()
    await stream.say(*air.some(1, 3))
    await stream.call.done_writing()
    await stream.until(3)
    assert await stream.call.read() is EOF
    assert (await stream.call.code()).name == "OK"


# ------------------------------------------------------------------------------------------------ misbehaviour


@pytest.mark.rule("EVD-003")
async def test_playing_back_from_one_again_and_again_stores_nothing_twice(house: House, air: Air) -> None:
    messages = air.some(1, 6)
    for _ in range(3):
        stream = air.connect()
        await stream.say(air.hello(6), *messages)
        await stream.until(6)
        stream.call.cancel()
    assert await air.kept() == lines_of(messages)
    assert house.witness.tally.records == 6


@pytest.mark.rule("EVD-003")
async def test_what_is_played_back_and_then_comes_from_the_live_queue_again_counts_once(house: House, air: Air) -> None:
    stream = await air.greeted(4)
    await stream.say(*air.some(1, 4), *air.some(2, 6))
    await stream.until(6)
    assert await air.kept() == lines_of(air.some(1, 6))


@pytest.mark.rule("EVD-002")
@pytest.mark.parametrize("first", [5, 2**63, 2**64 - 1])
async def test_an_event_lost_with_a_cut_stream_is_missed_and_comes_when_the_sender_connects_anew(
    house: House, air: Air, first: int
) -> None:
    """It does not read errors, and mends a gap only by a new stream: so the stream ends."""
    stream = await air.greeted()
    await stream.say(*air.some(1, 3), air.message(first))
    told = await stream.error()
    assert (told.acked_sequence, told.channel_id, told.playout_session_id) == (3, "classic-1", "PS-1")
    assert told.error.startswith("EvidenceGap: EVD-002")
    assert (await stream.ended()).code == "OUT_OF_RANGE"
    again = await air.greeted(5)
    assert again.mark == 3
    await again.say(*air.some(4, 5))
    await again.until(5)
    assert await air.kept() == lines_of(air.some(1, 5))


@pytest.mark.rule("EVD-003")
async def test_a_record_sent_before_it_was_spooled_and_numbered_anew_after_a_crash_is_a_conflict(
    house: House, air: Air
) -> None:
    stream = await air.greeted()
    await stream.say(*air.some(1, 3))
    await stream.until(3)
    reborn = Air(house, life="b")
    stream = await reborn.greeted(2)
    assert stream.mark == 3
    await stream.say(reborn.message(3))
    told = await stream.error()
    assert (told.acked_sequence, told.error.split(":")[0]) == (3, "SequenceConflict")
    assert (await stream.ended()).name == "SequenceConflict"
    assert await air.kept() == lines_of(air.some(1, 3))


@pytest.mark.parametrize("on", ["the same stream", "a new stream"])
async def test_a_restart_with_a_new_session_begins_with_one(house: House, air: Air, on: str) -> None:
    stream = await air.greeted()
    await stream.say(*air.some(1, 3))
    await stream.until(3)
    reborn = Air(house, session="PS-2")
    if on == "a new stream":
        stream = reborn.connect()
    await stream.say(reborn.hello(0), *reborn.some(1, 2))
    marks = [await stream.ack() for _ in range(2)]
    assert (marks[0].playout_session_id, marks[0].acked_sequence) == ("PS-2", 0)
    assert marks[-1].acked_sequence in (1, 2)
    stream.mark = marks[-1].acked_sequence
    await stream.until(2)
    assert (await air.kept(), await reborn.kept()) == (lines_of(air.some(1, 3)), lines_of(reborn.some(1, 2)))


async def test_a_sender_without_a_hello_is_heard(house: House, air: Air) -> None:
    stream = air.connect()
    await stream.say(*air.some(1, 2))
    await stream.until(2)


@pytest.mark.rule("EVD-007")
@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"schema_version": 2}, "WrongSchema"),
        ({"schema_version": 0}, "WrongSchema"),
        ({"event_uuid": ""}, "Malformed"),
        ({"segment_start": None}, "Malformed"),
    ],
)
async def test_a_message_that_is_no_record_is_acked_into_a_dead_letter(
    house: House, air: Air, told: dict[str, Any], name: str
) -> None:
    stream = await air.greeted()
    await stream.say(air.message(1), air.message(2, **told), air.message(3))
    await stream.until(3)
    (letter,) = house.engine.state.letters.values()
    assert (letter.channel, letter.sequence, letter.name) == ("classic-1", 2, name)
    kept = await air.kept()
    assert [kept[0], kept[2]] == lines_of([air.message(1), air.message(3)])


# ------------------------------------------------------------------------------------------------ the end of sessions


def mark_of(house: House, session: str) -> Any:
    return house.engine.state.marks[mark_id("classic-1", session)]


@pytest.mark.rule("SP-RET-001")
async def test_a_session_is_final_when_its_channel_was_terminated(house: House, air: Air) -> None:
    stream = await air.greeted()
    await stream.say(air.message(1), air.message(2, "channel_terminated"))
    await stream.until(2)
    assert is_final(mark_of(house, "PS-1"))


@pytest.mark.rule("SP-RET-001")
async def test_a_fence_is_the_end_only_of_a_session_that_is_closed(house: House, air: Air) -> None:
    stream = await air.greeted()
    await stream.say(air.message(1, "block_fence"))
    await stream.until(1)
    assert (mark_of(house, "PS-1").ending, is_final(mark_of(house, "PS-1"))) == (Ending.FENCE, False)
    reborn = Air(house, session="PS-2")
    newer = await reborn.greeted()
    await newer.say(reborn.message(1))
    await newer.until(1)
    assert is_final(mark_of(house, "PS-1"))
    await stream.say(air.message(2))
    await stream.until(2)
    assert not is_final(mark_of(house, "PS-1"))
    assert not is_final(mark_of(house, "PS-2"))


# ------------------------------------------------------------------------------------------------ who may


async def test_nobody_is_let_in_unless_the_operator_said_so(tmp_path: Path) -> None:
    assert GrpcSettings().legacy_evidence is LegacyEvidence.OFF
    async with housed(tmp_path, legacy=LegacyEvidence.OFF) as house:
        no = await refusal(Air(house).greeted())
        assert (no.code, no.name, no.rule) == ("PERMISSION_DENIED", "Forbidden", "EVD-009")
        assert "grpc.legacy_evidence" in no.hint
        assert house.engine.state.marks == {}


@pytest.mark.rule("EVD-001")
async def test_a_providers_channel_cannot_be_used_without_its_key(house: House) -> None:
    oak = Hand(house)
    await oak.register()
    for channel in (oak.id.hex(), oak.id.hex().upper(), "00" * 32):
        stream = Air(house, channel=channel).connect()
        await stream.say(Air(house, channel=channel).message(1))
        assert (await stream.error()).error.startswith("Forbidden")
        assert (await stream.ended()).name == "Forbidden"
    assert house.engine.state.marks == {}


@pytest.mark.parametrize(("channel", "session"), [("../up", "s"), ("", "s"), ("c", ""), ("c", "a/b"), ("c" * 129, "s")])
async def test_ids_that_could_not_be_names_of_files_are_refused(house: House, channel: str, session: str) -> None:
    air = Air(house, channel, session)
    stream = air.connect()
    await stream.say(air.hello())
    assert (await stream.error()).error.startswith("InvalidParams")
    assert (await stream.ended()).name == "InvalidParams"


async def test_a_record_without_a_sequence_is_refused(house: House, air: Air) -> None:
    stream = await air.greeted()
    await stream.say(air.message(0))
    assert (await stream.error()).acked_sequence == 0
    assert (await stream.ended()).name == "InvalidParams"


@pytest.mark.rule("SEC-001")
async def test_a_stream_carries_a_few_sessions_and_not_any_number(house: House) -> None:
    stream = Air(house).connect()
    for number in range(SESSIONS_MAX):
        await stream.say(Air(house, session=f"s{number}").hello())
        await stream.ack()
    await stream.say(Air(house, session="one-more").hello())
    assert (await stream.ended_after_error()).name == "TooLarge"


@pytest.mark.rule("SEC-001")
async def test_open_channels_have_a_bound(tmp_path: Path) -> None:
    few = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(legacy_channels_max=2))
    async with housed(tmp_path, World(few)) as house:
        for number in range(2):
            air = Air(house, channel=f"c{number}")
            await (stream := await air.greeted()).say(air.message(1))
            await stream.until(1)
        air = Air(house, channel="c2")
        await (stream := await air.greeted()).say(air.message(1))
        assert (await stream.ended_after_error()).name == "TooLarge"
        known = Air(house, channel="c1", session="PS-2")
        await (stream := await known.greeted()).say(known.message(1))
        await stream.until(1)


async def test_with_mtls_the_certificate_must_bear_the_name_of_the_channels_owner(tmp_path: Path) -> None:
    world = World()
    engine = await world.started()
    house = House(engine, world, tmp_path, LegacyEvidence.MTLS)
    tls = tls_folder(tmp_path / "tls", "classic-1", "air-1")
    authority = tmp_path / "tls" / "ca.pem"
    async with opened(services=house.services, tls=tls, client_ca=authority) as door:
        house.at.leave_with(door.closing)
        own, other = client_of(tmp_path / "tls", "classic-2"), client_of(tmp_path / "tls", "air-2")
        async with dialled(door, authority, own) as mine, dialled(door, authority, other) as theirs:
            air = Air(house, channel="classic-2")
            stream = air.connect(mine)
            await stream.say(air.hello(), air.message(1))
            await stream.until(1)
            stream = air.connect(theirs)
            await stream.say(air.hello())
            assert "an operator may assign it" in (await stream.error()).error
            assert (await stream.ended()).name == "Forbidden"
            await house.do(AssignChannel("classic-2", "air-2"))
            stream = air.connect(theirs)
            await stream.say(air.hello(), air.message(2))
            await stream.until(2)
            stream = air.connect(mine)
            await stream.say(air.message(3))
            assert (await stream.ended_after_error()).name == "Forbidden"
    await ended(engine)


def test_mtls_without_an_authority_is_no_setting() -> None:
    no = why_not_open(GrpcSettings(legacy_evidence=LegacyEvidence.MTLS))
    assert no is not None
    assert (no.rule, no.says) == ("EVD-009", "legacy_evidence: mtls without client_ca")
