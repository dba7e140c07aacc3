"""WebSockets at the HTTP door: the same JSON-RPC, subscriptions with a cursor, and a named reason for every goodbye."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.api.http.http_node import SECRET, WITHIN_S, HttpNode, bearer, http_node, request, second_server, until
from tests.core.commands import some_id
from tests.simulation.journal import Fault
from tests.simulation.world import World
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from holdfast.api import public_events
from holdfast.api.http import connection, event_fanout
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("RPC-001")
A = some_id(1).hex()
MINT = {"id": A, "owner": "alice", "amount": 5}


@pytest.fixture
async def node() -> AsyncIterator[HttpNode]:
    async with http_node() as node:
        yield node


@asynccontextmanager
async def socket(node: HttpNode, token: str | None = None, **told: Any) -> AsyncIterator[ClientConnection]:
    told = {"compression": None, "proxy": None, "close_timeout": 1, "open_timeout": WITHIN_S} | told
    async with connect(node.ws, additional_headers=bearer(token) | told.pop("headers", {}), **told) as wire:
        yield wire


async def received(wire: ClientConnection) -> Any:
    async with asyncio.timeout(WITHIN_S):
        return json.loads(await wire.recv())


async def ask(wire: ClientConnection, method: str, /, **params: object) -> Any:
    await wire.send(json.dumps(request(method, **params)))
    return await received(wire)


async def numbers(wire: ClientConnection, count: int, subscription: int = 1) -> list[int]:
    """The numbers of the next events, all of one subscription."""
    found: list[int] = []
    while len(found) < count:
        said = await received(wire)
        assert said["method"] == "event"
        if said["params"]["subscription"] == subscription:
            found.append(said["params"]["number"])
    return found


async def close_reason(wire: ClientConnection) -> tuple[int, str]:
    """Code and reason of the end, whatever comes before it."""
    return (await remaining_messages(wire))[1:]


async def remaining_messages(wire: ClientConnection) -> tuple[list[Any], int, str]:
    """All that still comes, and code and reason of the end."""
    said: list[Any] = []
    with pytest.raises(ConnectionClosed) as closed:
        await _receive_all(wire, said)
    assert closed.value.rcvd is not None
    return said, closed.value.rcvd.code, closed.value.rcvd.reason


async def _receive_all(wire: ClientConnection, said: list[Any]) -> None:
    while True:
        said.append(await received(wire))


async def rejected_handshake(node: HttpNode, **told: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        async with socket(node, **told):
            pass
    response = refused.value.response
    return response.status_code, json.loads(response.body or b"{}")["error"]["data"]["name"]


# ------------------------------------------------------------------------------------------------ asking


async def test_a_socket_answers_as_a_request_does(node: HttpNode) -> None:
    async with socket(node, await node.token()) as wire:
        assert (await ask(wire, "account.mint", **MINT))["result"]["is_repeat"] is False
        assert (await ask(wire, "account.mint", **MINT))["result"]["is_repeat"] is True
        assert (await ask(wire, "nothing"))["error"]["data"]["name"] == "MethodNotFound"
        await wire.send(json.dumps([request("node.getStatus"), request("no.such"), {"jsonrpc": "2.0"}]))
        assert ["result" in one for one in await received(wire)] == [True, False, False]
        await wire.send(json.dumps(request("node.getStatus")).encode())
        assert "result" in await received(wire), "bytes are as good as text"
        await wire.send(json.dumps({"jsonrpc": "2.0", "method": "node.getStatus"}))
        await wire.send("{")
        assert (await received(wire))["error"]["data"]["name"] == "ParseError", "a notification is not answered"


async def test_requests_of_one_socket_share_a_batch_of_the_journal(node: HttpNode) -> None:
    async with socket(node, await node.token()) as wire:
        before = node.engine.durable_head.number
        node.world.disk.faults = [Fault.HANG]
        for n in range(50):
            mint = request("account.mint", id=some_id(n).hex(), owner="alice", amount=1)
            await wire.send(json.dumps(mint | {"id": n}))
        await until(lambda: node.server.metrics.running == 50)
        node.world.disk.release.set()
        assert sorted([(await received(wire))["id"] for _ in range(50)]) == list(range(50))
        assert node.engine.durable_head.number - before <= 2, "the first ones, and all that came meanwhile"


@pytest.mark.rule("SEC-001")
async def test_pending_requests_of_a_socket_have_a_limit() -> None:
    async with http_node(in_flight_max=4) as node, socket(node, await node.token()) as wire:
        node.world.disk.faults = [Fault.HANG]
        for n in range(20):
            await wire.send(json.dumps(request("account.mint", id=some_id(n).hex(), owner="alice", amount=1)))
        await until(lambda: node.server.metrics.running == 4)
        await until(lambda: _minted(node) == 4)
        for _ in range(200):
            await asyncio.sleep(0)
        assert (node.server.metrics.running, _minted(node)) == (4, 4)
        node.world.disk.release.set()
        assert all(["result" in await received(wire) for _ in range(20)])


def _minted(node: HttpNode) -> int:
    account = node.engine.undurable_state.ledger.accounts.get(AccountId("alice"))
    return 0 if account is None else account.available


async def test_what_was_asked_is_done_though_the_client_has_left(node: HttpNode) -> None:
    token = await node.token()
    node.world.disk.faults = [Fault.HANG]
    async with socket(node, token) as wire:
        await wire.send(json.dumps(request("account.mint", **MINT)))
        await until(lambda: node.engine.undurable_state.ledger.accounts)
        wire.transport.abort()
    node.world.disk.release.set()
    assert (await node.call("account.getAccount", token, owner="alice")).json()["result"]["available"] == 5
    await until(lambda: node.server.metrics.connections() == 0)


# ------------------------------------------------------------------------------------------------ who


@pytest.mark.rule("SEC-001")
async def test_a_browser_shows_its_token_as_a_protocol(node: HttpNode) -> None:
    token = await node.token()
    async with socket(node, subprotocols=["holdfast.v1", f"holdfast.token.{token}"]) as wire:
        assert wire.subprotocol == "holdfast.v1", "the token is not sent back"
        assert "result" in await ask(wire, "account.mint", **MINT)


@pytest.mark.rule("SEC-001")
async def test_a_token_can_be_the_first_message(node: HttpNode) -> None:
    async with socket(node) as wire:
        assert (await ask(wire, "account.mint", **MINT))["error"]["data"]["name"] == "Unauthorized"
        wrong = await ask(wire, "auth.setToken", token="hf_wrong")
        assert wrong["error"]["data"]["name"] == "Unauthorized"
        token = await node.token(Role.REQUESTER)
        said = await ask(wire, "auth.setToken", token=token)
        assert said["result"] == {"name": f"{1:016x}", "role": "requester", "account": "alice"}
        assert (await ask(wire, "account.mint", **MINT))["error"]["data"]["name"] == "Forbidden"
        assert (await ask(wire, "auth.setToken", token=await node.token()))["result"]["role"] == "operator"
        assert "result" in await ask(wire, "account.mint", **MINT)


@pytest.mark.rule("SEC-001")
async def test_a_key_is_checked_with_every_message(node: HttpNode) -> None:
    token = await node.token()
    async with socket(node, token) as wire:
        assert "result" in await ask(wire, "account.mint", **MINT)
        await node.revoke(token)
        before = node.digest()
        said = await ask(wire, "account.mint", id=some_id(2).hex(), owner="alice", amount=1)
        assert (said["error"]["data"]["name"], node.digest()) == ("KeyRevoked", before)


@pytest.mark.rule("SEC-001")
async def test_a_rejected_client_gets_the_reason(node: HttpNode) -> None:
    token = await node.token()
    await node.revoke(token)
    assert await rejected_handshake(node, token=token) == (401, "KeyRevoked")
    assert await rejected_handshake(node, token="hf_nonsense") == (401, "Unauthorized")
    assert await rejected_handshake(node, origin="https://evil.example") == (403, "Forbidden")
    with pytest.raises(InvalidStatus) as refused:
        async with connect(node.url.replace("http", "ws", 1) + "/elsewhere", proxy=None):
            pass
    assert refused.value.response.status_code == 404


@pytest.mark.rule("SEC-001")
async def test_pages_of_the_node_and_of_allowed_origins_may_connect() -> None:
    async with http_node(origins="https://dash.example https://other.example") as node:
        for origin in ("https://dash.example", "https://other.example", node.url):
            async with socket(node, origin=origin) as wire:
                assert "result" in await ask(wire, "node.getStatus")
        assert await rejected_handshake(node, origin="https://dash.example.evil.example") == (403, "Forbidden")


@pytest.mark.rule("SEC-001")
async def test_no_token_gets_into_a_log(
    node: HttpNode, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    token = await node.token()
    with capture_logs() as logs:
        async with socket(node, subprotocols=["holdfast.v1", f"holdfast.token.{token}"]) as wire:
            await ask(wire, "auth.setToken", token=token)
            assert SECRET not in json.dumps(await ask(wire, "auth.setToken", token=token + "x"))
    assert [text for text in [str(logs), caplog.text, *capsys.readouterr()] if SECRET in text] == []


# ------------------------------------------------------------------------------------------------ how much


@pytest.mark.rule("SEC-001")
async def test_a_message_has_a_limit() -> None:
    async with http_node(anonymous_bytes_max=2_000, body_bytes_max=8_000) as node:
        raw = json.dumps(request("node.getStatus"))
        async with socket(node) as wire:
            await wire.send(raw.ljust(2_000))
            assert "result" in await received(wire)
            await wire.send(raw.ljust(2_001))
            assert (await received(wire))["error"]["data"]["name"] == "TooLarge"
        async with socket(node, await node.token()) as wire:
            await wire.send(raw.ljust(8_000))
            assert "result" in await received(wire)
            await wire.send(raw.ljust(8_001))
            assert (await close_reason(wire))[0] == 1009


@pytest.mark.rule("SEC-001")
async def test_a_socket_may_not_ask_more_often_than_a_request() -> None:
    async with http_node(address_per_s=10, address_burst=10, batch_max=10) as node, socket(node) as wire:
        said = [await ask(wire, "node.getStatus") for _ in range(10)]
        assert ["result" in one for one in said] == [True] * 9 + [False], "coming in has cost one"
        assert said[-1]["error"]["data"]["name"] == "RateLimited"
        assert "100 ms" in said[-1]["error"]["data"]["hint"]
        node.world.clock.monotonic += 100
        assert "result" in await ask(wire, "node.getStatus")


@pytest.mark.rule("SEC-001")
async def test_hostile_messages_get_a_named_error_and_the_socket_goes_on(node: HttpNode) -> None:
    before = node.digest()
    async with socket(node) as wire:
        for raw in ("[" * 60_000, "[]", "7", "{", '{"jsonrpc":"2.0","id":1,"method":7}', b"\xff\xfe"):
            await wire.send(raw)
            assert (await received(wire))["error"]["data"]["name"] in ("InvalidRequest", "ParseError", "TooLarge")
        assert "result" in await ask(wire, "node.getStatus")
    assert node.digest() == before


# ------------------------------------------------------------------------------------------------ subscriptions


@pytest.mark.rule("EVT-001")
async def test_a_subscription_brings_events_from_its_cursor_and_as_they_happen(node: HttpNode) -> None:
    token = await node.token()
    await node.mint(1, 2)
    async with socket(node, token) as wire:
        assert (await ask(wire, "events.subscribe", after=2))["result"] == {"subscription": 1, "after": 2}
        first = await received(wire)
        assert first == {
            "jsonrpc": "2.0",
            "method": "event",
            "params": {
                "subscription": 1,
                "number": 3,
                "time_ms": node.world.clock.wall,
                "type": "minted",
                "event": {"id": A, "owner": "alice", "amount": 1},
            },
        }
        assert await numbers(wire, 1) == [4]
        await node.mint(3)
        assert await numbers(wire, 1) == [5]
        assert "result" in await ask(wire, "node.getStatus"), "and it still answers"


@pytest.mark.rule("EVT-001")
async def test_several_subscriptions_of_one_socket_are_apart(node: HttpNode) -> None:
    async with socket(node, await node.token()) as wire:
        assert (await ask(wire, "events.subscribe", types=["minted"]))["result"]["subscription"] == 1
        assert (await ask(wire, "events.subscribe", types=["keyCreated"]))["result"] == {"subscription": 2, "after": 2}
        await node.mint(1)
        await node.token()
        seen = [(await received(wire))["params"] for _ in range(2)]
        assert sorted((one["subscription"], one["type"]) for one in seen) == [(1, "minted"), (2, "keyCreated")]
        await until(lambda: {viewer.after for viewer in node.server._fanout.subscribers} == {4})
        assert (await ask(wire, "events.unsubscribe", subscription=1))["result"] == {"after": 4}
        assert (await ask(wire, "events.unsubscribe", subscription=1))["error"]["data"]["name"] == "NotFound"
        await node.mint(2)
        await node.token()
        assert (await received(wire))["params"]["type"] == "keyCreated"
        await until(lambda: node.server.metrics.subscribers() == 1)
    await until(lambda: node.server.metrics.subscribers() == 0)


@pytest.mark.rule("EVT-001")
async def test_no_event_comes_before_the_number_it_carries(node: HttpNode) -> None:
    async with socket(node, await node.token()) as wire:
        for number in range(1, 10):
            batch = [request("events.subscribe", after=0, types=["keyCreated"]), request("node.getStatus")]
            await wire.send(json.dumps(batch))
            said = await received(wire)
            assert said[0]["result"]["subscription"] == number
            assert (await received(wire))["params"]["subscription"] == number


@pytest.mark.rule("EVT-001")
async def test_a_cursor_outlives_the_node() -> None:
    world, seen = World(), list[int]()
    for life in range(3):
        async with http_node(world) as node:
            if life == 0:
                token = await node.token()
            await node.mint(10 * life, 10 * life + 1)
            async with socket(node, token) as wire:
                await ask(wire, "events.subscribe", after=seen[-1] if seen else 0)
                while not seen or seen[-1] < node.engine.durable_head.last:
                    seen += await numbers(wire, 1)
    assert seen == list(range(1, 11))


@pytest.mark.rule("EVT-001")
async def test_a_quiet_subscription_says_where_it_is() -> None:
    async with http_node(heartbeat_ms=40) as node, socket(node, await node.token()) as wire:
        await ask(wire, "events.subscribe", after=0, types=["keyRevoked"])
        assert await received(wire) == {
            "jsonrpc": "2.0",
            "method": "cursor",
            "params": {"subscription": 1, "number": 2},
        }


@pytest.mark.rule("EVT-001")
async def test_what_is_durable_comes_before_a_subscription_ends(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_fanout, "PAUSE_S_PER_SUBSCRIBER", WITHIN_S)
    monkeypatch.setattr(event_fanout, "PAUSE_S_MAX", WITHIN_S)
    async with socket(node, await node.token()) as wire:
        await ask(wire, "events.subscribe", after=2)
        await node.mint(1)
        assert await numbers(wire, 1) == [3]
        await node.mint(2, 3)
        await node.engine.stop()
        assert await numbers(wire, 2) == [4, 5]
        assert (await received(wire))["method"] == "ended"


@pytest.mark.rule("SEC-001", "EVT-001")
async def test_a_subscription_is_for_keys_and_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fanout, "TICK_S", 0.02)
    async with http_node() as node, socket(node) as wire:
        assert (await ask(wire, "events.subscribe"))["error"]["data"]["name"] == "Unauthorized"
        token = await node.token(Role.AUDITOR)
        await ask(wire, "auth.setToken", token=token)
        assert (await ask(wire, "events.subscribe", after=2, types=["minted"]))["result"]["subscription"] == 1
        await node.revoke(token)
        ended = await received(wire)
        assert (ended["method"], ended["params"]["subscription"]) == ("ended", 1)
        assert ended["params"]["data"]["name"] == "Unauthorized"
        assert (await ask(wire, "node.getStatus"))["error"]["data"]["name"] == "KeyRevoked"


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"after": 99}, "Refused"),
        ({"after": -1}, "InvalidParams"),
        ({"after": "x"}, "InvalidParams"),
        ({"after": 2**63 - 1}, "Refused"),
        ({"after": 2**63}, "InvalidParams"),
        ({"types": ["Mintd"]}, "InvalidParams"),
        ({"types": "minted"}, "InvalidParams"),
        ({"before": 1}, "InvalidParams"),
    ],
)
async def test_a_subscription_that_makes_no_sense_is_named(node: HttpNode, params: dict[str, Any], name: str) -> None:
    async with socket(node, await node.token()) as wire:
        assert (await ask(wire, "events.subscribe", **params))["error"]["data"]["name"] == name
    assert node.server.metrics.subscribers() == 0


@pytest.mark.rule("SEC-001")
async def test_subscriptions_have_limits() -> None:
    async with http_node(subscriptions_max=2, subscribers_max=3) as node, socket(node, await node.token()) as wire:
        assert [("result" in await ask(wire, "events.subscribe")) for _ in range(3)] == [True, True, False]
        async with socket(node, await node.token()) as other:
            assert "result" in await ask(other, "events.subscribe")
            said = await ask(other, "events.subscribe")
            assert said["error"]["data"]["name"] == "Unavailable"


@pytest.mark.rule("EVT-001")
async def test_an_event_is_encoded_once_for_all_subscriptions(node: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def shown(recorded: Any, topic: str, fields: frozenset[str] | None) -> dict[str, Any]:
        made.append(recorded.number)
        return public_events.event_json(recorded, topic, fields)

    monkeypatch.setattr(event_fanout, "event_json", shown)
    async with socket(node, await node.token()) as one, socket(node, await node.token()) as two:
        for wire in (one, one, two):
            assert "result" in await ask(wire, "events.subscribe")
        await node.mint(1)
        assert [(await received(wire))["params"]["number"] for wire in (one, one, two)] == [4, 4, 4]
    assert made == [4]


# ------------------------------------------------------------------------------------------------ goodbyes


@pytest.mark.rule("EVT-001", "SEC-001")
async def test_a_client_that_takes_nothing_is_dropped_with_the_reason_and_comes_back_with_its_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSE_LINGER_S", WITHIN_S)
    async with http_node(slow_ms=150, send_bytes_max=1_024) as node:
        token = await node.token()
        await node.engine.submit(Mint(some_id(0), AccountId("alice"), Amount(10**9)))
        async with socket(node, token, max_queue=1) as wire:
            await ask(wire, "events.subscribe", after=0)
            lots = 0
            async with asyncio.timeout(WITHIN_S):
                while not node.server.metrics.disconnected:
                    lots += 1
                    ids = (some_id(1_000 * lots + n) for n in range(50))
                    await node.engine.submit_many(
                        [Reserve(i, AccountId("alice"), Amount(1), bytes(4_000)) for i in ids]
                    )
                    await asyncio.sleep(0.01)
            said, code, reason = await remaining_messages(wire)
            assert (code, reason.startswith("slow")) == (4008, True)
            seen = [one["params"]["number"] for one in said]
        last = node.engine.durable_head.last
        assert len(seen) < last
        async with second_server(node) as patient, socket(patient, token) as wire:
            await ask(wire, "events.subscribe", after=seen[-1])
            seen += await numbers(wire, last - seen[-1])
        assert seen == list(range(1, last + 1))
        assert node.server.metrics.disconnected == {"slow": 1}


async def test_closing_the_server_answers_pending_requests_and_closes_with_a_reason() -> None:
    async with http_node() as node, socket(node, await node.token()) as wire:
        await ask(wire, "events.subscribe")
        node.world.disk.faults = [Fault.HANG]
        await wire.send(json.dumps(request("account.mint", **MINT)))
        await until(lambda: node.engine.undurable_state.ledger.accounts)
        closing = asyncio.create_task(node.server.close())
        assert (await received(wire))["method"] == "ended"
        with pytest.raises(OSError, match=r"(?i)connect"):
            await asyncio.open_connection("127.0.0.1", node.server.port)
        for _ in range(50):
            await asyncio.sleep(0)
        node.world.disk.release.set()
        assert (await received(wire))["result"]["event"]
        code, reason = await close_reason(wire)
        assert (code, "stopping" in reason) == (1001, True)
        await closing


@pytest.mark.rule("SEC-001")
async def test_a_client_that_does_not_answer_pings_is_disconnected() -> None:
    async with http_node(ping_ms=60) as node:
        async with node.raw_connection() as (reader, writer):
            upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            writer.write(b"GET /ws HTTP/1.1\r\nhost: x\r\n" + upgrade)
            writer.write(b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            assert b"101" in await reader.readuntil(b"\r\n\r\n")
            assert await asyncio.wait_for(reader.read(), WITHIN_S), "a ping, then the end"
        await until(lambda: node.server.metrics.connections() == 0)
