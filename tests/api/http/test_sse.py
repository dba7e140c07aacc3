"""Events as a stream over HTTP: each once, in order, from any cursor; slow ones are dropped, and who sees what."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import httpx
import pytest
from tests.api.http.http_node import WITHIN_S, HttpNode, bearer, http_node, name_of, until
from tests.core.blocks import SEAL, final_after
from tests.core.commands import some_id
from tests.simulation.world import World, evict_final

from holdfast.api import public_events
from holdfast.api.http import event_fanout
from holdfast.api.public_events import HIDDEN_FIELDS, public_name
from holdfast.core import state_machine
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.key.model import Role
from holdfast.engine.follower import Follower

pytestmark = pytest.mark.rule("EVT-001")


@pytest.fixture
async def node() -> AsyncIterator[HttpNode]:
    async with http_node() as node:
        yield node


class SseStream:
    """Server-sent events, block by block."""

    def __init__(self, response: httpx.Response) -> None:
        self.response, self._lines = response, response.aiter_lines()

    async def block(self) -> dict[str, str]:
        """The fields of the next block; a comment is under the empty name. Empty at the end of the stream."""
        found: dict[str, str] = {}
        async with asyncio.timeout(WITHIN_S):
            async for line in self._lines:
                if not line:
                    return found
                name, _, value = line.partition(": ")
                found[name.rstrip(":")] = value
        return found

    async def event(self) -> tuple[int, str, Any]:
        while "data" not in (block := await self.block()):
            assert block, "the stream has ended"
        return int(block.get("id", 0)), block["event"], json.loads(block["data"])

    async def events(self, count: int) -> list[tuple[int, str]]:
        return [(await self.event())[:2] for _ in range(count)]

    async def take(self, seen: list[int]) -> None:
        """Every event's number, as it comes, until the stream ends."""
        while True:
            seen.append((await self.event())[0])


@asynccontextmanager
async def stream(node: HttpNode, token: str | None = None, query: str = "", **headers: str) -> AsyncIterator[SseStream]:
    async with (
        httpx.AsyncClient(base_url=node.url, timeout=WITHIN_S) as client,
        client.stream("GET", f"/events{query}", headers=bearer(token) | headers) as response,
    ):
        yield SseStream(response)


async def refused(node: HttpNode, token: str | None = None, query: str = "", **headers: str) -> tuple[int, str]:
    async with node.client(token) as client:
        said = await client.get(f"/events{query}", headers=headers)
    return said.status_code, name_of(said)


# ------------------------------------------------------------------------------------------------ in order, once


async def test_events_come_from_the_beginning_and_then_as_they_happen(node: HttpNode) -> None:
    token = await node.token()
    await node.mint(1, 2)
    async with stream(node, token, "?after=0") as events:
        assert events.response.headers["content-type"] == "text/event-stream"
        assert await events.events(4) == [(1, "ownershipTaken"), (2, "keyCreated"), (3, "minted"), (4, "minted")]
        await node.mint(3)
        number, topic, said = await events.event()
        assert (number, topic) == (5, "minted")
        assert said == {
            "number": 5,
            "time_ms": node.world.clock.wall,
            "type": "minted",
            "event": {"id": f"{3:064x}", "owner": "alice", "amount": 1},
        }


async def test_without_a_cursor_events_come_from_now_on(node: HttpNode) -> None:
    token = await node.token()
    await node.mint(1)
    async with stream(node, token) as events:
        await events.block()
        await node.mint(2)
        assert (await events.event())[0] == 4


async def test_who_does_not_follow_is_told_what_there_is_and_then_the_end(node: HttpNode) -> None:
    operator = await node.token()
    stranger = await node.token(role=Role.REQUESTER, account=AccountId("carol"))
    await node.mint(1, 2)
    async with stream(node, operator, "?after=2&follow=false&types=minted") as events:
        assert [(await events.event())[1] for _ in range(2)] == ["minted", "minted"]
        assert (await events.event())[1:] == ("end", {})
        assert await events.block() == {}
    for token, query in ((stranger, "?after=3&follow=false"), (operator, "?follow=false")):
        async with stream(node, token, query) as events:  # nothing is shown to it, and it ends at once
            assert (await events.event())[1:] == ("end", {})
    assert await refused(node, operator, "?follow=maybe") == (400, "InvalidParams")


