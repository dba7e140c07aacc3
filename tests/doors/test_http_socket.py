"""WebSockets at the HTTP door: the same JSON-RPC, subscriptions with a cursor, and a named reason for every goodbye."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.core.books import some_id
from tests.doors.http_house import SECRET, WITHIN_S, House, bearer, beside, opened, request, until
from tests.simulated.journal import Fault
from tests.simulated.world import World
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from holdfast.core.escrow.acts import Mint, Reserve
from holdfast.core.key import Role
from holdfast.core.values import AccountId, Amount
from holdfast.doors.http import broadcast, connection, topics

pytestmark = pytest.mark.rule("RPC-001")
A = some_id(1).hex()
MINT = {"id": A, "owner": "alice", "amount": 5}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with opened() as house:
        yield house


@asynccontextmanager
async def socket(house: House, token: str | None = None, **told: Any) -> AsyncIterator[ClientConnection]:
    told = {"compression": None, "proxy": None, "close_timeout": 1, "open_timeout": WITHIN_S} | told
    async with connect(house.ws, additional_headers=bearer(token) | told.pop("headers", {}), **told) as wire:
        yield wire


async def heard(wire: ClientConnection) -> Any:
    async with asyncio.timeout(WITHIN_S):
        return json.loads(await wire.recv())


async def ask(wire: ClientConnection, method: str, /, **params: object) -> Any:
    await wire.send(json.dumps(request(method, **params)))
    return await heard(wire)


async def numbers(wire: ClientConnection, count: int, subscription: int = 1) -> list[int]:
    """The numbers of the next events, all of one subscription."""
    found: list[int] = []
    while len(found) < count:
        said = await heard(wire)
        assert said["method"] == "event"
        if said["params"]["subscription"] == subscription:
            found.append(said["params"]["number"])
    return found


async def goodbye(wire: ClientConnection) -> tuple[int, str]:
    """Code and reason of the end, whatever comes before it."""
    return (await last_words(wire))[1:]


async def last_words(wire: ClientConnection) -> tuple[list[Any], int, str]:
    """All that still comes, and code and reason of the end."""
    said: list[Any] = []
    with pytest.raises(ConnectionClosed) as closed:
        await _hear(wire, said)
    assert closed.value.rcvd is not None
    return said, closed.value.rcvd.code, closed.value.rcvd.reason


async def _hear(wire: ClientConnection, said: list[Any]) -> None:
    while True:
        said.append(await heard(wire))


async def turned_away(house: House, **told: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        async with socket(house, **told):
            pass
    response = refused.value.response
    return response.status_code, json.loads(response.body or b"{}")["error"]["data"]["name"]


# ------------------------------------------------------------------------------------------------ asking


async def test_a_socket_answers_as_a_request_does(house: House) -> None:
    async with socket(house, await house.token()) as wire:
        assert (await ask(wire, "account.mint", **MINT))["result"]["is_repeat"] is False
        assert (await ask(wire, "account.mint", **MINT))["result"]["is_repeat"] is True
        assert (await ask(wire, "nothing"))["error"]["data"]["name"] == "MethodNotFound"
        await wire.send(json.dumps([request("node.status"), request("no.such"), {"jsonrpc": "2.0"}]))
        assert ["result" in one for one in await heard(wire)] == [True, False, False]
        await wire.send(json.dumps(request("node.status")).encode())
        assert "result" in await heard(wire), "bytes are as good as text"
        await wire.send(json.dumps({"jsonrpc": "2.0", "method": "node.status"}))
        await wire.send("{")
        assert (await heard(wire))["error"]["data"]["name"] == "ParseError", "a notification is not answered"


async def test_requests_of_one_socket_share_a_batch_of_the_journal(house: House) -> None:
    async with socket(house, await house.token()) as wire:
        before = house.engine.durable.number
        house.world.disk.faults = [Fault.HANG]
        for n in range(50):
            mint = request("account.mint", id=some_id(n).hex(), owner="alice", amount=1)
            await wire.send(json.dumps(mint | {"id": n}))
        await until(lambda: house.door.tally.running == 50)
        house.world.disk.release.set()
        assert sorted([(await heard(wire))["id"] for _ in range(50)]) == list(range(50))
        assert house.engine.durable.number - before <= 2, "the first ones, and all that came meanwhile"


@pytest.mark.rule("SEC-001")
async def test_so_many_requests_of_a_socket_may_wait_and_no_more() -> None:
    async with opened(in_flight_max=4) as house, socket(house, await house.token()) as wire:
        house.world.disk.faults = [Fault.HANG]
        for n in range(20):
            await wire.send(json.dumps(request("account.mint", id=some_id(n).hex(), owner="alice", amount=1)))
        await until(lambda: house.door.tally.running == 4)
        await until(lambda: _minted(house) == 4)
        for _ in range(200):
            await asyncio.sleep(0)
        assert (house.door.tally.running, _minted(house)) == (4, 4)
        house.world.disk.release.set()
        assert all(["result" in await heard(wire) for _ in range(20)])


def _minted(house: House) -> int:
    account = house.engine.state.ledger.accounts.get(AccountId("alice"))
    return 0 if account is None else account.available


async def test_what_was_asked_is_done_though_the_client_has_left(house: House) -> None:
    token = await house.token()
    house.world.disk.faults = [Fault.HANG]
    async with socket(house, token) as wire:
        await wire.send(json.dumps(request("account.mint", **MINT)))
        await until(lambda: house.engine.state.ledger.accounts)
        wire.transport.abort()
    house.world.disk.release.set()
    assert (await house.call("account.show", token, owner="alice")).json()["result"]["available"] == 5
    await until(lambda: house.door.tally.connections() == 0)


# ------------------------------------------------------------------------------------------------ who


@pytest.mark.rule("SEC-001")
async def test_a_browser_shows_its_token_as_a_protocol(house: House) -> None:
    token = await house.token()
    async with socket(house, subprotocols=["holdfast.v1", f"holdfast.token.{token}"]) as wire:
        assert wire.subprotocol == "holdfast.v1", "the token is not sent back"
        assert "result" in await ask(wire, "account.mint", **MINT)


@pytest.mark.rule("SEC-001")
async def test_a_token_can_be_the_first_word(house: House) -> None:
    async with socket(house) as wire:
        assert (await ask(wire, "account.mint", **MINT))["error"]["data"]["name"] == "Unauthorized"
        wrong = await ask(wire, "auth.token", token="hf_wrong")
        assert wrong["error"]["data"]["name"] == "Unauthorized"
        token = await house.token(Role.REQUESTER)
        said = await ask(wire, "auth.token", token=token)
        assert said["result"] == {"name": f"{1:016x}", "role": "requester", "account": "alice"}
        assert (await ask(wire, "account.mint", **MINT))["error"]["data"]["name"] == "Forbidden"
        assert (await ask(wire, "auth.token", token=await house.token()))["result"]["role"] == "operator"
        assert "result" in await ask(wire, "account.mint", **MINT)


@pytest.mark.rule("SEC-001")
async def test_a_key_is_looked_at_with_every_word(house: House) -> None:
    token = await house.token()
    async with socket(house, token) as wire:
        assert "result" in await ask(wire, "account.mint", **MINT)
        await house.revoke(token)
        before = house.digest()
        said = await ask(wire, "account.mint", id=some_id(2).hex(), owner="alice", amount=1)
        assert (said["error"]["data"]["name"], house.digest()) == ("KeyRevoked", before)


@pytest.mark.rule("SEC-001")
async def test_who_may_not_come_in_is_told_why(house: House) -> None:
    token = await house.token()
    await house.revoke(token)
    assert await turned_away(house, token=token) == (401, "KeyRevoked")
    assert await turned_away(house, token="hf_nonsense") == (401, "Unauthorized")
    assert await turned_away(house, origin="https://evil.example") == (403, "Forbidden")
    with pytest.raises(InvalidStatus) as refused:
        async with connect(house.url.replace("http", "ws", 1) + "/elsewhere", proxy=None):
            pass
    assert refused.value.response.status_code == 404


@pytest.mark.rule("SEC-001")
async def test_pages_of_the_node_and_of_allowed_origins_may_connect() -> None:
    async with opened(origins="https://dash.example https://other.example") as house:
        for origin in ("https://dash.example", "https://other.example", house.url):
            async with socket(house, origin=origin) as wire:
                assert "result" in await ask(wire, "node.status")
        assert await turned_away(house, origin="https://dash.example.evil.example") == (403, "Forbidden")


@pytest.mark.rule("SEC-001")
async def test_no_token_gets_into_a_log(
    house: House, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    token = await house.token()
    with capture_logs() as logs:
        async with socket(house, subprotocols=["holdfast.v1", f"holdfast.token.{token}"]) as wire:
            await ask(wire, "auth.token", token=token)
            assert SECRET not in json.dumps(await ask(wire, "auth.token", token=token + "x"))
    assert [text for text in [str(logs), caplog.text, *capsys.readouterr()] if SECRET in text] == []


# ------------------------------------------------------------------------------------------------ how much


@pytest.mark.rule("SEC-001")
async def test_a_message_has_a_limit() -> None:
    async with opened(nobody_bytes_max=2_000, body_bytes_max=8_000) as house:
        raw = json.dumps(request("node.status"))
        async with socket(house) as wire:
            await wire.send(raw.ljust(2_000))
            assert "result" in await heard(wire)
            await wire.send(raw.ljust(2_001))
            assert (await heard(wire))["error"]["data"]["name"] == "TooLarge"
        async with socket(house, await house.token()) as wire:
            await wire.send(raw.ljust(8_000))
            assert "result" in await heard(wire)
            await wire.send(raw.ljust(8_001))
            assert (await goodbye(wire))[0] == 1009


@pytest.mark.rule("SEC-001")
async def test_a_socket_may_not_ask_more_often_than_a_request() -> None:
    async with opened(address_per_s=10, address_burst=10, batch_max=10) as house, socket(house) as wire:
        said = [await ask(wire, "node.status") for _ in range(10)]
        assert ["result" in one for one in said] == [True] * 9 + [False], "coming in has cost one"
        assert said[-1]["error"]["data"]["name"] == "RateLimited"
        assert "100 ms" in said[-1]["error"]["data"]["hint"]
        house.world.clock.monotonic += 100
        assert "result" in await ask(wire, "node.status")


@pytest.mark.rule("SEC-001")
async def test_hostile_words_get_a_name_and_the_socket_goes_on(house: House) -> None:
    before = house.digest()
    async with socket(house) as wire:
        for raw in ("[" * 60_000, "[]", "7", "{", '{"jsonrpc":"2.0","id":1,"method":7}', b"\xff\xfe"):
            await wire.send(raw)
            assert (await heard(wire))["error"]["data"]["name"] in ("InvalidRequest", "ParseError")
        assert "result" in await ask(wire, "node.status")
    assert house.digest() == before


# ------------------------------------------------------------------------------------------------ subscriptions


@pytest.mark.rule("EVT-001")
async def test_a_subscription_brings_events_from_its_cursor_and_as_they_happen(house: House) -> None:
    token = await house.token()
    await house.mint(1, 2)
    async with socket(house, token) as wire:
        assert (await ask(wire, "events.subscribe", after=2))["result"] == {"subscription": 1, "after": 2}
        first = await heard(wire)
        assert first == {
            "jsonrpc": "2.0",
            "method": "event",
            "params": {
                "subscription": 1,
                "number": 3,
                "time_ms": house.world.clock.wall,
                "type": "Minted",
                "event": {"id": A, "owner": "alice", "amount": 1},
            },
        }
        assert await numbers(wire, 1) == [4]
        await house.mint(3)
        assert await numbers(wire, 1) == [5]
        assert "result" in await ask(wire, "node.status"), "and it still answers"


@pytest.mark.rule("EVT-001")
async def test_several_subscriptions_of_one_socket_are_apart(house: House) -> None:
    async with socket(house, await house.token()) as wire:
        assert (await ask(wire, "events.subscribe", types=["Minted"]))["result"]["subscription"] == 1
        assert (await ask(wire, "events.subscribe", types=["KeyMade"]))["result"] == {"subscription": 2, "after": 2}
        await house.mint(1)
        await house.token()
        seen = [(await heard(wire))["params"] for _ in range(2)]
        assert sorted((one["subscription"], one["type"]) for one in seen) == [(1, "Minted"), (2, "KeyMade")]
        await until(lambda: {viewer.after for viewer in house.door._broadcast.viewers} == {4})
        assert (await ask(wire, "events.unsubscribe", subscription=1))["result"] == {"after": 4}
        assert (await ask(wire, "events.unsubscribe", subscription=1))["error"]["data"]["name"] == "NotFound"
        await house.mint(2)
        await house.token()
        assert (await heard(wire))["params"]["type"] == "KeyMade"
        await until(lambda: house.door.tally.subscribers() == 1)
    await until(lambda: house.door.tally.subscribers() == 0)


@pytest.mark.rule("EVT-001")
async def test_no_event_comes_before_the_number_it_carries(house: House) -> None:
    async with socket(house, await house.token()) as wire:
        for number in range(1, 10):
            batch = [request("events.subscribe", after=0, types=["KeyMade"]), request("node.status")]
            await wire.send(json.dumps(batch))
            said = await heard(wire)
            assert said[0]["result"]["subscription"] == number
            assert (await heard(wire))["params"]["subscription"] == number


@pytest.mark.rule("EVT-001")
async def test_a_cursor_outlives_the_node() -> None:
    world, seen = World(), list[int]()
    for life in range(3):
        async with opened(world) as house:
            if life == 0:
                token = await house.token()
            await house.mint(10 * life, 10 * life + 1)
            async with socket(house, token) as wire:
                await ask(wire, "events.subscribe", after=seen[-1] if seen else 0)
                while not seen or seen[-1] < house.engine.durable.last:
                    seen += await numbers(wire, 1)
    assert seen == list(range(1, 11))


@pytest.mark.rule("EVT-001")
async def test_a_quiet_subscription_says_where_it_is() -> None:
    async with opened(heartbeat_ms=40) as house, socket(house, await house.token()) as wire:
        await ask(wire, "events.subscribe", after=0, types=["KeyRevoked"])
        assert await heard(wire) == {"jsonrpc": "2.0", "method": "cursor", "params": {"subscription": 1, "number": 2}}


@pytest.mark.rule("EVT-001")
async def test_what_is_durable_comes_before_a_subscription_ends(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "PAUSE_S_A_VIEWER", WITHIN_S)
    monkeypatch.setattr(broadcast, "PAUSE_S_MAX", WITHIN_S)
    async with socket(house, await house.token()) as wire:
        await ask(wire, "events.subscribe", after=2)
        await house.mint(1)
        assert await numbers(wire, 1) == [3]
        await house.mint(2, 3)
        await house.engine.stop()
        assert await numbers(wire, 2) == [4, 5]
        assert (await heard(wire))["method"] == "ended"


@pytest.mark.rule("SEC-001", "EVT-001")
async def test_a_subscription_is_for_keys_and_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "TICK_S", 0.02)
    async with opened() as house, socket(house) as wire:
        assert (await ask(wire, "events.subscribe"))["error"]["data"]["name"] == "Unauthorized"
        token = await house.token(Role.AUDITOR)
        await ask(wire, "auth.token", token=token)
        assert (await ask(wire, "events.subscribe", after=2, types=["Minted"]))["result"]["subscription"] == 1
        await house.revoke(token)
        ended = await heard(wire)
        assert (ended["method"], ended["params"]["subscription"]) == ("ended", 1)
        assert ended["params"]["data"]["name"] == "Unauthorized"
        assert (await ask(wire, "node.status"))["error"]["data"]["name"] == "KeyRevoked"


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"after": 99}, "Refused"),
        ({"after": -1}, "Refused"),
        ({"after": "x"}, "InvalidParams"),
        ({"after": 2**63 - 1}, "Refused"),
        ({"after": 2**63}, "InvalidParams"),
        ({"types": ["Mintd"]}, "InvalidParams"),
        ({"types": "Minted"}, "InvalidParams"),
        ({"before": 1}, "InvalidParams"),
    ],
)
async def test_a_subscription_that_makes_no_sense_is_named(house: House, params: dict[str, Any], name: str) -> None:
    async with socket(house, await house.token()) as wire:
        assert (await ask(wire, "events.subscribe", **params))["error"]["data"]["name"] == name
    assert house.door.tally.subscribers() == 0


@pytest.mark.rule("SEC-001")
async def test_subscriptions_have_limits() -> None:
    async with opened(subscriptions_max=2, subscribers_max=3) as house, socket(house, await house.token()) as wire:
        assert [("result" in await ask(wire, "events.subscribe")) for _ in range(3)] == [True, True, False]
        async with socket(house, await house.token()) as other:
            assert "result" in await ask(other, "events.subscribe")
            said = await ask(other, "events.subscribe")
            assert said["error"]["data"]["name"] == "Unavailable"


@pytest.mark.rule("EVT-001")
async def test_an_event_is_encoded_once_for_all_subscriptions(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def shown(recorded: Any, topic: str) -> dict[str, Any]:
        made.append(recorded.number)
        return topics.shown(recorded, topic)

    monkeypatch.setattr(broadcast, "shown", shown)
    async with socket(house, await house.token()) as one, socket(house, await house.token()) as two:
        for wire in (one, one, two):
            assert "result" in await ask(wire, "events.subscribe")
        await house.mint(1)
        assert [(await heard(wire))["params"]["number"] for wire in (one, one, two)] == [4, 4, 4]
    assert made == [4]


# ------------------------------------------------------------------------------------------------ goodbyes


@pytest.mark.rule("EVT-001", "SEC-001")
async def test_a_client_that_takes_nothing_is_dropped_with_the_reason_and_comes_back_with_its_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", WITHIN_S)
    async with opened(slow_ms=150, send_bytes_max=1_024) as house:
        token = await house.token()
        await house.engine.submit(Mint(some_id(0), AccountId("alice"), Amount(10**9)))
        async with socket(house, token, max_queue=1) as wire:
            await ask(wire, "events.subscribe", after=0)
            lots = 0
            async with asyncio.timeout(WITHIN_S):
                while not house.door.tally.dropped:
                    lots += 1
                    ids = (some_id(1_000 * lots + n) for n in range(50))
                    await house.engine.submit_many(
                        [Reserve(i, AccountId("alice"), Amount(1), bytes(4_000)) for i in ids]
                    )
                    await asyncio.sleep(0.01)
            said, code, reason = await last_words(wire)
            assert (code, reason.startswith("slow")) == (4008, True)
            seen = [one["params"]["number"] for one in said]
        last = house.engine.durable.last
        assert len(seen) < last
        async with beside(house) as patient, socket(patient, token) as wire:
            await ask(wire, "events.subscribe", after=seen[-1])
            seen += await numbers(wire, last - seen[-1])
        assert seen == list(range(1, last + 1))
        assert house.door.tally.dropped == {"slow": 1}


async def test_closing_the_door_answers_what_was_asked_and_says_goodbye() -> None:
    async with opened() as house, socket(house, await house.token()) as wire:
        await ask(wire, "events.subscribe")
        house.world.disk.faults = [Fault.HANG]
        await wire.send(json.dumps(request("account.mint", **MINT)))
        await until(lambda: house.engine.state.ledger.accounts)
        closing = asyncio.create_task(house.door.close())
        assert (await heard(wire))["method"] == "ended"
        with pytest.raises(OSError, match=r"(?i)connect"):
            await asyncio.open_connection("127.0.0.1", house.door.port)
        for _ in range(50):
            await asyncio.sleep(0)
        house.world.disk.release.set()
        assert (await heard(wire))["result"]["event"]
        code, reason = await goodbye(wire)
        assert (code, "stopping" in reason) == (1001, True)
        await closing


@pytest.mark.rule("SEC-001")
async def test_a_client_that_does_not_answer_pings_is_let_go() -> None:
    async with opened(ping_ms=60) as house:
        async with house.wire() as (reader, writer):
            upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            writer.write(b"GET /ws HTTP/1.1\r\nhost: x\r\n" + upgrade)
            writer.write(b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            assert b"101" in await reader.readuntil(b"\r\n\r\n")
            assert await asyncio.wait_for(reader.read(), WITHIN_S), "a ping, then the end"
        await until(lambda: house.door.tally.connections() == 0)
