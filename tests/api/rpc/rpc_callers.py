"""Principals of every role, and JSON-RPC to a simulated node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.core.commands import some_id
from tests.simulation.world import World

from holdfast.api.node_access import ANONYMOUS, LOCAL, NodeAccess, Principal, RpcMethod
from holdfast.api.rpc import jsonrpc
from holdfast.api.rpc.methods import METHODS
from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import AccountId
from holdfast.core.key.model import Role
from holdfast.core.policy import Policy
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine

ALICE: Final = Principal("a" * 16, Role.REQUESTER, AccountId("alice"))
BOB: Final = Principal("b" * 16, Role.REQUESTER, AccountId("bob"))
PROVIDER: Final = Principal("c" * 16, Role.PROVIDER)
OPERATOR: Final = Principal("d" * 16, Role.OPERATOR)
AUDITOR: Final = Principal("e" * 16, Role.AUDITOR)
TREASURER: Final = Principal("f" * 16, Role.TREASURER)
CALLERS: Final = {
    "nobody": ANONYMOUS,
    "requester": ALICE,
    "provider": PROVIDER,
    "operator": OPERATOR,
    "auditor": AUDITOR,
    "treasurer": TREASURER,
    "local": LOCAL,
}


async def answer(
    access: NodeAccess, raw: bytes, principal: Principal = LOCAL, methods: Mapping[str, RpcMethod] = METHODS
) -> bytes | None:
    """The answer to one message, as every connection makes it: decode, handle, encode."""
    message = jsonrpc.decode(raw)
    if isinstance(message, Refused):
        return jsonrpc.error_message(None, message)
    return jsonrpc.encode(message, await jsonrpc.handle(access, message, principal, methods))


class RpcNode:
    """A node that is called by JSON-RPC."""

    def __init__(self, world: World, access: NodeAccess) -> None:
        self.world, self.access = world, access

    @property
    def engine(self) -> Engine:
        assert isinstance(self.access.source, Engine)
        return self.access.source

    async def raw(self, caller: Principal, method: str, /, **params: object) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        said = await answer(self.access, json.dumps(message).encode(), caller)
        assert said is not None
        return json.loads(said)

    async def ask(self, caller: Principal, method: str, /, **params: object) -> Any:
        """The result of a call that must be answered."""
        said = await self.raw(caller, method, **params)
        assert "error" not in said, said
        return said["result"]

    async def refusal(self, caller: Principal, method: str, /, **params: object) -> tuple[str, str, str]:
        """Name, rule and sentence of a call that must be refused, and that changes nothing."""
        before = digest(self.engine.undurable_state)
        error = (await self.raw(caller, method, **params))["error"]
        assert digest(self.engine.undurable_state) == before
        return error["data"]["name"], error["data"]["rule"], error["message"]

    async def mint(self, owner: str = "alice", amount: int = 1_000, number: int = 1) -> None:
        await self.ask(OPERATOR, "account.mint", id=some_id(number).hex(), owner=owner, amount=amount)

    def last_batch(self) -> list[Event]:
        return journal_codec.unpack(self.world.disk.batches[-1])

    def privileged_acts(self) -> list[tuple[str, str]]:
        """Who did what others may not, in all of history."""
        events = [event for batch in self.world.disk.batches for event in journal_codec.unpack(batch)]
        return [(event.actor, event.method) for event in events if isinstance(event, PrivilegedActRecorded)]


@asynccontextmanager
async def rpc_node(policy: Policy | None = None) -> AsyncIterator[RpcNode]:
    """A node that is stopped when the test is done."""
    world = World() if policy is None else World(policy)
    engine = await world.started()
    try:
        yield RpcNode(world, NodeAccess(engine, engine.submit))
    finally:
        await engine.stop()


def job(prompt: str = "hello", **told: object) -> dict[str, object]:
    """What a requester asks for."""
    return {"payload": {"kind": "AI", "spec": {"model": "m", "prompt": prompt}}, "max_fee": 10} | told