async def test_a_browser_that_comes_back_says_what_it_has_seen(node: HttpNode) -> None:
    token = await node.token()
    await node.mint(1, 2, 3)
    async with stream(node, token, "?after=0", **{"last-event-id": "4"}) as events:
        assert await events.events(1) == [(5, "minted")]


async def test_a_cursor_outlives_the_node() -> None:
    world, seen = World(), list[int]()
    for life in range(3):
        async with http_node(world) as node:
            if life == 0:
                token = await node.token()
            await node.mint(10 * life, 10 * life + 1)
            async with stream(node, token, f"?after={seen[-1] if seen else 0}") as events:
                while not seen or seen[-1] < node.engine.durable_head.last:
                    seen.append((await events.event())[0])
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == 3 + 1 + 6


async def test_old_events_come_from_the_journal_and_meet_the_new_ones(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_fanout, "FRAMES_KEPT", 8)
    monkeypatch.setattr(event_fanout, "FRAMES_PER_READ", 3)
    token = await node.token()
    await node.mint(*range(30))
    async with stream(node, token, "?after=2") as one, stream(node, token) as two:
        minting = asyncio.create_task(node.mint(*range(30, 120)))
        assert [number for number, _ in await one.events(120)] == list(range(3, 123))
        await minting
        first = (await two.event())[0]
        assert [number for number, _ in await two.events(122 - first)] == list(range(first + 1, 123))
        async with stream(node, token, "?after=0") as late:
            assert [number for number, _ in await late.events(122)] == list(range(1, 123))


async def test_only_what_was_asked_for_comes_and_the_cursor_moves_on_all_the_same() -> None:
    async with http_node(heartbeat_ms=50) as node:
        token = await node.token()
        await node.mint(*range(5))
        async with stream(node, token, "?after=0&types=keyCreated,keyRevoked") as events:
            assert await events.events(1) == [(2, "keyCreated")]
            block = await events.block()
            assert (block["id"], block[""]) == ("7", "still here")
            assert "data" not in block
            await node.mint(9)
            await node.token(Role.AUDITOR)
            assert (await events.event())[:2] == (9, "keyCreated")


async def test_events_go_by_their_public_names(node: HttpNode) -> None:
    token = await node.token()
    await node.mint(1)
    async with stream(node, token, "?after=0&types=minted") as events:
        number, topic, said = await events.event()
        assert (number, topic, said["type"]) == (3, "minted", "minted")
    assert await refused(node, token, "?types=Minted") == (400, "InvalidParams")


