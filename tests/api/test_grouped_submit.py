"""Commands of concurrent calls are submitted together, and each caller gets its own outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from tests.simulation.world import World, stop_engine

from holdfast.api.grouped_submit import GroupedSubmit
from holdfast.api.node_access import LOCAL, NodeAccess
from holdfast.api.rpc import jsonrpc
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, EventNo, ReservationId
from holdfast.core.escrow.messages import Mint
from holdfast.engine.outcome import Accepted, Outcome


def mint(number: int) -> Mint:
    return Mint(ReservationId(number.to_bytes(32, "big")), AccountId("alice"), Amount(number))


class RecordingEngine:
    """Accepts even amounts and refuses odd ones; remembers the groups."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.fault: Exception | None = None

    async def submit_many(self, commands: Sequence[Command]) -> list[Outcome]:
        self.groups.append(len(commands))
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return [_outcome(command) for command in commands]


def _outcome(command: Command) -> Outcome:
    assert isinstance(command, Mint)
    amount = int(command.amount)
    return Refused("ESC-001", f"{amount} is odd") if amount % 2 else Accepted(EventNo(amount))


async def test_what_is_asked_for_in_one_turn_is_one_group_and_every_caller_gets_its_own_outcome() -> None:
    engine = RecordingEngine()
    submit = GroupedSubmit(engine.submit_many)
    outcomes = await asyncio.gather(*(submit(mint(number)) for number in range(10)))
    assert engine.groups == [10]
    assert outcomes == [_outcome(mint(number)) for number in range(10)]
    await submit(mint(11))
    assert engine.groups == [10, 1]


async def test_a_fault_is_everybodys_and_the_next_group_is_not_affected() -> None:
    engine = RecordingEngine()
    submit = GroupedSubmit(engine.submit_many)
    engine.fault = Unavailable("ENG-002", "the disk failed")
    answers = await asyncio.gather(*(submit(mint(number)) for number in range(3)), return_exceptions=True)
    assert answers == [engine.fault] * 3
    engine.fault = None
    assert await submit(mint(4)) == Accepted(EventNo(4))


async def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    engine = RecordingEngine()
    submit = GroupedSubmit(engine.submit_many)
    gone, stays = asyncio.create_task(submit(mint(2))), asyncio.create_task(submit(mint(4)))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == Accepted(EventNo(4))
    assert engine.groups == [2]


@pytest.mark.rule("RPC-001")
async def test_the_enqueues_of_a_batch_are_one_group() -> None:
    world = World()
    engine = await world.started()
    access = NodeAccess(engine, engine.submit)
    groups: list[int] = []

    async def submit_many(commands: Sequence[Command]) -> list[Outcome]:
        groups.append(len(commands))
        return await engine.submit_many(commands)

    access.submit_grouped = GroupedSubmit(submit_many)
    await engine.submit(mint(1_000_000))
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    params = {"payload": payload, "max_fee": 100, "caller": "alice"}
    batch = [{"jsonrpc": "2.0", "id": n, "method": "cap.enqueue", "params": params | {"nonce": n}} for n in range(5)]
    batch.append({"jsonrpc": "2.0", "id": 5, "method": "cap.enqueue", "params": params | {"max_fee": -1}})
    message = jsonrpc.decode(json.dumps(batch).encode())
    assert isinstance(message, jsonrpc.RpcMessage)
    outcomes = await jsonrpc.handle(access, message, LOCAL)
    assert [outcome.error is None for outcome in outcomes] == [True] * 5 + [False]
    assert len({outcome.result["task_id"] for outcome in outcomes[:5]}) == 5
    assert groups == [5]
    await stop_engine(engine)
