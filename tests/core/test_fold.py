"""The fold: events, batches and snapshots give the same state on every machine."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import DEVELOPMENT, empty, histories, run, some_id

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Batch, Command, Event, JournalHead, check_follows, head_of
from holdfast.core.base.values import AccountId, Amount, BatchNo, Term
from holdfast.core.escrow.messages import Mint, Minted
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot


def journal_of(history: list[Command], batch_events: int = 3) -> tuple[State, list[Batch]]:
    """A live state and the batches that made it."""
    state, tip, batches, events = empty(), JournalHead(), [], list[Event]()
    for at, command in enumerate(history):
        outcome = run(state, command)
        if not isinstance(outcome, Refused):
            events.extend(outcome)
        if len(events) >= batch_events:
            batches.append(journal_codec.pack(tip, Term(1), events, at))
            tip, events = head_of(batches[-1]), []
    if events:
        batches.append(journal_codec.pack(tip, Term(1), events, len(history)))
    return state, batches


@pytest.mark.rule("ENG-003")
@given(histories)
def test_folding_the_journal_from_nothing_gives_the_live_state(history: list[Command]) -> None:
    state, batches = journal_of(history)
    again = empty()
    journal_codec.fold(again, JournalHead(), batches)
    assert digest(again) == digest(state)


@pytest.mark.rule("ENG-003")
@given(histories, st.integers(0, 30))
def test_folding_from_a_snapshot_gives_the_live_state(history: list[Command], cut: int) -> None:
    state, batches = journal_of(history)
    half = empty()
    tip = journal_codec.fold(half, JournalHead(), batches[:cut])
    again, at = restore(snapshot(half, tip), DEVELOPMENT)
    assert at == tip
    journal_codec.fold(again, at, batches[cut:])
    assert digest(again) == digest(state)


@pytest.mark.rule("ENG-003")
@given(histories, st.data())
def test_any_flipped_bit_of_a_snapshot_is_found(history: list[Command], data: st.DataObject) -> None:
    state, batches = journal_of(history)
    raw = bytearray(snapshot(state, head_of(batches[-1]) if batches else JournalHead()))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt, match="ENG-003"):
        restore(bytes(raw), DEVELOPMENT)


@pytest.mark.rule("ENG-003")
def test_a_snapshot_that_was_cut_short_is_found() -> None:
    raw = snapshot(empty(), JournalHead())
    for end in range(len(raw)):
        with pytest.raises(Corrupt, match="ENG-003"):
            restore(raw[:end], DEVELOPMENT)


@pytest.mark.rule("ENG-001")
@given(histories.filter(lambda history: len(history) > 5), st.data())
def test_any_flipped_bit_of_a_batch_is_found(history: list[Command], data: st.DataObject) -> None:
    _, batches = journal_of([Mint(some_id(200), AccountId("alice"), Amount(50)), *history])
    at = data.draw(st.integers(0, len(batches) - 1))
    name = data.draw(st.sampled_from(Batch.__struct_fields__))
    value = getattr(batches[at], name)
    if isinstance(value, bytes):
        bit = data.draw(st.integers(0, 8 * len(value) - 1))
        changed: object = bytes(byte ^ (1 << bit % 8 if i == bit // 8 else 0) for i, byte in enumerate(value))
    else:
        changed = value ^ 1 << data.draw(st.integers(0, 40))
    damaged = [*batches[:at], msgspec.structs.replace(batches[at], **{name: changed}), *batches[at + 1 :]]
    with pytest.raises(Corrupt, match="ENG-001"):
        journal_codec.fold(empty(), JournalHead(), damaged)


@pytest.mark.rule("ENG-001")
@given(histories, st.data())
def test_a_missing_swapped_or_repeated_batch_is_found(history: list[Command], data: st.DataObject) -> None:
    mints = [Mint(some_id(200 + n), AccountId("alice"), Amount(50)) for n in range(6)]
    _, batches = journal_of([*mints, *history], batch_events=2)
    at = data.draw(st.integers(0, len(batches) - 2))
    without = batches[:at] + batches[at + 1 :]
    swapped = [*batches[:at], batches[at + 1], batches[at], *batches[at + 2 :]]
    repeated = [*batches[: at + 1], *batches[at:]]
    for wrong in (without, swapped, repeated):
        with pytest.raises(Corrupt, match="ENG-001"):
            journal_codec.fold(empty(), JournalHead(), wrong)


@pytest.mark.rule("ENG-001", "CAN-004")
@pytest.mark.parametrize("backwards", ["term", "time_ms"])
def test_term_and_time_never_run_backwards(backwards: str) -> None:
    tip = JournalHead(BatchNo(3), Term(7), *(JournalHead().last,), 500, JournalHead().hash)
    good = journal_codec.pack(tip, Term(7), [], 500)
    check_follows(tip, good)
    later = msgspec.structs.replace(tip, **{backwards: getattr(tip, backwards) + 1})
    with pytest.raises(Corrupt, match="backwards"):
        check_follows(later, good)


@pytest.mark.rule("CAN-005")
def test_a_field_added_by_a_newer_version_is_skipped_and_its_bytes_are_kept() -> None:
    class NewMinted(Event, frozen=True, tag=16):
        id: bytes
        owner: str
        amount: int
        note: str = "from the future"

    event = NewMinted(some_id(1), "alice", 5)
    batch = journal_codec.pack(JournalHead(), Term(1), [event], 0)
    assert journal_codec.unpack(batch) == [Minted(some_id(1), AccountId("alice"), Amount(5))]
    assert msgspec.msgpack.decode(batch.body)[0][-1] == "from the future"
    check_follows(JournalHead(), batch)


@pytest.mark.rule("CAN-005")
def test_a_field_missing_from_an_older_version_takes_its_default() -> None:
    batch = journal_codec.pack(JournalHead(), Term(1), [], 0)
    older = msgspec.msgpack.encode([[17, some_id(1), "alice", 5]])
    batch = msgspec.structs.replace(batch, body=older, last=1)
    assert journal_codec.unpack(batch)[0].memo is None  # type: ignore[attr-defined]


@pytest.mark.rule("ENG-001")
def test_an_event_of_an_unknown_kind_stops_the_fold() -> None:
    batch = journal_codec.pack(JournalHead(), Term(1), [], 0)
    unknown = msgspec.structs.replace(batch, body=msgspec.msgpack.encode([[999, 1]]), last=1)
    with pytest.raises(Corrupt, match="newer version"):
        journal_codec.unpack(unknown)


def test_every_event_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in state_machine.EVENTS]
    assert len(set(tags)) == len(tags)