async def test_an_event_is_encoded_once_for_all(node: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def shown(recorded: Any, topic: str, fields: frozenset[str] | None) -> dict[str, Any]:
        made.append(recorded.number)
        return public_events.event_json(recorded, topic, fields)

    monkeypatch.setattr(event_fanout, "event_json", shown)
    token = await node.token()
    async with stream(node, token) as one, stream(node, token) as two, stream(node, token) as three:
        await until(lambda: node.server.metrics.subscribers() == 3)
        await node.mint(1, 2)
        for events in (one, two, three):
            assert await events.events(2) == [(3, "minted"), (4, "minted")]
    assert made == [3, 4]


async def test_without_subscribers_the_journal_is_not_followed(node: HttpNode) -> None:
    token = await node.token()
    async with stream(node, token) as events:
        await events.block()
        assert node.server._fanout._following is not None
    await until(lambda: node.server.metrics.subscribers() == 0)
    await until(lambda: node.server._fanout._following is None)
    async with stream(node, token) as events:
        await events.block()
        await node.mint(1)
        assert (await events.event())[0] == 3


# ------------------------------------------------------------------------------------------------ the end


async def test_a_quiet_stream_sends_keepalives() -> None:
    async with http_node(heartbeat_ms=40) as node, stream(node, await node.token()) as events:
        assert (await events.block()) == {"retry": "2000"}
        assert [await events.block() for _ in range(2)] == [{"": "still here", "id": "2"}] * 2


async def test_a_stream_ends_with_a_reason_when_the_node_stops() -> None:
    async with http_node() as node, stream(node, await node.token(), "?after=0") as events:
        await events.events(2)
        await node.server.close()
        _, topic, said = await events.event()
        assert (topic, said["name"], said["message"]) == ("end", "Unavailable", "the node is stopping")
        assert await events.block() == {}


async def test_a_stream_ends_with_a_reason_when_the_engine_stops(node: HttpNode) -> None:
    token = await node.token()
    async with stream(node, token, "?after=1") as events:
        await events.events(1)
        await node.mint(1)
        await node.engine.stop()
        assert (await events.event())[0] == 3, "what is durable comes first"
        assert (await events.event())[1] == "end"
    async with stream(node, token, "?after=1") as events:
        assert await events.events(2) == [(2, "keyCreated"), (3, "minted")]
        assert (await events.event())[1] == "end"


async def test_what_is_durable_comes_before_the_end_however_seldom_subscribers_are_woken(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_fanout, "PAUSE_S_PER_SUBSCRIBER", WITHIN_S)
    monkeypatch.setattr(event_fanout, "PAUSE_S_MAX", WITHIN_S)
    monkeypatch.setattr(event_fanout, "FRAMES_PER_READ", 2)
    async with stream(node, await node.token(), "?after=2") as events:
        await events.block()
        await node.mint(1)
        assert (await events.event())[0] == 3, "and now nobody is woken for long"
        await node.mint(*range(2, 9))
        await node.engine.stop()
        assert [number for number, _ in await events.events(7)] == list(range(4, 11))
        assert (await events.event())[1] == "end"


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_stream_ends_with_the_key_that_opened_it(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fanout, "TICK_S", 0.02)
    async with http_node() as node:
        token = await node.token(Role.AUDITOR, expires_ms=node.world.clock.wall + 50_000)
        async with stream(node, token, "?after=2&types=minted") as events:
            await node.mint(1)
            await events.events(1)
            if how == "revoked":
                await node.revoke(token)
            else:
                node.world.clock.wall += 50_000
            _, topic, said = await events.event()
            assert (topic, said["name"], said["rule"]) == ("end", "Unauthorized", "SEC-001")


async def test_a_client_that_has_left_is_forgotten(node: HttpNode) -> None:
    token = await node.token()
    follow = b"GET /events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + token.encode() + b"\r\n\r\n"
    more = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    for asked in (follow, follow + more):
        async with node.raw_connection() as (reader, writer):
            writer.write(asked)
            await reader.readuntil(b"retry")
            assert node.server.metrics.subscribers() == 1
        await until(lambda: node.server.metrics.subscribers() == 0)


async def test_on_a_streams_connection_there_is_nothing_more_to_ask(node: HttpNode) -> None:
    token = await node.token()
    async with node.raw_connection() as (reader, writer):
        writer.write(b"GET /events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + token.encode() + b"\r\n\r\n")
        await reader.readuntil(b"retry")
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert b"alive" not in await asyncio.wait_for(reader.read(), WITHIN_S)
        await until(lambda: node.server.metrics.subscribers() == 0)


@pytest.mark.rule("SEC-001")
async def test_a_client_that_takes_nothing_is_dropped_and_the_others_do_not_notice() -> None:
    async with http_node(slow_ms=200, send_bytes_max=1_024) as node:
        token = await node.token()
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", node.server.port))
            ask = f"GET /events?after=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
            slow.sendall(ask.encode())
            async with stream(node, token, "?after=0") as quick:
                await until(lambda: node.server.metrics.subscribers() == 2)
                await node.engine.submit(Mint(some_id(0), AccountId("alice"), Amount(10**9)))
                seen: list[int] = []
                taking = asyncio.create_task(quick.take(seen))
                ids = count(1)
                async with asyncio.timeout(WITHIN_S):
                    while not node.server.metrics.disconnected:
                        new = (some_id(next(ids)) for _ in range(50))
                        many = [Reserve(one, AccountId("alice"), Amount(1), bytes(4_000)) for one in new]
                        await node.engine.submit_many(many)
                        last = node.engine.durable_head.last
                        await until(lambda last=last: len(seen) >= last or taking.done())
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
                assert seen == list(range(1, last + 1))
            assert node.server.metrics.disconnected == {"slow": 1}


async def test_a_subscriber_goes_on_when_a_standby_becomes_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fanout, "TICK_S", 0.02)
    async with http_node() as node:
        world, token = node.world, await node.token()
        follower = Follower(node.engine.journal, world.tables, world.files, world.clock, world.policy)
        await follower.load()
        node.access.source = follower
        following = asyncio.create_task(follower.run())
        async with stream(node, token, "?after=0") as events:
            assert len(await events.events(2)) == 2
            await node.mint(1)
            assert (await events.event())[0] == 3
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            node.access.source = node.engine
            await node.mint(2)
            assert (await events.event())[0] == 4


# ------------------------------------------------------------------------------------------------ who sees what


@pytest.mark.rule("SEC-001")
async def test_whoever_has_no_key_follows_nothing_unless_events_are_public() -> None:
    async with http_node() as node:
        assert await refused(node) == (401, "Unauthorized")
        assert await refused(node, "hf_x") == (401, "Unauthorized")
        assert await refused(node, await node.token(scopes=("account.*",))) == (403, "Forbidden")
    async with http_node(public_events=True) as node:
        await node.mint(1)
        await node.engine.submit(SEAL)
        async with stream(node, None, "?after=0") as events:
            assert await events.events(1) == [(3, "blockSealed")], "who has money is nobody's business"


@pytest.mark.rule("SEC-001")
async def test_a_requester_follows_what_names_its_account_alone(node: HttpNode) -> None:
    alice, bob = await node.token(Role.REQUESTER), await node.token(Role.REQUESTER, account=AccountId("bob"))
    await node.mint(1)
    await node.mint(2, owner="bob")
    await node.mint(3)
    async with stream(node, alice, "?after=0") as events:
        assert await events.events(3) == [(2, "keyCreated"), (4, "minted"), (6, "minted")]
    async with stream(node, bob, "?after=0&types=minted") as events:
        assert await events.events(1) == [(5, "minted")]


@pytest.mark.rule("SEC-001")
async def test_a_secret_is_not_shown_even_as_a_hash(node: HttpNode) -> None:
    async with stream(node, await node.token(), "?after=1") as events:
        _, topic, said = await events.event()
    assert (topic, said["event"]["role"]) == ("keyCreated", "operator")
    assert not HIDDEN_FIELDS & said["event"].keys()
    (key,) = node.engine.undurable_state.keys.values()
    assert key.secret.hex() not in json.dumps(said)


@pytest.mark.parametrize(
    ("query", "headers", "status", "name"),
    [
        ("?after=99", {}, 409, "Refused"),
        ("?after=-1", {}, 400, "InvalidParams"),
        ("?after=x", {}, 400, "InvalidParams"),
        ("?after=" + "9" * 30, {}, 400, "InvalidParams"),
        ("?after=٣", {}, 400, "InvalidParams"),
        ("?before=1", {}, 400, "InvalidParams"),
        ("?types=Mintd", {}, 400, "InvalidParams"),
        ("?types=", {}, 400, "InvalidParams"),
        ("", {"last-event-id": "x"}, 400, "InvalidParams"),
    ],
)
async def test_a_cursor_or_a_type_that_makes_no_sense_is_named(
    node: HttpNode, query: str, headers: dict[str, str], status: int, name: str
) -> None:
    assert await refused(node, await node.token(), query, **headers) == (status, name)
    assert node.server.metrics.subscribers() == 0


@pytest.mark.rule("SEC-001")
async def test_followers_have_a_limit() -> None:
    async with http_node(subscribers_max=2) as node:
        token = await node.token()
        async with stream(node, token) as one, stream(node, token) as two:
            await one.block()
            await two.block()
            assert await refused(node, token) == (503, "Unavailable")
        await until(lambda: node.server.metrics.subscribers() == 0)
        async with stream(node, token) as three:
            assert await three.block()


def test_every_event_has_one_public_name() -> None:
    names = [public_name(kind) for kind in state_machine.EVENTS]
    assert len(set(names)) == len(names)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("is_history", [False, True])
async def test_a_requester_follows_its_own_jobs_also_when_they_are_history(is_history: bool) -> None:
    async with http_node(World(final_after(0))) as node:
        alice, bob = await node.token(Role.REQUESTER), await node.token(Role.REQUESTER, account=AccountId("bob"))
        await node.mint(*range(10))
        asked = {"payload": {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}, "max_fee": 5, "nonce": 1}
        task = (await node.call("cap.enqueue", alice, **asked)).json()["result"]["task_id"]
        await node.call("cap.cancel", alice, task_id=task)
        if is_history:
            await node.engine.submit(SEAL)
            await evict_final(node.engine)
            assert node.engine.undurable_state.queue.jobs == {}
        await node.mint(90, owner="bob")
        async with stream(node, alice, "?after=0&types=jobAdmitted,jobCancelled,minted") as events:
            names = [name for _, name in await events.events(12)]
        assert names == ["minted"] * 10 + ["jobAdmitted", "jobCancelled"]
        async with stream(node, bob, "?after=0&types=keyCreated,minted,jobAdmitted,jobCancelled") as events:
            assert [name for _, name in await events.events(2)] == ["keyCreated", "minted"]
