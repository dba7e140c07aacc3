"""A node is killed again and again in the middle of its work: nothing confirmed is missing, nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.counts import counts
from tests.storage.stores import JOURNALS, Place
from tests.stories.node_process import NodeProcess, on_postgres

from holdfast.client import NodeRefused
from holdfast.client.node_socket import NodeSocket
from holdfast.core import journal_codec
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, BatchNo, Network
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.ports import Journal

CLIENTS = 8
PATIENCE_S = 60.0
Processes = Callable[[str], NodeProcess]


class Requester:
    """One client that reserves, charges and refunds, writes down what was confirmed, and never uses an id twice."""

    def __init__(self, data: Path, number: int) -> None:
        self.node, self.number = NodeSocket(data, PATIENCE_S), number
        self.random = Random(number)
        self.confirmed: dict[str, set[str]] = {"reserved": set(), "charged": set(), "refunded": set()}

    @property
    def count(self) -> int:
        return sum(len(ids) for ids in self.confirmed.values())

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            hold = self.random.randbytes(32)
            memo = self.random.randbytes(self.random.choice((0, 20, 6_000)))
            await self.node.reserve(hold, "alice", 5, memo)
            self.confirmed["reserved"].add(hold.hex())
            if self.random.random() < 0.5:
                await self.node.charge(hold, f"provider-{self.number}", self.random.randint(0, 5))
                self.confirmed["charged"].add(hold.hex())
            elif self.random.random() < 0.5:
                await self.node.refund(hold)
                self.confirmed["refunded"].add(hold.hex())
        await self.node.close()


async def journal_events(data: Path) -> tuple[Counter[tuple[str, str]], list[int]]:
    """How often each thing happened to each id, and all event numbers, from the event stream alone."""
    node = NodeSocket(data, PATIENCE_S)
    last = (await node.status())["event"]
    await node.close()
    seen: Counter[tuple[str, str]] = Counter()
    numbers = []
    async for event in node.follow():
        numbers.append(event["number"])
        if "id" in event["event"]:
            seen[event["type"], event["event"]["id"]] += 1
        if event["number"] == last:
            break
    return seen, numbers


async def fold_journal(journal: Journal) -> State:
    """The state that the stored journal gives, folded from nothing by this process."""
    state, tip = State(Policy.for_network(Network.DEVELOPMENT)), JournalHead()
    async for batch in journal.read(BatchNo(0)):
        tip = journal_codec.fold(state, tip, (batch,))
    await journal.close()
    return state


@pytest.fixture(params=["postgres", "sqlite"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(place: Place) -> Place:
    """The node's own folder; logs lie beside it."""
    return Place(place.folder / "data", place.server)


@pytest.fixture
def process(place: Place, store: str) -> Iterator[Processes]:
    """Nodes on one folder and one store, by name; none outlives the test."""
    made: list[NodeProcess] = []
    # A pause is noticed by the journal, however slow the machine is.
    settings = {"HOLDFAST_OWNER__PAUSE_MS": "600000", "HOLDFAST_OWNER__TAKEOVER_MS": "600000"}
    settings |= on_postgres(place.address) if store == "postgres" else {}

    def make(name: str) -> NodeProcess:
        made.append(NodeProcess(place.folder, name, settings))
        return made[-1]

    yield make
    for node in made:
        node.end()


async def assert_nothing_is_lost(
    node: NodeProcess, journal: Journal, times: int, fault: Callable[[], Awaitable[None]]
) -> None:
    """Clients work, the fault happens again and again in the middle; then everything is compared with everything."""
    random = Random(20261115)
    await node.up()
    async with NodeSocket(node.data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 10**12)
    requesters = [Requester(node.data, number) for number in range(CLIENTS)]
    stop = asyncio.Event()
    work = [asyncio.create_task(requester.work(stop)) for requester in requesters]

    for _ in range(times):
        goal = sum(requester.count for requester in requesters) + random.randint(1, 200)
        while sum(requester.count for requester in requesters) < goal:
            await asyncio.sleep(0.001)  # until they have got that far
            assert not any(task.done() for task in work)
        await asyncio.sleep(random.random() / 100)  # anywhere within a batch
        await fault()
    stop.set()
    await asyncio.gather(*work)

    async with NodeSocket(node.data, PATIENCE_S) as client:
        live = await client.call("node.getStateDigest")
    seen, numbers = await journal_events(node.data)
    confirmed = Counter({(what, id_): 1 for each in requesters for what, ids in each.confirmed.items() for id_ in ids})
    assert await node.stop() == 0
    assert numbers == list(range(1, len(numbers) + 1))
    assert confirmed - seen == Counter(), "confirmed, yet missing"
    assert [key for key, count in seen.items() if count > 1] == [], "done twice"
    assert len(confirmed) > times * 10
    state = await fold_journal(journal)
    assert digest(state).hex() == live["digest"]
    assert broken_invariants(state.ledger) == []


