"""Uniqueness over all of history: an id claimed once is known for ever, in memory or in the tables."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import some_id
from tests.simulation.world import World, drop_claims, small_batches

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, EventNo, Height
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Refund, Reserve
from holdfast.core.index.unique_ids import claim_id, claim_number
from holdfast.engine.claim_index import ClaimIndex, PrefixFilter
from holdfast.engine.outcome import Accepted

ALICE, BOB = AccountId("alice"), AccountId("bob")
pytestmark = pytest.mark.rule("ENG-005")

keys = st.binary(min_size=33, max_size=33)


@given(st.sets(keys), st.sets(keys), st.sets(keys))
def test_the_prefix_filter_never_calls_an_old_key_new(loaded: set[bytes], added: set[bytes], new: set[bytes]) -> None:
    prefixes = PrefixFilter()
    prefixes.load([[claim_number(key) for key in loaded], []])
    for key in added:
        prefixes.add(key)
        prefixes.add(key)
    assert all(prefixes.may_contain(key) for key in loaded | added)
    short = {claim_number(key) % 2**44 for key in loaded | added}
    assert all(not prefixes.may_contain(key) for key in new if claim_number(key) % 2**44 not in short)
    assert prefixes.size_bytes() == 4 * (len(loaded) + 2 * len(added))


@given(keys)
def test_the_number_of_a_claim_is_the_beginning_of_its_id(key: bytes) -> None:
    for each in (b"t" + key[1:], b"m" + key[1:], key, key[:9]):
        assert claim_number(each).to_bytes(8, "big") == claim_id(each)[:8]
        assert len(claim_id(each)) == 16


def test_one_hash_claimed_for_two_purposes_has_two_ids() -> None:
    assert len({claim_id(bytes([letter]) + some_id(5)) for letter in b"tjwnrcqim"}) == 9


@pytest.mark.parametrize("order", ["big", "little"])
def test_ids_that_count_up_are_told_apart(order: Literal["big", "little"]) -> None:
    prefixes = PrefixFilter()
    prefixes.load([[claim_number(b"h" + n.to_bytes(32, order)) for n in range(1_000)]])
    assert not any(prefixes.may_contain(b"h" + n.to_bytes(32, order)) for n in range(1_000, 3_000))


async def test_a_claim_is_known_when_only_the_tables_remember_it() -> None:
    world = World(small_batches())
    engine = await world.started()
    first = await engine.submit(Mint(some_id(7), ALICE, Amount(10)))
    await engine.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(100, 150)])
    await drop_claims(engine)
    assert isinstance(first, Accepted)
    assert await engine.submit(Mint(some_id(7), ALICE, Amount(10))) == Accepted(first.event, is_repeat=True)
    other = await engine.submit(Mint(some_id(7), ALICE, Amount(11)))
    assert isinstance(other, Refused)
    assert other.name == "IdReused"
    await engine.stop()


async def test_a_claim_is_known_after_a_restart_wherever_the_crash_left_it() -> None:
    world = World(small_batches())
    engine = await world.started()
    await engine.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(1, 21)])
    await engine.projector.stop()  # the rest stays in the journal only
    await engine.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(21, 24)])
    again = await world.started()
    outcomes = await again.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(1, 24)])
    assert outcomes == [Accepted(EventNo(n + 1), is_repeat=True) for n in range(1, 24)]
    await again.stop()


async def test_many_callers_with_one_id_do_it_once() -> None:
    world = World(small_batches())
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(100, 120)])
    command = Reserve(some_id(2), ALICE, Amount(60))
    outcomes = await asyncio.gather(*(engine.submit(command) for _ in range(20)))
    assert {outcome.event for outcome in outcomes if isinstance(outcome, Accepted)} == {EventNo(23)}
    assert sum(not outcome.is_repeat for outcome in outcomes if isinstance(outcome, Accepted)) == 1
    await engine.wait_tables()
    outcomes = await asyncio.gather(*(engine.submit(command) for _ in range(20)))
    assert all(outcome == Accepted(EventNo(23), is_repeat=True) for outcome in outcomes)
    await engine.stop()


async def test_another_key_with_the_same_prefix_is_no_repeat() -> None:
    world = World(small_batches())
    engine = await world.started()
    ours, theirs = b"12345678" + bytes(24), b"another" + bytes(25)
    await engine.submit(Mint(ours, ALICE, Amount(10)))
    await drop_claims(engine)
    engine.claim_index.prefixes.load([[claim_number(b"m" + theirs)]])
    assert engine.undurable_state.claims.lacking((b"m" + theirs,))
    last = engine.durable_head.last
    assert await engine.submit(Mint(theirs, ALICE, Amount(10))) == Accepted(EventNo(last + 1))
    await engine.stop()


async def test_loaded_claims_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimIndex, "LOADED_MAX", 5)
    world = World(small_batches())
    engine = await world.started()
    mints = [Mint(some_id(n), ALICE, Amount(1)) for n in range(1, 40)]
    await engine.submit_many(mints)
    await drop_claims(engine)
    for command in mints:
        outcome = await engine.submit(command)
        assert isinstance(outcome, Accepted)
        assert outcome.is_repeat
    assert len(engine.undurable_state.claims.loaded) <= 5
    await engine.stop()


async def test_a_settlement_asked_for_again_is_answered_as_the_first_time_also_when_it_is_final() -> None:
    world = World(small_batches())
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    charge, refund = Charge(some_id(2), Height(1), BOB, Amount(3)), Refund(some_id(3), Height(1))
    for hold in (2, 3):
        await engine.submit(Reserve(some_id(hold), ALICE, Amount(5)))
    assert [await engine.submit(each) for each in (charge, refund)] == [Accepted(EventNo(5)), Accepted(EventNo(6))]
    again = [Accepted(EventNo(5), is_repeat=True), Accepted(EventNo(6), is_repeat=True)]
    assert [await engine.submit(each) for each in (charge, refund)] == again
    await engine.submit(Finalize(Height(1)))
    assert [await engine.submit(each) for each in (charge, refund)] == again  # from memory
    await drop_claims(engine)
    assert [await engine.submit(each) for each in (charge, refund)] == again  # from the tables
    other = await engine.submit(Charge(some_id(2), Height(1), BOB, Amount(4)))
    assert isinstance(other, Refused)
    assert other.name == "IdReused"
    await engine.stop()
