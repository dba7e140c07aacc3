"""What a requester hears of the leases of its jobs, now and when they are history, and nobody else does (SEC-001)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.http.http_node import HttpNode, http_node
from tests.api.http.test_sse import stream
from tests.core.blocks import SEAL, final_after
from tests.core.commands import some_id
from tests.core.core_driver import YEAR_MS, public
from tests.simulation.world import World, evict_final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, TaskId
from holdfast.core.escrow.messages import Mint
from holdfast.core.key.model import Role
from holdfast.core.lease.messages import AckLease, DeclineLease, RenewLease
from holdfast.core.lease.model import Lease
from holdfast.core.match.messages import Match
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.messages import CancelJob
from holdfast.engine.outcome import Accepted

OAK = provider_id(public(1))
LEASES = ["jobAssigned", "leaseRenewed", "leaseCancelled"]


async def do(house: HttpNode, command: Command) -> Any:
    done = await house.engine.submit(command)
    assert isinstance(done, Accepted), done
    return done.fact


async def leased(house: HttpNode) -> Lease:
    """The one lease there is, in the hands of a provider."""
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["m"]}}), "eu", 3, 4)
    await do(house, Mint(some_id(90), AccountId("oak"), Amount(20_000)))
    await do(house, Register(public(1), *told, house.engine.now_ms() + YEAR_MS))
    await do(house, Stake(OAK, Amount(10_000), some_id(91)))
    await do(house, Heartbeat(OAK, 4))
    await do(house, Match())
    (lease,) = house.engine.undurable_state.leases.by_id.values()
    await do(house, AckLease(lease.id, OAK))
    return lease


@pytest.mark.rule("EVT-001", "SEC-001")
@pytest.mark.parametrize("is_history", [False, True])
async def test_a_requester_hears_of_the_leases_of_its_own_jobs(is_history: bool) -> None:
    async with http_node(World(final_after(0))) as house:
        alice, bob = await house.token(Role.REQUESTER), await house.token(Role.REQUESTER, account=AccountId("bob"))
        await house.mint(*range(10))
        asked = {"payload": {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}, "max_fee": 5, "nonce": 1}
        task = (await house.call("cap.enqueue", alice, **asked)).json()["result"]["task_id"]
        lease = await leased(house)
        await do(house, RenewLease(lease.id, OAK, 1))
        await do(house, DeclineLease(lease.id, OAK, "too hot"))
        if is_history:
            await do(house, CancelJob(TaskId(bytes.fromhex(task)), None))
            await do(house, SEAL)
            await evict_final(house.engine)
            assert house.engine.undurable_state.queue.jobs == {}
        await house.mint(92, owner="bob")
        wanted = f"?after=0&types={','.join(LEASES)},minted"
        async with stream(house, alice, wanted) as events:
            heard = [await events.event() for _ in range(13)]
        assert [name for _, name, _ in heard] == ["minted"] * 10 + LEASES
        told = [event["event"] for *_, event in heard[10:]]
        assert {each["jobId"] for each in told} == {task}
        assert {each["leaseId"] for each in told} == {lease.id.hex()}
        async with stream(house, bob, wanted) as events:
            assert [name for _, name in await events.events(1)] == ["minted"]
