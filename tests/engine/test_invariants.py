"""Invariants of the running program: a violation stops the owner before the batch is stored."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.core.commands import some_id
from tests.simulation.world import CHECKED_EVERY, World

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import AccountId, Amount, EventNo, LeaseId
from holdfast.core.escrow.messages import Mint
from holdfast.core.invariants import broken_invariants
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus

ALICE = AccountId("alice")
pytestmark = pytest.mark.rule("ENG-001")


def mint(number: int) -> Mint:
    return Mint(some_id(number), ALICE, Amount(10))


def skip_an_event(engine: Engine) -> None:
    engine.undurable_state.last_event = EventNo(engine.undurable_state.last_event + 1)


def forget_the_durable_head(engine: Engine) -> None:
    head = engine.durable_head
    engine.durable_head = msgspec.structs.replace(head, last=EventNo(head.last + 1))


def refund_too_much(engine: Engine) -> None:
    engine.undurable_state.ledger.refunded_total += 1


def submit_without_a_lease(engine: Engine) -> None:
    engine.undurable_state.submissions[LeaseId(bytes(32))] = b"proof"


@pytest.mark.parametrize("damage", [skip_an_event, forget_the_durable_head, refund_too_much, submit_without_a_lease])
async def test_a_violation_stops_the_owner_and_nothing_of_it_is_stored(damage: Callable[[Engine], None]) -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    stored = list(world.disk.batches)
    damage(engine)
    with pytest.raises(Unavailable, match="does not hold before batch 3"):
        await engine.submit(mint(2))
    assert engine.status is EngineStatus.FAILED
    assert isinstance(engine.fault, Corrupt)
    assert world.disk.batches == stored
    await engine.stop()
    again = await world.started()
    assert isinstance(await again.submit(mint(2)), Accepted)
    await again.stop()


async def test_the_whole_set_is_checked_every_few_batches_in_the_simulation() -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    assert broken_invariants(engine.undurable_state) == []
    engine.undurable_state.ledger.accounts[ALICE].available += 1  # the cheap checks do not see it
    assert broken_invariants(engine.undurable_state) == ["all accounts sum to zero"]
    for number in range(2, CHECKED_EVERY):
        await engine.submit(mint(number))
    with pytest.raises(Unavailable, match="all accounts sum to zero"):
        await engine.submit(mint(CHECKED_EVERY))
    await engine.stop()
