"""Visitors of every role before a simulated node, and the JSON they speak with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.core.books import some_id
from tests.simulated.world import World

from holdfast.core import law
from holdfast.core.act import ActDone
from holdfast.core.event import Event
from holdfast.core.key import Role
from holdfast.core.policy import Policy
from holdfast.core.state import digest
from holdfast.core.values import AccountId
from holdfast.doors.desk import LOCAL, NOBODY, Desk, Visitor
from holdfast.doors.jsonrpc import answer

ALICE: Final = Visitor("a" * 16, Role.REQUESTER, AccountId("alice"))
BOB: Final = Visitor("b" * 16, Role.REQUESTER, AccountId("bob"))
PROVIDER: Final = Visitor("c" * 16, Role.PROVIDER)
OPERATOR: Final = Visitor("d" * 16, Role.OPERATOR)
AUDITOR: Final = Visitor("e" * 16, Role.AUDITOR)
VISITORS: Final = {
    "nobody": NOBODY,
    "requester": ALICE,
    "provider": PROVIDER,
    "operator": OPERATOR,
    "auditor": AUDITOR,
    "local": LOCAL,
}


class Node:
    """A node, and everybody who speaks to it."""

    def __init__(self, world: World, desk: Desk) -> None:
        self.world, self.desk = world, desk
        self.engine = desk.source

    async def raw(self, visitor: Visitor, method: str, **params: object) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        said = await answer(self.desk, json.dumps(message).encode(), visitor)
        assert said is not None
        return json.loads(said)

    async def ask(self, visitor: Visitor, method: str, **params: object) -> Any:
        """The result of a call that must be answered."""
        said = await self.raw(visitor, method, **params)
        assert "error" not in said, said
        return said["result"]

    async def no(self, visitor: Visitor, method: str, **params: object) -> tuple[str, str, str]:
        """Name, rule and sentence of a call that must be refused, and that changes nothing."""
        before = digest(self.engine.state)
        error = (await self.raw(visitor, method, **params))["error"]
        assert digest(self.engine.state) == before
        return error["data"]["name"], error["data"]["rule"], error["message"]

    async def mint(self, owner: str = "alice", amount: int = 1_000, number: int = 1) -> None:
        await self.ask(OPERATOR, "account.mint", id=some_id(number).hex(), owner=owner, amount=amount)

    def last_batch(self) -> list[Event]:
        return law.unpack(self.world.disk.batches[-1])

    def acts(self) -> list[tuple[str, str]]:
        """Who did what others may not, in all of history."""
        events = [event for batch in self.world.disk.batches for event in law.unpack(batch)]
        return [(event.actor, event.method) for event in events if isinstance(event, ActDone)]


@asynccontextmanager
async def node(policy: Policy | None = None) -> AsyncIterator[Node]:
    """A node that is stopped when the test is done."""
    world = World() if policy is None else World(policy)
    engine = await world.started()
    try:
        yield Node(world, Desk(engine, engine.submit))
    finally:
        await engine.stop()


def job(prompt: str = "hello", **told: object) -> dict[str, object]:
    """What a requester asks for."""
    return {"payload": {"kind": "AI", "spec": {"model": "m", "prompt": prompt}}, "max_fee": 10} | told
