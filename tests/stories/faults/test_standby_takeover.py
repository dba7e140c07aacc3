"""Two nodes on one journal: the standby answers reads and hands commands on; when the owner dies it is the owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.counts import counts
from tests.storage.stores import JOURNALS, Place
from tests.stories.faults.test_node_killed import PATIENCE_S, Requester, fold_journal, journal_events
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.client import NodeRefused
from holdfast.client.node_socket import NodeSocket
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.state_digest import digest

pytestmark = pytest.mark.rule("ENG-006")


class NodePair:
    """Nodes that share a journal; on SQLite also a folder, on PostgreSQL each has its own."""

    def __init__(self, place: Place, store: str) -> None:
        self._place, self._store = place, store
        self._settings = on_postgres(place.address) if store == "postgres" else {}
        self._made: list[NodeProcess] = []

    def node(self, name: str) -> NodeProcess:
        folder = self._place.folder / (name if self._store == "postgres" else "data")
        self._made.append(NodeProcess(folder, name, self._settings | {"HOLDFAST_STANDBY": "true"}))
        return self._made[-1]

    def end(self) -> None:
        for node in self._made:
            node.end()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(place: Place, store: str) -> Iterator[NodePair]:
    made = NodePair(place, store)
    yield made
    made.end()


async def start_node(node: NodeProcess) -> Path:
    """Start it and wait until it answers on its own socket, as the owner or as a standby."""
    return await node.up(node.data / f"{node.name}.sock")


async def test_a_standby_reads_forwards_and_takes_over(pair: NodePair) -> None:
    one, two = pair.node("one"), pair.node("two")
    first, second = await start_node(one), await start_node(two)
    async with NodeSocket(first, PATIENCE_S) as owner, NodeSocket(second, PATIENCE_S) as standby:
        assert [(await node.status())["role"] for node in (owner, standby)] == ["owner", "follower"]
        await owner.mint(bytes(32), "alice", 100)
        assert (await standby.reserve(b"1" * 32, "alice", 60))["event"] == 6  # the owner did it
        assert (await standby.reserve(b"1" * 32, "alice", 60)) == {"event": 6, "is_repeat": True}
        with pytest.raises(NodeRefused, match="ESC-001") as refusal:
            await standby.reserve(b"2" * 32, "alice", 60)
        assert refusal.value.name == "InsufficientFunds"
        while (await standby.status())["event"] < 6:
            await asyncio.sleep(0.005)
        assert await standby.account("alice") == await owner.account("alice")
        assert (await standby.call("node.getStateDigest")) == (await owner.call("node.getStateDigest"))
        await one.kill()
        assert (await standby.reserve(b"1" * 32, "alice", 60)) == {"event": 6, "is_repeat": True}
        assert (await standby.reserve(b"3" * 32, "alice", 40))["is_repeat"] is False
        status = await standby.status()
        assert (status["role"], status["term"]) == ("owner", 2)
    third = await start_node(one)  # and the old owner comes back as a standby
    async with NodeSocket(third, PATIENCE_S) as standby:
        assert (await standby.status())["role"] == "follower"
        assert (await standby.account("alice"))["held"] == 100
    assert await one.stop() == 0
    assert await two.stop() == 0


async def test_who_follows_events_at_a_standby_goes_on_when_it_becomes_the_owner(pair: NodePair) -> None:
    one, two = pair.node("one"), pair.node("two")
    await start_node(one)
    socket = await start_node(two)
    async with NodeSocket(socket, PATIENCE_S) as standby, aclosing(standby.follow()) as events:  # type: ignore[type-var]
        while (await anext(events))["number"] < (await standby.status())["event"]:
            pass
        await one.kill()
        event = (await standby.mint(bytes(32), "alice", 100))["event"]
        async with asyncio.timeout(PATIENCE_S):
            while (await anext(events))["number"] < event:
                pass
    assert await two.stop() == 0


@pytest.mark.rule("ENG-002")
async def test_owners_that_die_one_after_the_other_lose_nothing_and_repeat_nothing(
    pair: NodePair, place: Place, store: str
) -> None:
    nodes = [pair.node("one"), pair.node("two")]
    sockets = [await start_node(node) for node in nodes]
    async with NodeSocket(sockets[0], PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 10**12)
    requesters = [Requester(sockets[number % 2], number) for number in range(4)]
    stop = asyncio.Event()
    work = [asyncio.create_task(requester.work(stop)) for requester in requesters]
    for turn in range(counts(3, 40)):
        goal = sum(requester.count for requester in requesters) + 60
        while sum(requester.count for requester in requesters) < goal:
            await asyncio.sleep(0.002)
            assert not any(task.done() for task in work)
        await nodes[turn % 2].kill()  # the owner of this turn
        await start_node(nodes[turn % 2])
    stop.set()
    await asyncio.gather(*work)
    async with NodeSocket(sockets[0], PATIENCE_S) as one, NodeSocket(sockets[1], PATIENCE_S) as two:
        last = max((await one.status())["event"], (await two.status())["event"])
        for client in (one, two):
            while (await client.status())["event"] < last:
                await asyncio.sleep(0.005)
        live = await one.call("node.getStateDigest")
        assert await two.call("node.getStateDigest") == live
        if (await one.status())["role"] == "owner":
            nodes.reverse()  # who follows goes first: a standby whose owner ends would write that it is the owner
    seen, numbers = await journal_events(sockets[1])
    confirmed = Counter((what, id_) for each in requesters for what, ids in each.confirmed.items() for id_ in ids)
    assert confirmed - seen == Counter(), "confirmed, yet missing"
    assert [key for key, times in seen.items() if times > 1] == [], "done twice"
    assert numbers == list(range(1, len(numbers) + 1))
    for node in nodes:
        assert await node.stop() == 0
    folder = place.folder / "data" if store == "sqlite" else place.folder
    state = await fold_journal(JOURNALS[store](Place(folder, place.server) if store == "sqlite" else place)())
    assert digest(state).hex() == live["digest"]
    assert broken_invariants(state.ledger) == []
