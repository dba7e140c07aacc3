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
from tests.core.blocks import SEAL, final_after
from tests.core.books import some_id
from tests.doors.http_house import WITHIN_S, House, bearer, name_of, opened, until
from tests.simulated.world import World

from holdfast.core import law
from holdfast.core.escrow.acts import Mint, Minted, Reserve
from holdfast.core.key import Role
from holdfast.core.values import AccountId, Amount
from holdfast.doors.http import broadcast, topics
from holdfast.doors.http.topics import HIDDEN, topic_of
from holdfast.engine.follower import Follower

pytestmark = pytest.mark.rule("EVT-001")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with opened() as house:
        yield house


class Stream:
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
async def stream(house: House, token: str | None = None, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    async with (
        httpx.AsyncClient(base_url=house.url, timeout=WITHIN_S) as client,
        client.stream("GET", f"/events{query}", headers=bearer(token) | headers) as response,
    ):
        yield Stream(response)


async def refused(house: House, token: str | None = None, query: str = "", **headers: str) -> tuple[int, str]:
    async with house.client(token) as client:
        said = await client.get(f"/events{query}", headers=headers)
    return said.status_code, name_of(said)


# ------------------------------------------------------------------------------------------------ in order, once


async def test_events_come_from_the_beginning_and_then_as_they_happen(house: House) -> None:
    token = await house.token()
    await house.mint(1, 2)
    async with stream(house, token, "?after=0") as events:
        assert events.response.headers["content-type"] == "text/event-stream"
        assert await events.events(4) == [(1, "OwnershipTaken"), (2, "KeyMade"), (3, "Minted"), (4, "Minted")]
        await house.mint(3)
        number, topic, said = await events.event()
        assert (number, topic) == (5, "Minted")
        assert said == {
            "number": 5,
            "time_ms": house.world.clock.wall,
            "type": "Minted",
            "event": {"id": f"{3:064x}", "owner": "alice", "amount": 1},
        }


async def test_without_a_cursor_events_come_from_now_on(house: House) -> None:
    token = await house.token()
    await house.mint(1)
    async with stream(house, token) as events:
        await events.block()
        await house.mint(2)
        assert (await events.event())[0] == 4


async def test_a_browser_that_comes_back_says_what_it_has_seen(house: House) -> None:
    token = await house.token()
    await house.mint(1, 2, 3)
    async with stream(house, token, "?after=0", **{"last-event-id": "4"}) as events:
        assert await events.events(1) == [(5, "Minted")]


async def test_a_cursor_outlives_the_node() -> None:
    world, seen = World(), list[int]()
    for life in range(3):
        async with opened(world) as house:
            if life == 0:
                token = await house.token()
            await house.mint(10 * life, 10 * life + 1)
            async with stream(house, token, f"?after={seen[-1] if seen else 0}") as events:
                while not seen or seen[-1] < house.engine.durable.last:
                    seen.append((await events.event())[0])
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == 3 + 1 + 6


async def test_old_events_come_from_the_journal_and_meet_the_new_ones(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "KEPT", 8)
    monkeypatch.setattr(broadcast, "A_TIME", 3)
    token = await house.token()
    await house.mint(*range(30))
    async with stream(house, token, "?after=2") as one, stream(house, token) as two:
        minting = asyncio.create_task(house.mint(*range(30, 120)))
        assert [number for number, _ in await one.events(120)] == list(range(3, 123))
        await minting
        first = (await two.event())[0]
        assert [number for number, _ in await two.events(122 - first)] == list(range(first + 1, 123))
        async with stream(house, token, "?after=0") as late:
            assert [number for number, _ in await late.events(122)] == list(range(1, 123))


async def test_only_what_was_asked_for_comes_and_the_cursor_moves_on_all_the_same() -> None:
    async with opened(heartbeat_ms=50) as house:
        token = await house.token()
        await house.mint(*range(5))
        async with stream(house, token, "?after=0&types=KeyMade,KeyRevoked") as events:
            assert await events.events(1) == [(2, "KeyMade")]
            block = await events.block()
            assert (block["id"], block[""]) == ("7", "still here")
            assert "data" not in block
            await house.mint(9)
            await house.token(Role.AUDITOR)
            assert (await events.event())[:2] == (9, "KeyMade")


async def test_events_go_by_their_public_names(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS", {Minted: "cap.minted"})
    token = await house.token()
    await house.mint(1)
    async with stream(house, token, "?after=0&types=cap.minted") as events:
        number, topic, said = await events.event()
        assert (number, topic, said["type"]) == (3, "cap.minted", "cap.minted")
    assert await refused(house, token, "?types=Minted") == (400, "InvalidParams")


async def test_an_event_is_encoded_once_for_all(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def shown(recorded: Any, topic: str) -> dict[str, Any]:
        made.append(recorded.number)
        return topics.shown(recorded, topic)

    monkeypatch.setattr(broadcast, "shown", shown)
    token = await house.token()
    async with stream(house, token) as one, stream(house, token) as two, stream(house, token) as three:
        await until(lambda: house.door.tally.subscribers() == 3)
        await house.mint(1, 2)
        for events in (one, two, three):
            assert await events.events(2) == [(3, "Minted"), (4, "Minted")]
    assert made == [3, 4]


async def test_nobody_follows_and_nothing_is_followed(house: House) -> None:
    token = await house.token()
    async with stream(house, token) as events:
        await events.block()
        assert house.door._broadcast._following is not None
    await until(lambda: house.door.tally.subscribers() == 0)
    await until(lambda: house.door._broadcast._following is None)
    async with stream(house, token) as events:
        await events.block()
        await house.mint(1)
        assert (await events.event())[0] == 3


# ------------------------------------------------------------------------------------------------ the end


async def test_a_quiet_stream_shows_that_it_lives() -> None:
    async with opened(heartbeat_ms=40) as house, stream(house, await house.token()) as events:
        assert (await events.block()) == {"retry": "2000"}
        assert [await events.block() for _ in range(2)] == [{"": "still here", "id": "2"}] * 2


async def test_a_stream_ends_with_a_word_when_the_node_stops() -> None:
    async with opened() as house, stream(house, await house.token(), "?after=0") as events:
        await events.events(2)
        await house.door.close()
        _, topic, said = await events.event()
        assert (topic, said["name"], said["message"]) == ("end", "Unavailable", "the node is stopping")
        assert await events.block() == {}


async def test_a_stream_ends_with_a_word_when_the_engine_stops(house: House) -> None:
    token = await house.token()
    async with stream(house, token, "?after=1") as events:
        await events.events(1)
        await house.mint(1)
        await house.engine.stop()
        assert (await events.event())[0] == 3, "what is durable comes first"
        assert (await events.event())[1] == "end"
    async with stream(house, token, "?after=1") as events:
        assert await events.events(2) == [(2, "KeyMade"), (3, "Minted")]
        assert (await events.event())[1] == "end"


async def test_what_is_durable_comes_before_the_end_however_seldom_viewers_are_woken(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "PAUSE_S_A_VIEWER", WITHIN_S)
    monkeypatch.setattr(broadcast, "PAUSE_S_MAX", WITHIN_S)
    monkeypatch.setattr(broadcast, "A_TIME", 2)
    async with stream(house, await house.token(), "?after=2") as events:
        await events.block()
        await house.mint(1)
        assert (await events.event())[0] == 3, "and now nobody is woken for long"
        await house.mint(*range(2, 9))
        await house.engine.stop()
        assert [number for number, _ in await events.events(7)] == list(range(4, 11))
        assert (await events.event())[1] == "end"


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_stream_ends_with_the_key_that_opened_it(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "TICK_S", 0.02)
    async with opened() as house:
        token = await house.token(Role.AUDITOR, expires_ms=house.world.clock.wall + 50_000)
        async with stream(house, token, "?after=2&types=Minted") as events:
            await house.mint(1)
            await events.events(1)
            if how == "revoked":
                await house.revoke(token)
            else:
                house.world.clock.wall += 50_000
            _, topic, said = await events.event()
            assert (topic, said["name"], said["rule"]) == ("end", "Unauthorized", "SEC-001")


async def test_a_client_that_has_left_is_forgotten(house: House) -> None:
    token = await house.token()
    follow = b"GET /events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + token.encode() + b"\r\n\r\n"
    more = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    for asked in (follow, follow + more):
        async with house.wire() as (reader, writer):
            writer.write(asked)
            await reader.readuntil(b"retry")
            assert house.door.tally.subscribers() == 1
        await until(lambda: house.door.tally.subscribers() == 0)


async def test_on_a_streams_connection_there_is_nothing_more_to_ask(house: House) -> None:
    token = await house.token()
    async with house.wire() as (reader, writer):
        writer.write(b"GET /events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + token.encode() + b"\r\n\r\n")
        await reader.readuntil(b"retry")
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert b"alive" not in await asyncio.wait_for(reader.read(), WITHIN_S)
        await until(lambda: house.door.tally.subscribers() == 0)


@pytest.mark.rule("SEC-001")
async def test_a_client_that_takes_nothing_is_dropped_and_the_others_do_not_notice() -> None:
    async with opened(slow_ms=200, send_bytes_max=1_024) as house:
        token = await house.token()
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", house.door.port))
            ask = f"GET /events?after=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
            slow.sendall(ask.encode())
            async with stream(house, token, "?after=0") as quick:
                await until(lambda: house.door.tally.subscribers() == 2)
                await house.engine.submit(Mint(some_id(0), AccountId("alice"), Amount(10**9)))
                seen: list[int] = []
                taking = asyncio.create_task(quick.take(seen))
                ids = count(1)
                async with asyncio.timeout(WITHIN_S):
                    while not house.door.tally.dropped:
                        new = (some_id(next(ids)) for _ in range(50))
                        many = [Reserve(one, AccountId("alice"), Amount(1), bytes(4_000)) for one in new]
                        await house.engine.submit_many(many)
                        last = house.engine.durable.last
                        await until(lambda last=last: len(seen) >= last or taking.done())
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
                assert seen == list(range(1, last + 1))
            assert house.door.tally.dropped == {"slow": 1}


async def test_a_viewer_goes_on_when_a_standby_becomes_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "TICK_S", 0.02)
    async with opened() as house:
        world, token = house.world, await house.token()
        follower = Follower(house.engine.journal, world.tables, world.files, world.clock, world.policy)
        await follower.load()
        house.desk.source = follower
        following = asyncio.create_task(follower.run())
        async with stream(house, token, "?after=0") as events:
            assert len(await events.events(2)) == 2
            await house.mint(1)
            assert (await events.event())[0] == 3
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            house.desk.source = house.engine
            await house.mint(2)
            assert (await events.event())[0] == 4


# ------------------------------------------------------------------------------------------------ who sees what


@pytest.mark.rule("SEC-001")
async def test_whoever_has_no_key_follows_nothing_unless_events_are_public() -> None:
    async with opened() as house:
        assert await refused(house) == (401, "Unauthorized")
        assert await refused(house, "hf_x") == (401, "Unauthorized")
        assert await refused(house, await house.token(scopes=("account.*",))) == (403, "Forbidden")
    async with opened(public_events=True) as house:
        await house.mint(1)
        async with stream(house, None, "?after=0") as events:
            assert await events.events(1) == [(2, "Minted")], "who owns the journal is nobody's business"


@pytest.mark.rule("SEC-001")
async def test_a_requester_follows_what_names_its_account_alone(house: House) -> None:
    alice, bob = await house.token(Role.REQUESTER), await house.token(Role.REQUESTER, account=AccountId("bob"))
    await house.mint(1)
    await house.mint(2, owner="bob")
    await house.mint(3)
    async with stream(house, alice, "?after=0") as events:
        assert await events.events(3) == [(2, "KeyMade"), (4, "Minted"), (6, "Minted")]
    async with stream(house, bob, "?after=0&types=Minted") as events:
        assert await events.events(1) == [(5, "Minted")]


@pytest.mark.rule("SEC-001")
async def test_a_secret_is_not_shown_even_as_a_hash(house: House) -> None:
    async with stream(house, await house.token(), "?after=1") as events:
        _, topic, said = await events.event()
    assert (topic, said["event"]["role"]) == ("KeyMade", "operator")
    assert not HIDDEN & said["event"].keys()
    (key,) = house.engine.state.keys.values()
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
    house: House, query: str, headers: dict[str, str], status: int, name: str
) -> None:
    assert await refused(house, await house.token(), query, **headers) == (status, name)
    assert house.door.tally.subscribers() == 0


@pytest.mark.rule("SEC-001")
async def test_followers_have_a_limit() -> None:
    async with opened(subscribers_max=2) as house:
        token = await house.token()
        async with stream(house, token) as one, stream(house, token) as two:
            await one.block()
            await two.block()
            assert await refused(house, token) == (503, "Unavailable")
        await until(lambda: house.door.tally.subscribers() == 0)
        async with stream(house, token) as three:
            assert await three.block()


def test_every_event_has_one_public_name() -> None:
    names = [topic_of(kind) for kind in law.EVENTS]
    assert len(set(names)) == len(names)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("is_history", [False, True])
async def test_a_requester_follows_its_own_jobs_also_when_they_are_history(is_history: bool) -> None:
    async with opened(World(final_after(0))) as house:
        alice, bob = await house.token(Role.REQUESTER), await house.token(Role.REQUESTER, account=AccountId("bob"))
        await house.mint(*range(10))
        asked = {"payload": {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}, "max_fee": 5, "nonce": 1}
        task = (await house.call("cap.enqueue", alice, **asked)).json()["result"]["task_id"]
        await house.call("cap.cancel", alice, task_id=task)
        if is_history:
            await house.engine.submit(SEAL)
            await house.engine.projector.drain()
            assert house.engine.state.queue.jobs == {}
        await house.mint(90, owner="bob")
        async with stream(house, alice, "?after=0&types=jobAdmitted,jobCancelled,Minted") as events:
            names = [name for _, name in await events.events(12)]
        assert names == ["Minted"] * 10 + ["jobAdmitted", "jobCancelled"]
        async with stream(house, bob, "?after=0") as events:
            assert [name for _, name in await events.events(2)] == ["KeyMade", "Minted"]