@pytest.mark.rule("ENG-002", "ENG-003", "ENG-005")
async def test_kill_minus_nine_under_load_loses_nothing_and_repeats_nothing(
    process: Processes, place: Place, store: str
) -> None:
    node = process("node")

    async def kill() -> None:
        await node.kill()
        await node.up()

    await assert_nothing_is_lost(node, JOURNALS[store](place)(), counts(3, 50), kill)


@pytest.mark.rule("ENG-002", "ENG-003", "ENG-005")
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_killed_backends_and_restarts_of_the_server_under_load_lose_nothing_and_repeat_nothing(
    process: Processes, place: Place
) -> None:
    server, random = place.server(), Random(7)
    everybody = f"application_name LIKE 'holdfast {place.address.schema} %'"
    killing = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {everybody}"

    async def disturb() -> None:
        if random.random() < 0.3:
            server.restart(random.choice((signal.SIGINT, signal.SIGQUIT)))
        else:
            await asyncio.to_thread(server.psql, killing)

    await assert_nothing_is_lost(process("node"), JOURNALS["postgres"](place)(), counts(4, 60), disturb)


@pytest.mark.rule("ENG-001")
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_node_that_was_paused_and_replaced_cannot_write_when_it_wakes_up(process: Processes) -> None:
    old, new = process("old"), process("new")
    await old.up()
    reader, writer = await asyncio.open_unix_connection(old.data / "node.sock")
    old.signal(signal.SIGSTOP)
    (old.data / "owner.lock").unlink()  # what an operator might do to a node that does not answer
    await new.up()
    async with NodeSocket(new.data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 7)
        old.signal(signal.SIGCONT)
        writer.write(request("account.mint", id="11" * 32, owner="alice", amount=1_000))
        said = json.loads(await reader.readline())
        assert "another owner has written" in said["error"]["message"]
        assert await old.ended() != 0
        assert "ENG-001" in old.log()
        assert (await client.account("alice"))["available"] == 7
        with pytest.raises(NodeRefused, match="ESC-001"):
            await client.reserve(bytes(31) + b"x", "alice", 8)
    writer.close()
    assert await new.stop() == 0


@pytest.mark.rule("ENG-001", "ENG-004")
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_node_whose_connections_were_cut_while_it_was_paused_cannot_write_when_it_wakes_up(
    process: Processes, place: Place, admin: Any
) -> None:
    old, new = process("old"), process("new")
    await old.up()
    reader, writer = await asyncio.open_unix_connection(old.data / "node.sock")
    old.signal(signal.SIGSTOP)
    ours = f"holdfast {place.address.schema} %"
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1", ours)
    await new.up()
    async with NodeSocket(new.data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 7)
        old.signal(signal.SIGCONT)
        writer.write(request("account.mint", id="11" * 32, owner="alice", amount=1_000))
        assert "error" in json.loads(await reader.readline())
        assert (await client.account("alice"))["available"] == 7
        with pytest.raises(NodeRefused, match="ESC-001"):
            await client.reserve(bytes(31) + b"x", "alice", 8)
    writer.close()
    assert await new.stop() == 0
    state = await fold_journal(JOURNALS["postgres"](place)())
    assert state.ledger.accounts[AccountId("alice")].available == 7


@pytest.mark.rule("ENG-001")
async def test_a_second_node_on_the_same_store_is_refused(process: Processes, store: str) -> None:
    first, second = process("first"), process("second")
    await first.up()
    await second.up()  # it is the first one that answers
    assert await second.ended() == 75
    says = f"process {first.pid} owns" if store == "sqlite" else "owns the journal in schema"
    assert says in second.log()
    assert await first.stop() == 0


def request(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
